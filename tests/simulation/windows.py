"""Rolling windows: do they begin where they should? What is in them, tally.verify checks."""

from counter.clock import NS_PER_MS
from counter.namespaces import Strategy
from tests.simulation.scenario import Scenario
from tests.simulation.served import Served
from tests.simulation.witness import Witness


def check_window_start(
    witness: Witness,
    scenario: Scenario,
    served: Served,
    start_ns: int,
    complete_through_ns: int,
    between_ns: tuple[int, int],
) -> None:
    """`between_ns`: what the server's clock said before and after it answered."""
    namespace = served.namespace
    assert namespace is not None
    if namespace.strategy is not Strategy.ROLLING_WINDOW or namespace.rolling_window_ms is None:
        witness.violate("I5", f"{namespace.name} has no rolling window, and one was answered")
        return
    window_ns = scenario.window_ms * NS_PER_MS
    before_now_ns = (namespace.rolling_window_ms // scenario.window_ms - 1) * window_ns
    earliest_ns, latest_ns = (
        now_ns // window_ns * window_ns - before_now_ns for now_ns in between_ns
    )
    # Rows know a whole length before what is folded: less than a clock asks for that is far behind.
    latest_ns = max(latest_ns, complete_through_ns // window_ns * window_ns - before_now_ns)
    if start_ns < earliest_ns:
        witness.violate("I5", f"a rolling window begins {earliest_ns - start_ns} ns too early")
    # After another strategy, or a shorter length, it begins where something is known.
    if start_ns > latest_ns and witness.unchanged(namespace.id) is not None:
        witness.violate("I5", f"a rolling window begins {start_ns - latest_ns} ns too late")
    witness.counted["rolling windows looked at"] += 1
