"""What is known of a counter at the end of a past step.

A counter's states form a chain (`counter.history`): each history row holds from the end of its step
until `until_step`, and the rollup row from its changed_window on. Why an answer from it is honest
(I5), which means: it counts every event of the windows up to the end of the step, and no other.

Let X be the last window of the step, and R the rollup row, read after the watermark, so that it is
complete through T = the later of the watermark and R.through_window.

1. *R changed last in X or before.* R holds all events up to T, and none of them is later than X. So
   it is the state at X if X <= T, and else the state at T, which is all that anybody knows yet.
2. *R's first event came after X.* The counter was 0 at X. (R.first_window is written with the first
   fold of the counter and never changes. Rows of old may not know it: then this says nothing.)
3. *A history row with step <= the asked one < until_step.* A fold wrote it that changed the counter
   in until_step, that is after X; records form a chain without gaps, so everything up to X was
   decided by then, for ever. The row is the state after the last change before until_step, and that
   change was in `step`, not later than X. So it is the state at X, whatever was folded since, and
   it does not matter that the row is read after R.
4. *Otherwise something is missing*: a row that expired, or one that was never written because
   history was off. Nothing is said then. In particular the last row before a gap is not taken for
   an answer: its until_step tells where it ends.

1 comes before 3 for a reason: a fold may end R's step between the two reads, and write a row for it
that holds more than R. An answer that mixes the two would be newer than its stamp.
"""

from counter.clock import NS_PER_MS
from counter.errors import Unsupported
from counter.history import HistoryRow
from counter.namespaces import Namespace, Strategy
from counter.rollups import ZERO, Rollup
from counter.windows import Layout


def state_at(
    layout: Layout, step_ms: int, step: int, rollup: Rollup, row: HistoryRow | None
) -> Rollup | None:
    """The state at the end of the step; None: not known. `row`: the last of a step up to it."""
    last_window = layout.last_window_of_step(step, step_ms)
    if rollup.changed_window <= last_window:
        return rollup
    if rollup.first_window > last_window:
        return ZERO
    if row is not None and row.step <= step < row.until_step:
        return row.state
    return None


def last_step_through(layout: Layout, window: int, step_ms: int) -> int:
    """The last step whose last window is not after `window`."""
    return layout.end_ns(window) // (step_ms * NS_PER_MS) - 1


def check_rolled_up(namespace: Namespace, what: str) -> None:
    """Refuses what needs rollups in a namespace that has none."""
    if namespace.strategy is Strategy.BEST_EFFORT:
        raise Unsupported(
            f"namespace {namespace.name} is best_effort, which {what}: pick another strategy if "
            "you need it"
        )
