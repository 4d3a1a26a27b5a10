"""GetCountHistory: what was added in each step of a range of time, and the running count.

The states at the ends of the steps come from the chain of the counter's states, as
`counter_server.states` proves; what was added in a step is the difference of two totals, which
clears leave alone. Where the chain has a gap the points say that they are not known. The newest
state is the rollup row, so every point counts the events up to the end of its step, or up to
complete_through where that comes before.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from counter.clock import NS_PER_MS
from counter.errors import HistoryOff, InvalidRequest
from counter.history import Adjustment, HistoryRow
from counter.namespaces import HistoryStep, Namespace
from counter.rollups import Rollup
from counter.storage.ports import HistoryKey, HistoryStore
from counter.windows import Layout
from counter_server.reads import Reads
from counter_server.states import check_rolled_up, state_at

POINTS_MAX = 10_000
# Kept steps in the range: as many rows may have to be read. Almost two years of minutes.
STEPS_READ_MAX = 1_000_000
ADJUSTMENTS_MAX = 1_000  # the oldest of the range
_ROWS_PER_PAGE = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    start_ns: int
    delta: int = 0
    count: int = 0
    epoch: int = 0
    known: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CountHistory:
    points: Sequence[Point]
    step_ms: int
    resolution_ms: int  # of the kept step that it was made from
    complete_through_ns: int
    adjustments: Sequence[Adjustment]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The steps from the one of `start_ns` to the one of `end_ns`, made of kept steps."""

    start_ns: int
    end_ns: int
    step_ms: int
    resolution_ms: int

    @property
    def steps(self) -> range:
        step_ns = self.step_ms * NS_PER_MS
        return range(self.start_ns // step_ns, self.end_ns // step_ns + 1)

    @property
    def last_kept_steps(self) -> list[int]:
        """The last kept step of each step, and before them the one before the first."""
        per_step = self.step_ms // self.resolution_ms
        steps = self.steps
        return [(step + 1) * per_step - 1 for step in range(steps.start - 1, steps.stop)]


class CountHistories:
    def __init__(self, reads: Reads, history: HistoryStore, layout: Layout) -> None:
        self._reads = reads
        self._history = history
        self._layout = layout

    async def read(
        self,
        namespace: Namespace,
        counter: str,
        *,
        start_ns: int,
        end_ns: int,
        step_ms: int | None,
        now_ns: int,
    ) -> CountHistory:
        """`step_ms` None: the finest that is kept for so long and makes no more than POINTS_MAX."""
        asked = range_of(
            namespace, start_ns=start_ns, end_ns=end_ns, step_ms=step_ms, now_ns=now_ns
        )
        [(rollup, through, _)] = await self._reads.rows(namespace, [counter])
        complete_through_ns = self._layout.complete_through_ns(through)
        states = await self._states(namespace.id, counter, rollup, asked)
        step_ns = asked.step_ms * NS_PER_MS
        steps = asked.steps
        points = [
            _point(step * step_ns, before, after)
            for step, before, after in zip(steps, states, states[1:], strict=False)
        ]
        adjustments = await self._history.adjustments(
            namespace.id,
            counter,
            steps.start * step_ns,
            min(steps.stop * step_ns - 1, complete_through_ns),
            limit=ADJUSTMENTS_MAX,
        )
        return CountHistory(
            points=points,
            step_ms=asked.step_ms,
            resolution_ms=asked.resolution_ms,
            complete_through_ns=complete_through_ns,
            adjustments=adjustments,
        )

    async def _states(
        self, namespace_id: int, counter: str, rollup: Rollup, asked: Range
    ) -> list[Rollup | None]:
        """At the end of each step, and before them at the beginning of the first."""
        layout, step_ms = self._layout, asked.resolution_ms
        ends = asked.last_kept_steps
        key = HistoryKey(namespace_id, counter, step_ms)
        # Rows of the rollup's own step and later ones were written after it was read.
        to_step = min(ends[-1], layout.step_of(rollup.changed_window, step_ms) - 1)
        states: list[Rollup | None] = []
        held: HistoryRow | None = None
        async for row in self._rows(key, ends[0], to_step):
            while ends[len(states)] < row.step:
                states.append(state_at(layout, step_ms, ends[len(states)], rollup, held))
            held = row
        while len(states) < len(ends):
            states.append(state_at(layout, step_ms, ends[len(states)], rollup, held))
        return states

    async def _rows(
        self, key: HistoryKey, from_step: int, to_step: int
    ) -> AsyncIterator[HistoryRow]:
        """Those that hold at the end of these steps, in order."""
        if to_step < from_step:
            return
        [held] = await self._history.at([key], from_step)
        if held is not None:
            yield held
        while from_step < to_step:
            rows = await self._history.between(key, from_step + 1, to_step, limit=_ROWS_PER_PAGE)
            for row in rows:
                yield row
            if len(rows) < _ROWS_PER_PAGE:
                return
            from_step = rows[-1].step
            await asyncio.sleep(0)


def range_of(
    namespace: Namespace, *, start_ns: int, end_ns: int, step_ms: int | None, now_ns: int
) -> Range:
    """The steps that answer a request; raises what is wrong with it."""
    check_rolled_up(namespace, "keeps no history")
    if not namespace.history:
        raise HistoryOff(
            f"namespace {namespace.name} keeps no history: give it one in its file, and it is "
            "there from then on"
        )
    if start_ns > end_ns:
        raise InvalidRequest("TIME_MALFORMED", "start", "start is later than end")

    def of(step_ms: int, resolution_ms: int) -> Range:
        return Range(start_ns=start_ns, end_ns=end_ns, step_ms=step_ms, resolution_ms=resolution_ms)

    covering = [each for each in namespace.history if _covers(each, start_ns, now_ns)]
    if step_ms is None:
        fitting = [each for each in covering if len(of(each.step_ms, 1).steps) <= POINTS_MAX]
        picked = (fitting or [namespace.history[-1]])[0].step_ms
        asked = of(picked, picked)
    else:
        dividing = [each for each in namespace.history if step_ms % each.step_ms == 0]
        if not dividing:
            kept = ", ".join(f"{each.step_ms / 1_000:g} s" for each in namespace.history)
            raise InvalidRequest(
                "STEP_NOT_KEPT",
                "step",
                f"step must be a multiple of a step that namespace {namespace.name} keeps: {kept}",
            )
        # The coarsest has the fewest rows. Without one that reaches back so far, it reaches most.
        resolution = ([each for each in dividing if each in covering] or dividing)[-1]
        asked = of(step_ms, resolution.step_ms)
    if len(asked.steps) > POINTS_MAX:
        raise InvalidRequest(
            "RANGE_TOO_LARGE",
            "start",
            f"from start to end there are {len(asked.steps)} steps, at most {POINTS_MAX} are "
            "answered: ask for a shorter range or a longer step",
        )
    steps_read = len(asked.steps) * (asked.step_ms // asked.resolution_ms)
    if steps_read > STEPS_READ_MAX:
        raise InvalidRequest(
            "RANGE_TOO_LARGE",
            "start",
            f"from start to end there are {steps_read} steps of {asked.resolution_ms / 1_000:g} s "
            f"to read, at most {STEPS_READ_MAX} are: ask for a shorter range, or for a multiple "
            "of a longer step that is kept",
        )
    return asked


def _covers(kept: HistoryStep, start_ns: int, now_ns: int) -> bool:
    return now_ns - start_ns <= kept.retention_ms * NS_PER_MS


def _point(start_ns: int, before: Rollup | None, after: Rollup | None) -> Point:
    if before is None or after is None:
        return Point(start_ns=start_ns)
    return Point(
        start_ns=start_ns,
        delta=after.total - before.total,
        count=after.count,
        epoch=after.epoch,
        known=True,
    )
