"""GetCountAt and GetCountHistory against a plain model: for any events, clears and copies, folded
at any times and cut anywhere, with history that is off at times and expires at will, every answer
is the model's state at its complete_through, and what is not known is what expired or was off."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from counter.clock import NS_PER_MS, ManualClock
from counter.errors import HistoryTooOld
from counter.events import Event
from counter.history import Adjustment
from counter.namespaces import (
    EMPTY,
    Cardinality,
    Definition,
    HistoryStep,
    Namespace,
    Strategy,
    next_snapshot,
)
from counter.windows import Layout
from counter_server.count_at import CountsAt
from counter_server.count_history import CountHistories
from counter_server.reads import Reads
from counter_server.strategies.strategy import Source
from counter_server.tail import Tail
from rollup_worker.rollup import Rollup
from tests.expiry import forget_until
from tests.stores import Stores, fold_stores, memory, segment

SPAN_MS = 24  # events are of these milliseconds
FOREVER_MS = 10**9
NOW_NS = 2 * SPAN_MS * NS_PER_MS
COUNTERS = ("a", "b")
STEPS_MS = [(2,), (2, 4), (4, 12), (2, 6, 12)]

TIMES = st.integers(0, SPAN_MS * NS_PER_MS - 1) | st.sampled_from(
    [ms * NS_PER_MS + offset for ms in range(SPAN_MS) for offset in (0, NS_PER_MS - 1)]
)
EVENTS = st.builds(
    Event,
    counter=st.sampled_from(["a", "a", "a", "b"]),
    time_ns=TIMES,
    token=st.sampled_from(["s", "t"]),
    delta=st.none() | st.integers(-3, 9).filter(bool),
    note=st.none(),
) | st.builds(
    Event,
    counter=st.sampled_from(["a", "a", "a", "b"]),
    time_ns=TIMES,
    token=st.just("n"),
    delta=st.integers(1, 9),
    note=st.just(("ada", "an audit found it")),
)


class Folding(NamedTuple):
    """What a worker does next, and what of the history expires then."""

    windows: int  # how many more it folds
    events_max: int  # in a pass
    has_history: bool
    expired_of_16: tuple[int, int, int]  # by step, the part of the folded time


FOLDINGS = st.builds(
    Folding,
    windows=st.integers(1, 8),
    events_max=st.integers(1, 5),
    has_history=st.sampled_from([True, True, True, False]),
    expired_of_16=st.tuples(*[st.sampled_from([0, 0, 0, 8, 12, 16])] * 3),
)


class State(NamedTuple):
    counted: int = 0
    epoch: int = 0
    cleared_at_ns: int = 0
    total: int = 0


class Model:
    """The events that count, what is folded of them, and which rows of the history there are."""

    def __init__(self, layout: Layout, steps_ms: Sequence[int], events: Sequence[Event]) -> None:
        self.layout = layout
        self.steps_ms = steps_ms
        # Copies agree, so which one counts does not matter.
        self.events = sorted(set(events), key=lambda each: (each.time_ns, each.token))
        self.folded_through = -1
        self.without_history: set[int] = set()  # windows that were folded without it
        # By step: until which step rows were dropped, and what was folded by then.
        self.expired: dict[int, list[tuple[int, int]]] = {step_ms: [] for step_ms in steps_ms}
        self._folded: dict[tuple[str, int], list[Event]] = {}

    def of(self, counter: str) -> list[Event]:
        """Those that are folded."""
        if (counter, self.folded_through) not in self._folded:
            through_ns = self.layout.complete_through_ns(self.folded_through)
            self._folded[counter, self.folded_through] = [
                each
                for each in self.events
                if each.counter == counter and each.time_ns <= through_ns
            ]
        return self._folded[counter, self.folded_through]

    def windows(self, counter: str) -> list[int]:
        return [self.layout.window_of(each.time_ns) for each in self.of(counter)]

    def at(self, counter: str, time_ns: int) -> State:
        state = State()
        for event in self.of(counter):
            if event.time_ns > time_ns:
                break
            if event.delta is None:
                state = State(0, state.epoch + 1, event.time_ns, state.total)
            else:
                state = state._replace(
                    counted=state.counted + event.delta, total=state.total + event.delta
                )
        return state

    def knows(self, counter: str, step_ms: int, step: int) -> bool:
        """Whether the state at the end of the step can be told."""
        last_window = self.layout.last_window_of_step(step, step_ms)
        windows = self.windows(counter)
        later = [each for each in windows if each > last_window]
        if not later or len(later) == len(windows):
            return True  # not changed since, or not begun by then
        # The fold that changed it next had to write down what had been.
        until_step = self.layout.step_of(later[0], step_ms)
        return later[0] not in self.without_history and not any(
            until_step <= expired and later[0] <= folded
            for expired, folded in self.expired[step_ms]
        )

    def end_ns(self, step: int, step_ms: int) -> int:
        return self.layout.complete_through_ns(self.layout.last_window_of_step(step, step_ms))

    def exact_at(self, counter: str, time_ns: int) -> tuple[int, int | None] | None:
        """The complete_through and the resolution that an answer should have; None: not known."""
        layout = self.layout
        through_ns = layout.complete_through_ns(self.folded_through)
        windows = self.windows(counter)
        if not windows or layout.complete_through_ns(windows[-1]) <= time_ns:
            return min(time_ns, through_ns), None
        if time_ns < layout.start_ns(windows[0]):
            return time_ns, None
        for step_ms in self.steps_ms:
            step = time_ns // (step_ms * NS_PER_MS)
            while (end_ns := self.end_ns(step, step_ms)) > time_ns:
                step -= 1
            if self.knows(counter, step_ms, step):
                return end_ns, step_ms
        return None


class Past:
    """The stores, a worker, and the two parts of a server that are put to the test."""

    def __init__(self, stores: Stores, layout: Layout, model: Model) -> None:
        self.stores = stores
        self.layout = layout
        self.model = model
        self.snapshot = EMPTY
        tail = Tail(stores.event_log, stores.ledger, shards=1)
        reads = Reads(stores.ledger, stores.rollup_store, tail, layout)
        self.counts_at = CountsAt(reads, stores.history_store, layout)
        self.count_histories = CountHistories(reads, stores.history_store, layout)
        self.rollup = Rollup(fold_stores(stores), layout)

    async def define(self, *, has_history: bool) -> Namespace:
        steps = [
            HistoryStep(step_ms=step_ms, retention_ms=FOREVER_MS) for step_ms in self.model.steps_ms
        ]
        definition = Definition(
            name="plays",
            strategy=Strategy.EVENTUAL,
            cardinality=Cardinality.LOW,
            history=tuple(steps) if has_history else (),
        )
        snapshot = next_snapshot(self.snapshot, [definition], applied_at_ns=0)
        if snapshot is not self.snapshot:
            assert await self.stores.namespace_store.put(snapshot)
        self.snapshot = snapshot
        return snapshot.namespaces["plays"]

    async def write(self, events: Sequence[Event], ids: Sequence[bytes]) -> None:
        """Each in a segment of its own."""
        namespace = await self.define(has_history=True)
        await self.stores.event_log.append(
            [
                segment(
                    [each],
                    window=self.layout.window_of(each.time_ns),
                    namespace_id=namespace.id,
                    segment_id=segment_id,
                )
                for each, segment_id in zip(events, ids, strict=True)
            ]
        )

    async def fold(self, folding: Folding) -> None:
        model, stores = self.model, self.stores
        closed_through = model.folded_through + folding.windows
        await self.define(has_history=folding.has_history)
        await stores.ledger.close(closed_through)
        while (
            await self.rollup.fold_shard(
                0, closed_through, events_max=folding.events_max, rollups_per_batch=1
            )
        ).has_more:
            pass
        [watermark] = await stores.ledger.watermarks()
        if not folding.has_history:
            model.without_history |= set(range(model.folded_through + 1, watermark + 1))
        model.folded_through = watermark
        namespace = await self.define(has_history=True)
        for step_ms, part in zip(model.steps_ms, folding.expired_of_16, strict=False):
            until_step = self.layout.step_of(watermark, step_ms) * part // 16
            if part:
                forget_until(stores.history_store, namespace.id, step_ms, until_step)
                model.expired[step_ms].append((until_step, watermark))

    async def check_at(self) -> None:
        namespace = await self.define(has_history=True)
        for counter in COUNTERS:
            for ms in range(SPAN_MS + 2):
                for time_ns in (ms * NS_PER_MS, (ms + 1) * NS_PER_MS - 1):
                    wanted = self.model.exact_at(counter, time_ns)
                    try:
                        found = await self.counts_at.at(namespace, counter, time_ns)
                    except HistoryTooOld:
                        assert wanted is None, (counter, time_ns)
                        continue
                    value = found.value
                    assert (value.complete_through_ns, found.resolution_ms) == wanted
                    assert value.complete_through_ns is not None
                    state = self.model.at(counter, value.complete_through_ns)
                    assert (value.count, value.epoch, value.cleared_at_ns) == state[:3]
                    of_history = found.resolution_ms is not None
                    assert value.source is (Source.HISTORY if of_history else Source.ROLLUP)

    async def check_history(self, start_ns: int, end_ns: int, step_ms: int) -> None:
        namespace = await self.define(has_history=True)
        layout, model = self.layout, self.model
        for counter in COUNTERS:
            found = await self.count_histories.read(
                namespace, counter, start_ns=start_ns, end_ns=end_ns, step_ms=step_ms, now_ns=NOW_NS
            )
            through_ns = layout.complete_through_ns(model.folded_through)
            assert (found.step_ms, found.complete_through_ns) == (step_ms, through_ns)
            assert found.resolution_ms in model.steps_ms
            assert step_ms % found.resolution_ms == 0
            step_ns = step_ms * NS_PER_MS
            steps = range(start_ns // step_ns, end_ns // step_ns + 1)
            assert [each.start_ns for each in found.points] == [each * step_ns for each in steps]
            for step, point in zip(steps, found.points, strict=True):
                ends = []
                for end in (step - 1, step):
                    kept_step = (end + 1) * (step_ms // found.resolution_ms) - 1
                    known = model.knows(counter, found.resolution_ms, kept_step)
                    up_to_ns = min(model.end_ns(end, step_ms), through_ns)
                    ends.append((known, model.at(counter, up_to_ns)))
                (before_known, before), (after_known, after) = ends
                assert point.known == (before_known and after_known)
                if point.known:
                    assert point.delta == after.total - before.total
                    assert (point.count, point.epoch) == (after.counted, after.epoch)
            assert found.adjustments == [
                Adjustment(namespace.id, counter, each.time_ns, each.token, each.delta, *each.note)
                for each in model.of(counter)
                if each.note is not None
                and each.delta is not None
                and steps.start * step_ns <= each.time_ns < steps.stop * step_ns
            ]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(EVENTS, max_size=30, unique_by=lambda each: (each.counter, each.time_ns, each.token)),
    st.data(),
    st.sampled_from([1, 1, 3]),
    st.sampled_from(STEPS_MS),
    st.lists(FOLDINGS, min_size=1, max_size=5),
)
def test_every_answer_about_the_past_is_what_the_model_says(
    events: list[Event],
    data: st.DataObject,
    window_ms: int,
    steps_ms: tuple[int, ...],
    foldings: list[Folding],
) -> None:
    copies = data.draw(st.lists(st.sampled_from(events), max_size=5)) if events else []
    number = len(events) + len(copies)
    ids = data.draw(st.permutations([bytes([at]) * 16 for at in range(number)]))
    asked = data.draw(
        st.lists(st.tuples(TIMES, TIMES, st.sampled_from(steps_ms), st.integers(1, 3)), max_size=3)
    )

    async def run() -> None:
        clock = ManualClock(NOW_NS)
        async with memory(Path(), clock) as stores:
            wanted = Layout(from_window=0, window_ms=window_ms, shards=1)
            layout = await stores.ledger.open_layout(wanted)
            past = Past(stores, layout, Model(layout, steps_ms, events))
            await past.write([*events, *copies], ids)
            await past.check_at()
            for folding in foldings:
                await past.fold(folding)
                await past.check_at()
                for one_ns, other_ns, step_ms, times in asked:
                    start_ns, end_ns = sorted([one_ns, other_ns])
                    await past.check_history(start_ns, end_ns, step_ms * times)

    asyncio.run(run())
