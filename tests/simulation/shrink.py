"""Makes a scenario that fails smaller, as long as it still fails by one of the same rules."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.run import Result
from tests.simulation.scenario import Scenario

Run = Callable[[Scenario], Result]


def rules_of(result: Result) -> frozenset[str]:
    return frozenset(rule for rule, _ in result.violations)


def shrink(scenario: Scenario, run: Run, *, runs_max: int = 300) -> tuple[Scenario, int]:
    """The smallest that was found, and how many runs that took."""
    wanted = rules_of(run(scenario))
    assert wanted, "only a scenario that fails can be made smaller"
    runs = 1
    is_smaller = True
    while is_smaller and runs < runs_max:
        is_smaller = False
        for candidate in _smaller(scenario):
            runs += 1
            if rules_of(run(candidate)) & wanted:
                scenario, is_smaller = candidate, True
                break
            if runs >= runs_max:
                break
    return scenario, runs


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """One step smaller in one way, the large steps first."""
    faults = scenario.faults
    if len(faults) > 1:
        middle = len(faults) // 2
        yield replace(scenario, faults=faults[:middle])
        yield replace(scenario, faults=faults[middle:])
    for number in range(len(faults)):
        yield replace(scenario, faults=faults[:number] + faults[number + 1 :])
    for field, least in _NUMBERS.items():
        present = getattr(scenario, field)
        for less in {(present + least) // 2, present - 1}:
            if least <= less < present:
                yield replace(scenario, **{field: less})
    for field, calm in _CALM.items():
        if getattr(scenario, field) != calm:
            yield replace(scenario, **{field: calm})


_NUMBERS = {"steps": 1, "clients": 1, "servers": 1, "workers": 1, "shards": 1, "counters": 1}
# How each is where it does no harm.
_CALM = {
    "lost_share": 0.0,
    "slow_share": 0.0,
    "odd_share": 0.0,
    "clear_share": 0.0,
    "client_skew_s": 0.0,
    "rivals": False,
    "commits_in_flight": 1,
    "events_waiting_max": 10_000,
    "log_retention_s": 86_400,
    "lanes": 1,
    "namespaces_after_s": 0.0,
    "tiny_limits": False,
}
