"""The explorer's steps are the code's: the real classes, on stores that write down what is called.

If this fails, the order of the steps in the code has changed. Change `steps.py` (and the model
behind it) with it, and see what the explorer says.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from counter.clock import ManualClock
from counter.events import Event
from counter.namespaces import EMPTY, Definition, Strategy, next_snapshot
from counter.settings import Platform
from counter.storage.memory import MemoryEventLog
from counter.storage.stepwise import StepwiseFoldCommit
from counter.windows import Layout
from counter_server.admission import Admission
from counter_server.commit import CommitLimits, GroupCommit
from counter_server.late import LateTokens
from counter_server.reads import Reads
from counter_server.strategies import EventPath
from counter_server.strategies.logged import Logged
from counter_server.tail import Tail
from rollup_worker.closer import Closer
from rollup_worker.rollup import FoldStores, Rollup
from tests.explorer import steps
from tests.explorer.faults import CORRECT
from tests.explorer.scope import FULL
from tests.explorer.steps import Program, Step
from tests.explorer.store import Record, Segments, Store
from tests.explorer.workers import IDLE, Workers
from tests.stores import Stores, memory, segment, shard_of
from tests.tampered import Tampered

PLATFORM = Platform(region="test", shards=1, log_retention_s=3_600)
COUNTER = "views"

_STEPS = {
    "event_log.append": Step.APPEND,
    "ledger.closed": Step.CHECK,
    "ledger.close": Step.CLOSE,
    "ledger.watermarks": Step.WATERMARK,
    "ledger.folds": Step.RECORDS,
    "event_log.refs": Step.LIST,
    "event_log.bodies": Step.BODIES,
    "rollup_store.read": Step.ROW,
    "ledger.propose": Step.PROPOSE,
    "rollup_store.write": Step.WRITE_ROW,
    "ledger.advance": Step.ADVANCE,
}
# What the promises do not rest on: a version never changes, and a cache may lose anything.
_OF_NO_WEIGHT = {"namespace_store.latest", "namespace_store.get", "count_cache.get"}


class Recorded:
    """A server and a worker on one store, and the steps that they take."""

    def __init__(self, stores: Stores, layout: Layout, clock: ManualClock) -> None:
        self.layout, self.clock = layout, clock
        self._begun: list[Step] = []
        self.intruder: Any = None  # runs before the first proposal
        ledger = self._wrap("ledger", stores.ledger)
        self.plain_log = MemoryEventLog(stores.ledger)
        # The log in memory reads the mark by itself, after its write: so it shows.
        inner = MemoryEventLog(ledger)
        inner._partitions = self.plain_log._partitions
        log = self._wrap("event_log", inner)
        rollups = self._wrap("rollup_store", stores.rollup_store)
        history = self._wrap("history_store", stores.history_store)
        snapshot = next_snapshot(
            EMPTY, [Definition(name="plays", strategy=Strategy.EVENTUAL)], applied_at_ns=0
        )
        self.snapshot, self.namespace = snapshot, snapshot.namespaces["plays"]
        self.stores = stores
        admission = Admission(PLATFORM, layout, clock)
        self.admission = admission
        self.reads = Reads(ledger, rollups, Tail(log, ledger, shards=1), layout)
        self.server = Logged(
            self.namespace,
            EventPath(
                admission=admission,
                # What the server learns about the mark on the way is not told to admission here:
                # the closed window of a late event is then met by the check, and not before.
                commit=GroupCommit(log, layout, CommitLimits(), lambda closed: None),
                late=LateTokens(log, ledger, layout, clock),
                reads=self.reads,
                layout=layout,
            ),
        )
        self.closer = Closer(ledger, layout, PLATFORM, clock)
        self.rollup = Rollup(
            FoldStores(
                event_log=log,
                ledger=ledger,
                rollup_store=rollups,
                history_store=history,
                fold_commit=StepwiseFoldCommit(ledger, history, rollups),
                shared_cache=self._wrap("count_cache", stores.count_cache),
                namespace_store=self._wrap("namespace_store", stores.namespace_store),
            ),
            layout,
        )

    async def open(self) -> None:
        assert await self.stores.namespace_store.put(self.snapshot)
        self.admission.observe(await self.stores.ledger.closed())

    def taken(self) -> Program:
        taken, self._begun = tuple(self._begun), []
        return taken

    def event(self, token: str) -> Event:
        return Event(COUNTER, self.clock.now_ns(), token, 1)

    async def put(self, event: Event) -> None:
        """Writes past the server, as another one does."""
        window = self.layout.window_of(event.time_ns)
        written = segment([event], window=window, namespace_id=self.namespace.id)
        await self.plain_log.append([written])

    async def fold(self) -> None:
        closed_through = await self.closer.close_due()
        await self.rollup.fold_shard(0, closed_through, events_max=1_000, rollups_per_batch=100)

    def _wrap(self, name: str, port: Any) -> Any:
        return Tampered(name, port, self._around)

    async def _around(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if name not in _OF_NO_WEIGHT:
            self._begun.append(_STEPS[name])
        if name == "ledger.propose" and self.intruder is not None:
            intruder, self.intruder = self.intruder, None
            await intruder()
        return await call(*args, **kwargs)


@pytest.fixture
async def recorded(clock: ManualClock) -> Recorded:
    async with memory(Path(), clock) as stores:
        layout = await stores.ledger.open_layout(PLATFORM.layout(clock.now_ns()))
        recorded = Recorded(stores, layout, clock)
        assert shard_of(recorded.namespace.id, COUNTER, layout.shards) == 0
        await recorded.open()
        return recorded


async def test_an_add(recorded: Recorded) -> None:
    assert await recorded.server.add([recorded.event("t")], wait_s=0) == [False]
    assert recorded.taken() == steps.ADD


async def test_the_mark_of_an_append_is_read_when_the_segment_is_there(recorded: Recorded) -> None:
    seen: list[int] = []
    ledger = recorded.stores.ledger

    async def around(name: str, call: Any, *args: Any) -> Any:
        seen.append(len(await log.refs(0, 0, 2**62)))
        return await call(*args)

    log = MemoryEventLog(Tampered("ledger", ledger, around))
    await log.append([segment([recorded.event("t")], window=5)])
    assert seen == [1]


async def test_a_late_look_up(recorded: Recorded) -> None:
    event = recorded.event("t")
    await recorded.put(event)
    recorded.clock.advance_ms(20_000)
    await recorded.fold()
    recorded.taken()
    assert await recorded.server.add([event], wait_s=0) == [True]
    # The server met the close after its append; then it looks the token up.
    assert recorded.taken() == steps.ADD + steps.LATE


async def test_a_fold_pass(recorded: Recorded) -> None:
    await recorded.put(recorded.event("t"))
    recorded.clock.advance_ms(20_000)
    await recorded.fold()
    # The closer looks at the mark before it moves it: the model has both in one step.
    assert (
        recorded.taken() == (Step.CHECK, *steps.FOLD) == (Step.CHECK, *modelled([Store(landed=1)]))
    )


async def test_a_fold_pass_that_finds_a_record(recorded: Recorded) -> None:
    await recorded.put(recorded.event("t"))
    recorded.clock.advance_ms(20_000)
    await recorded.fold()
    record = (await recorded.stores.ledger.folds(0, 0, 2**62))[-1]
    recorded.stores.ledger._watermarks = [record.from_window - 1]  # its worker died on the way
    recorded.stores.rollup_store._buckets.clear()
    recorded.taken()
    await recorded.fold()
    decided = Store(landed=1, closed_through=0, records=(Record(0, 0, 1),))
    assert recorded.taken() == (Step.CHECK, *without(modelled([decided]), Step.CLOSE))


async def test_a_fold_pass_whose_record_another_worker_made(recorded: Recorded) -> None:
    await recorded.put(recorded.event("t"))
    recorded.clock.advance_ms(20_000)
    closed_through = await recorded.closer.close_due()
    recorded.taken()

    async def decide_first() -> None:
        """Another worker, which is paused after its record, has one segment more."""
        [record] = await proposals(recorded, closed_through)
        await recorded.stores.ledger.propose(record)

    recorded.intruder = decide_first
    await recorded.rollup.fold_shard(0, closed_through, events_max=1_000, rollups_per_batch=100)
    before = Store(landed=1, closed_through=0)
    decided = before._replace(landed=3, records=(Record(0, 0, 3),))
    at = steps.FOLD.index(Step.PROPOSE) - 1  # the model's steps do not have the bodies
    model = modelled([before] * at + [decided])
    taken = recorded.taken()
    assert taken.count(Step.PROPOSE) == 2
    assert taken == without(model, Step.CLOSE)


async def proposals(recorded: Recorded, closed_through: int) -> list[Any]:
    await recorded.put(Event(COUNTER, recorded.clock.now_ns() - 20_000_000_000, "late", 1))
    made: list[Any] = []

    async def around(name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        made.append(args[0])
        raise _Paused

    stores = recorded.stores
    paused = Rollup(
        FoldStores(
            event_log=recorded.plain_log,
            ledger=stores.ledger,
            rollup_store=stores.rollup_store,
            history_store=stores.history_store,
            fold_commit=StepwiseFoldCommit(
                Tampered("ledger", stores.ledger, around), stores.history_store, stores.rollup_store
            ),
            shared_cache=stores.count_cache,
            namespace_store=stores.namespace_store,
        ),
        recorded.layout,
    )
    with pytest.raises(_Paused):
        await paused.fold_shard(0, closed_through, events_max=1_000, rollups_per_batch=100)
    return made


class _Paused(Exception):
    pass


async def test_an_eventual_read(recorded: Recorded) -> None:
    await recorded.reads.rolled_up(recorded.namespace, [COUNTER])
    assert recorded.taken() == steps.EVENTUAL_READ


async def test_an_accurate_read(recorded: Recorded) -> None:
    await recorded.put(recorded.event("t"))
    [count] = await recorded.reads.accurate(recorded.namespace, [COUNTER])
    assert count.count == 1
    assert recorded.taken() == steps.ACCURATE_READ


def modelled(stores: Sequence[Store]) -> Program:
    """The steps of the model's worker in one pass over the first window, on a store that is what
    `stores` say before each step, and from the last of them on what the steps make of it."""
    workers, state, store = Workers(Segments(FULL), CORRECT), IDLE, stores[0]
    taken: list[Step] = []
    while True:
        if len(taken) < len(stores):
            store = stores[len(taken)]
        step = workers.step_of(state)
        following = [each for each in workers.next(store, state) if "crashes" not in each[0]]
        taken.append(step)
        _, store, state = following[0]  # of all that it may close and propose, the least
        if state == IDLE:
            break
    # Between the listing or the record and the row stand the bodies, whenever they are read.
    return tuple(
        each for step in taken for each in ((Step.BODIES, step) if step is Step.ROW else (step,))
    )


def without(program: Program, step: Step) -> Program:
    return tuple(each for each in program if each is not step)
