"""GetCountAt: the count as of a past time, as near before it as is known.

`complete_through` is the time that the answer is exact for. It is the asked time itself where the
rollup alone can tell: the counter has not changed since, or had not begun. (A row whose last event
is in a window that is over at that time holds all up to it, and nothing after it; a counter without
a row has no event up to the watermark.) Else it is the end of the last step before the asked time
of which the history knows: `counter_server.states` has the proof. A finer step ends nearer to the
asked time than a coarser one, because steps are multiples of each other, so the finest that knows
is the best there is.
"""

from dataclasses import dataclass

from counter.errors import HistoryOff, HistoryTooOld
from counter.namespaces import Namespace
from counter.rollups import ZERO, Rollup
from counter.storage.ports import HistoryKey, HistoryStore
from counter.windows import Layout
from counter_server.reads import Reads
from counter_server.states import check_rolled_up, last_step_through, state_at
from counter_server.strategies.strategy import Source, Value


@dataclass(frozen=True, kw_only=True, slots=True)
class CountAt:
    value: Value
    resolution_ms: int | None  # the step that answered; None: exact to the window


class CountsAt:
    def __init__(self, reads: Reads, history: HistoryStore, layout: Layout) -> None:
        self._reads = reads
        self._history = history
        self._layout = layout

    async def at(self, namespace: Namespace, counter: str, time_ns: int) -> CountAt:
        check_rolled_up(namespace, "keeps no history")
        layout = self._layout
        [(rollup, through, _)] = await self._reads.rows(namespace, [counter])
        known_ns = min(time_ns, layout.complete_through_ns(through))
        if layout.complete_through_ns(rollup.changed_window) <= time_ns:
            return _answer(rollup, known_ns)
        if time_ns < layout.start_ns(rollup.first_window):
            return _answer(ZERO, known_ns)
        last_window = layout.window_of(time_ns + 1) - 1  # the last that is over by then
        for kept in namespace.history:
            step_ms = kept.step_ms
            step = last_step_through(layout, last_window, step_ms)
            key = HistoryKey(namespace.id, counter, step_ms)
            [row] = await self._history.at([key], step)
            state = state_at(layout, step_ms, step, rollup, row)
            if state is not None:
                end_ns = layout.complete_through_ns(layout.last_window_of_step(step, step_ms))
                return _answer(state, end_ns, step_ms)
        if not namespace.history:
            raise HistoryOff(
                f"namespace {namespace.name} keeps no history, and the counter has changed since: "
                "ask for a later time, or give the namespace a history"
            )
        raise HistoryTooOld(
            f"what the counter was then is not known: the history of namespace {namespace.name} "
            "does not reach back so far. Ask for a later time"
        )


def _answer(state: Rollup, complete_through_ns: int, resolution_ms: int | None = None) -> CountAt:
    value = Value(
        state.count,
        complete_through_ns,
        state.epoch,
        state.cleared_at_ns,
        Source.ROLLUP if resolution_ms is None else Source.HISTORY,
    )
    return CountAt(value=value, resolution_ms=resolution_ms)
