"""History: a counter's state at the end of each step of time in which it changed.

The rollup is the newest state. The fold that first changes a counter in a later step writes the
state that held until then, under the step in which it came about:

    events      +1 +1 | +2    |       | +5 -1 |
    steps         7   |   8   |   9   |  10   |
    history      2    |   4   |       |       |   4 holds from the end of 8 until 10
    rollup                               8

No timer is needed, so a replay writes the same rows again, whoever does it and when (I3); a step
without events costs nothing. Each row says in which step the counter changed next, so the rows of
a counter form a chain that ends at the rollup: a row that is missing shows. A row is of use until
that next step is older than the retention, which is about when it was written plus the retention.
"""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from counter.events import Event
from counter.fold import FoldCounts, fold
from counter.rollups import Rollup
from counter.windows import Layout


class HistoryRow(msgspec.Struct, frozen=True, gc=False):
    step: int  # in which the counter changed
    until_step: int  # in which it changed next: from that one on the row does not hold
    state: Rollup  # at the end of the step


class Adjustment(msgspec.Struct, frozen=True, gc=False):
    """A correction by an operator, kept for ever."""

    namespace_id: int
    counter: str
    time_ns: int
    token: str
    delta: int
    author: str
    reason: str


def fold_with_history(
    rollup: Rollup,
    events: list[Event],
    through_window: int,
    counts: FoldCounts,
    *,
    layout: Layout,
    steps_ms: Sequence[int],
    recent_windows: int = 0,
) -> tuple[Rollup, list[tuple[int, HistoryRow]]]:
    """The rollup after the events, and by length of step the states that they put an end to.

    `steps_ms` rises, and each is a multiple of the one before, so cutting the events at the
    finest cuts them at all. Folding them piece by piece is the same as at once: see `fold`.
    """
    past: list[tuple[int, HistoryRow]] = []
    for piece in _pieces(events, layout, steps_ms[0]) if steps_ms and events else [events]:
        if steps_ms and piece and rollup.through_window >= 0:
            past += _ended(rollup, layout.window_of(piece[0].time_ns), layout, steps_ms)
        rollup = fold(
            rollup,
            piece,
            through_window,
            counts,
            window_ns=layout.window_ns,
            recent_windows=recent_windows,
        )
    return rollup, past


def _pieces(events: list[Event], layout: Layout, step_ms: int) -> list[list[Event]]:
    """By step, in order; within each the order of `gather` stays. Mostly all are of one step."""

    def step_of(event: Event) -> int:
        return layout.step_of(layout.window_of(event.time_ns), step_ms)

    times_ns = [event.time_ns for event in events]
    first, last = (layout.window_of(time_ns) for time_ns in (min(times_ns), max(times_ns)))
    if layout.step_of(first, step_ms) == layout.step_of(last, step_ms):
        return [events]
    return [list(piece) for _, piece in groupby(sorted(events, key=step_of), key=step_of)]


def _ended(
    rollup: Rollup, window: int, layout: Layout, steps_ms: Sequence[int]
) -> list[tuple[int, HistoryRow]]:
    """What becomes history when the counter changes in `window`."""
    ended = []
    for step_ms in steps_ms:
        step = layout.step_of(rollup.changed_window, step_ms)
        until_step = layout.step_of(window, step_ms)
        if step == until_step:
            break  # then it is the same longer step, too
        last_window = layout.last_window_of_step(step, step_ms)
        state = msgspec.structs.replace(rollup, through_window=last_window, recent=None)
        ended.append((step_ms, HistoryRow(step, until_step, state)))
    return ended
