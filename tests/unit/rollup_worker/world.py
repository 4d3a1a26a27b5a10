"""A small platform around the worker: a clock that is told, stores, and what was acknowledged."""

import asyncio
import random
from collections import defaultdict
from typing import Any

from counter.clock import NS_PER_MS, NS_PER_S, ManualClock
from counter.events import Event
from counter.fold import FoldCounts, gather
from counter.history import HistoryRow, fold_with_history
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import (
    EMPTY,
    Definition,
    HistoryStep,
    Namespace,
    Snapshot,
    Strategy,
    next_snapshot,
)
from counter.rollups import ZERO, FoldRecord, RollupKey
from counter.segments import decode
from counter.settings import Platform
from counter.storage.ports import FOREVER, HistoryKey
from counter.storage.stepwise import StepwiseFoldCommit
from counter.windows import Layout
from rollup_worker.closer import Closer
from rollup_worker.ownership import Ownership
from rollup_worker.retention import Retention
from rollup_worker.rollup import FoldStores, PassResult, Rollup
from rollup_worker.worker import Worker
from tests.stores import Stores, segment, shard_of
from tests.tampered import Tampered, Wrap

PLATFORM = Platform(region="test", shards=2, log_retention_s=3_600)
# Short steps, so that tests of some seconds have a history.
HISTORY = (
    HistoryStep(step_ms=2_000, retention_ms=86_400_000),
    HistoryStep(step_ms=10_000, retention_ms=2 * 86_400_000),
)
COUNTERS = tuple(f"counter {number}" for number in range(8))


class World:
    def __init__(self, stores: Stores, clock: ManualClock, layout: Layout) -> None:
        self.stores = stores
        self.clock = clock
        self.layout = layout
        self.snapshot: Snapshot = EMPTY
        # By namespace and counter: the identities of acknowledged events, and their deltas.
        self.acknowledged: defaultdict[tuple[int, str], dict[tuple[int, str], int | None]]
        self.acknowledged = defaultdict(dict)
        self._tokens = 0

    @classmethod
    async def create(cls, stores: Stores, clock: ManualClock) -> "World":
        layout = await stores.ledger.open_layout(PLATFORM.layout(clock.now_ns()))
        world = cls(stores, clock, layout)
        await world.apply("plays")
        return world

    async def apply(self, *names: str) -> None:
        wanted = [
            Definition(
                name=name,
                strategy=Strategy.ROLLING_WINDOW,
                rolling_window_ms=4_000,
                history=HISTORY,
            )
            for name in names
        ]
        await self._put(next_snapshot(self.snapshot, wanted, applied_at_ns=self.clock.now_ns()))

    async def roll_back(self, version: int) -> None:
        """The namespaces of an earlier version once more, with the ids that they had."""
        earlier = await self.stores.namespace_store.get(version)
        assert earlier is not None
        await self._put(
            next_snapshot(
                self.snapshot,
                earlier.definitions,
                applied_at_ns=self.clock.now_ns(),
                ids={name: each.id for name, each in earlier.namespaces.items()},
            )
        )

    async def _put(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        assert await self.stores.namespace_store.put(snapshot)

    def id_of(self, namespace: str) -> int:
        return self.snapshot.namespaces[namespace].id

    async def write(
        self,
        counter: str,
        delta: int | None,
        *,
        namespace: str = "plays",
        namespace_id: int | None = None,
        time_ns: int | None = None,
        token: str | None = None,
    ) -> Event:
        """Writes one event in a segment of its own, as a server does, and notes if it counts.

        A server that has an earlier version of the namespaces may know another id for a name.
        """
        self._tokens += 1
        event = Event(
            counter,
            self.clock.now_ns() if time_ns is None else time_ns,
            token or f"t{self._tokens}",
            delta,
        )
        if namespace_id is None:
            namespace_id = self.id_of(namespace)
        window = self.layout.window_of(event.time_ns)
        shard = shard_of(namespace_id, counter, self.layout.shards)
        written = segment([event], window=window, shard=shard, namespace_id=namespace_id)
        closed = await self.stores.event_log.append([written])
        if closed.through < window:
            of_counter = self.acknowledged[namespace_id, counter]
            of_counter.setdefault((event.time_ns, event.token), delta)
        return event

    def worker(
        self,
        wrap: Wrap | None = None,
        clock: ManualClock | None = None,
        *,
        member: str = "the worker",
        passes_in_parallel: int = 4,
    ) -> "WorkerParts":
        return WorkerParts(
            self,
            wrap or (lambda name, port: port),
            clock or self.clock,
            member=member,
            passes_in_parallel=passes_in_parallel,
        )

    async def fold_all(self) -> None:
        """Lets every window that has an event close, and folds to the end with a fresh worker."""
        latest_ns = max(
            (time_ns for events in self.acknowledged.values() for time_ns, _ in events),
            default=self.clock.now_ns(),
        )
        grace_ms = PLATFORM.close_grace_ns // NS_PER_MS + 2 * PLATFORM.window_ms
        late_ms = max(0, (latest_ns - self.clock.now_ns()) // NS_PER_MS)
        self.clock.advance_ms(late_ms + grace_ms)
        parts = self.worker()
        await parts.worker.round()
        assert parts.worker.problem() is None

    # What the stores say, and what they should.

    def key(self, namespace_id: int, counter: str) -> RollupKey:
        namespace = self.snapshot.by_id[namespace_id]
        hashed = counter_hash(namespace_prefix(namespace_id), counter)
        return RollupKey(namespace_id, hashed % ROLLUP_BUCKETS[namespace.cardinality], counter)

    async def rollups(self) -> dict[tuple[int, str], tuple[int, int, int]]:
        """Count, epoch and cleared_at of every counter with an acknowledged event."""
        keys = list(self.acknowledged)
        rows = await self.stores.rollup_store.read([self.key(*key) for key in keys])
        found = [row or ZERO for row in rows]
        return {
            key: (row.count, row.epoch, row.cleared_at_ns)
            for key, row in zip(keys, found, strict=True)
        }

    def expected(self) -> dict[tuple[int, str], tuple[int, int, int]]:
        states = {}
        for key, events in self.acknowledged.items():
            count = epoch = cleared_at_ns = 0
            for (time_ns, _), delta in sorted(events.items(), key=lambda each: each[0]):
                if delta is None:
                    count, epoch, cleared_at_ns = 0, epoch + 1, time_ns
                else:
                    count += delta
            states[key] = (count, epoch, cleared_at_ns)
        return states

    async def records(self, shard: int) -> list[FoldRecord]:
        return await self.stores.ledger.folds(shard, 0, FOREVER)

    async def check(self) -> None:
        """Rollups are what was acknowledged (I1), and a fold of the records from scratch (I3)."""
        assert await self.rollups() == self.expected()
        watermarks = await self.stores.ledger.watermarks()
        closed = await self.stores.ledger.closed()
        for shard in range(self.layout.shards):
            records = await self.records(shard)
            starts = [each.from_window for each in records]
            ends = [each.to_window for each in records]
            assert starts == [self.layout.from_window, *(end + 1 for end in ends[:-1])]
            assert watermarks[shard] == ends[-1] <= closed.through
            await self._check_from_scratch(records)

    async def _check_from_scratch(self, records: list[FoldRecord]) -> None:
        """All events of a chain at once, against rollups that were folded record by record."""
        events: defaultdict[int, defaultdict[str, list[Event]]]
        events = defaultdict(lambda: defaultdict(list))
        for record in records:
            bodies = await self.stores.event_log.bodies(record.segments)
            for ref, body in zip(record.segments, bodies, strict=True):
                assert body is not None
                gather(events[ref.namespace_id], [(ref.segment_id, decode(body))])
        for namespace_id, by_counter in events.items():
            for counter, of_counter in by_counter.items():
                key = self.key(namespace_id, counter)
                [row] = await self.stores.rollup_store.read([key])
                assert row is not None
                namespace = self.snapshot.by_id[namespace_id]
                scratch, past = fold_with_history(
                    ZERO,
                    of_counter,
                    row.through_window,
                    FoldCounts(),
                    layout=self.layout,
                    steps_ms=[each.step_ms for each in namespace.history],
                    recent_windows=namespace.recent_windows(self.layout.window_ms),
                )
                assert row == scratch, key
                assert await self._history(namespace, counter) == sorted(past, key=_in_order)

    async def _history(self, namespace: Namespace, counter: str) -> list[tuple[int, HistoryRow]]:
        found = []
        for each in namespace.history:
            key = HistoryKey(namespace.id, counter, each.step_ms)
            rows = await self.stores.history_store.between(key, 0, FOREVER, limit=10_000)
            found += [(each.step_ms, row) for row in rows]
        return found


def _in_order(past: tuple[int, HistoryRow]) -> tuple[int, int]:
    step_ms, row = past
    return step_ms, row.step


class WorkerParts:
    """A worker process: its parts, on ports that `wrap` may tamper with."""

    def __init__(
        self,
        world: World,
        wrap: Wrap,
        clock: ManualClock,
        *,
        member: str,
        passes_in_parallel: int,
    ) -> None:
        stores = world.stores
        ledger = wrap("ledger", stores.ledger)
        event_log = wrap("event_log", stores.event_log)
        rollup_store = wrap("rollup_store", stores.rollup_store)
        history_store = wrap("history_store", stores.history_store)
        fold_commit = stores.fold_commit
        if isinstance(fold_commit, StepwiseFoldCommit):
            fold_commit = StepwiseFoldCommit(ledger, history_store, rollup_store)
        self.closer = Closer(ledger, world.layout, PLATFORM, clock)
        self.rollup = Rollup(
            FoldStores(
                event_log=event_log,
                ledger=ledger,
                rollup_store=rollup_store,
                history_store=history_store,
                fold_commit=wrap("fold_commit", fold_commit),
                shared_cache=wrap("count_cache", stores.count_cache),
                namespace_store=wrap("namespace_store", stores.namespace_store),
            ),
            world.layout,
        )
        self.retention = Retention(event_log, ledger, history_store, world.layout, PLATFORM, clock)
        membership = wrap("membership", stores.membership)
        self.ownership = Ownership(membership, member, shards=world.layout.shards)
        self.worker = Worker(
            self.closer,
            self.rollup,
            self.retention,
            self.ownership,
            ledger,
            world.layout,
            passes_in_parallel=passes_in_parallel,
            chance=random.Random(0),
            monotonic_s=lambda: clock.now_ns() / NS_PER_S,
        )

    async def pass_over_all(self) -> int:
        """One round without the worker's own care for errors; answers with its passes."""
        closed_through = await self.closer.close_due()
        passes = 0
        for shard in range(len(self.rollup.progress)):
            passes += 1
            while (await self.pass_over(shard, closed_through)).has_more:
                passes += 1
        return passes

    async def pass_over(
        self, shard: int, closed_through: int, *, events_max: int = 20_000
    ) -> PassResult:
        return await self.rollup.fold_shard(
            shard, closed_through, events_max=events_max, rollups_per_batch=1_000
        )


class Crash(Exception):
    """The process ends here."""


class CrashAt:
    """Crashes at the n-th point; before and after each call of a port is one."""

    def __init__(self, point: int) -> None:
        self._left = point
        self.crashed_at: str | None = None

    def wrap(self, name: str, port: Any) -> Any:
        return Tampered(name, port, self._around)

    async def _around(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        self._point(f"before {name}")
        if name in ("rollup_store.write", "history_store.write"):
            if self._left == 0:
                rows, *_ = args  # a store without transactions may also stop in the middle
                await call(rows[: len(rows) // 2])
            self._point(f"in the middle of {name}")
        result = await call(*args, **kwargs)
        self._point(f"after {name}")
        return result

    def _point(self, name: str) -> None:
        self._left -= 1
        if self._left < 0 and self.crashed_at is None:
            self.crashed_at = name
            raise Crash(name)


def yielding(seed: int) -> Wrap:
    """Lets other work of the loop in before and after each call, as a seed says."""
    chance = random.Random(seed)

    async def around(name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(chance.choice((0, 0, 1, 3, 20))):
            await asyncio.sleep(0)
        result = await call(*args, **kwargs)
        for _ in range(chance.choice((0, 0, 1, 3, 20))):
            await asyncio.sleep(0)
        return result

    return lambda name, port: Tampered(name, port, around)
