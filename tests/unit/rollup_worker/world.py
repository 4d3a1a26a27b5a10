"""A small platform around the worker: a clock that is told, stores, and what was acknowledged."""

import asyncio
import random
from collections import defaultdict
from typing import Any

from counter.clock import NS_PER_MS, ManualClock
from counter.events import Event
from counter.fold import FoldCounts, fold, gather
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import EMPTY, Definition, Snapshot, Strategy, next_snapshot
from counter.rollups import ZERO, FoldRecord, RollupKey
from counter.segments import decode
from counter.settings import Platform
from counter.storage.ports import FOREVER
from counter.storage.stepwise import StepwiseFoldCommit
from counter.windows import Layout
from rollup_worker.closer import Closer
from rollup_worker.ownership import Ownership
from rollup_worker.retention import Retention
from rollup_worker.rollup import FoldStores, Rollup
from rollup_worker.worker import Worker
from tests.stores import Stores, segment, shard_of
from tests.tampered import Tampered, Wrap

PLATFORM = Platform(region="test", shards=2, log_retention_s=3_600)
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
        wanted = [Definition(name=name, strategy=Strategy.EVENTUAL) for name in names]
        self.snapshot = next_snapshot(self.snapshot, wanted, applied_at_ns=self.clock.now_ns())
        assert await self.stores.namespace_store.put(self.snapshot)

    def id_of(self, namespace: str) -> int:
        return self.snapshot.namespaces[namespace].id

    async def write(
        self,
        counter: str,
        delta: int | None,
        *,
        namespace: str = "plays",
        time_ns: int | None = None,
        token: str | None = None,
    ) -> Event:
        """Writes one event in a segment of its own, as a server does, and notes if it counts."""
        self._tokens += 1
        event = Event(
            counter,
            self.clock.now_ns() if time_ns is None else time_ns,
            token or f"t{self._tokens}",
            delta,
        )
        namespace_id = self.id_of(namespace)
        window = self.layout.window_of(event.time_ns)
        shard = shard_of(namespace_id, counter, self.layout.shards)
        written = segment([event], window=window, shard=shard, namespace_id=namespace_id)
        closed = await self.stores.event_log.append([written])
        if closed.through < window:
            of_counter = self.acknowledged[namespace_id, counter]
            of_counter.setdefault((event.time_ns, event.token), delta)
        return event

    def worker(self, wrap: Wrap | None = None, clock: ManualClock | None = None) -> "WorkerParts":
        return WorkerParts(self, wrap or (lambda name, port: port), clock or self.clock)

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
                scratch = fold(
                    ZERO, of_counter, through_window=row.through_window, counts=FoldCounts()
                )
                assert row == scratch, key


class WorkerParts:
    """A worker process: its parts, on ports that `wrap` may tamper with."""

    def __init__(self, world: World, wrap: Wrap, clock: ManualClock) -> None:
        stores = world.stores
        ledger = wrap("ledger", stores.ledger)
        event_log = wrap("event_log", stores.event_log)
        rollup_store = wrap("rollup_store", stores.rollup_store)
        fold_commit = stores.fold_commit
        if isinstance(fold_commit, StepwiseFoldCommit):
            fold_commit = StepwiseFoldCommit(ledger, rollup_store)
        self.closer = Closer(ledger, world.layout, PLATFORM, clock)
        self.rollup = Rollup(
            FoldStores(
                event_log=event_log,
                ledger=ledger,
                rollup_store=rollup_store,
                fold_commit=wrap("fold_commit", fold_commit),
                shared_cache=wrap("count_cache", stores.count_cache),
                namespace_store=wrap("namespace_store", stores.namespace_store),
            ),
            world.layout,
        )
        self.retention = Retention(event_log, ledger, world.layout, PLATFORM, clock)
        self.worker = Worker(
            self.closer,
            self.rollup,
            self.retention,
            Ownership(stores.membership, "the worker", shards=world.layout.shards),
            window_ms=world.layout.window_ms,
            passes_in_parallel=4,
        )

    async def pass_over_all(self) -> int:
        """One round without the worker's own care for errors; answers with its passes."""
        closed_through = await self.closer.close_due()
        passes = 0
        for shard in range(len(self.rollup.progress)):
            passes += 1
            while await self.rollup.fold_shard(shard, closed_through):
                passes += 1
        return passes


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
        if name == "rollup_store.write":
            if self._left == 0:
                [rows] = args  # a store without transactions may also stop in the middle
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
