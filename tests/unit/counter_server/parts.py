"""A server's parts on stores in memory, with a worker beside them that folds when told."""

import asyncio
import dataclasses
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from counter.clock import NS_PER_MS, ManualClock
from counter.events import Event
from counter.namespaces import EMPTY, Definition, Namespace, Snapshot, Strategy, next_snapshot
from counter.segments import SegmentRef
from counter.settings import Platform
from counter.storage.ports import FOREVER
from counter.windows import Layout
from counter_server.admission import Admission
from counter_server.commit import CommitLimits, GroupCommit
from counter_server.late import LateTokens
from counter_server.reads import Reads
from counter_server.strategies import EventPath
from counter_server.tail import Tail
from rollup_worker.rollup import Rollup
from tests.stores import Stores, fold_stores, memory, segment, shard_of
from tests.tampered import Scripted

EVENTS_PER_PASS = 100_000
PLATFORM = Platform(region="test", shards=2, log_retention_s=3_600)


class Parts:
    def __init__(self, stores: Stores, clock: ManualClock, layout: Layout) -> None:
        self.clock = clock
        self.layout = layout
        self.stores = stores
        self.script = script = Scripted()
        self.log = script.wrap("event_log", stores.event_log)
        self.ledger = script.wrap("ledger", stores.ledger)
        self.rollup_store = script.wrap("rollup_store", stores.rollup_store)
        self.history_store = script.wrap("history_store", stores.history_store)
        self.admission = Admission(PLATFORM, layout, clock)
        self.commit = self.group_commit(CommitLimits())
        self.late = LateTokens(self.log, self.ledger, layout, clock)
        self.tail = Tail(self.log, self.ledger, shards=layout.shards)
        self.reads = Reads(self.ledger, self.rollup_store, self.tail, layout)
        self.snapshot: Snapshot = EMPTY
        self.namespace: Namespace

    @classmethod
    async def create(cls, clock: ManualClock) -> "Parts":
        async with memory(Path(), clock) as stores:
            layout = await stores.ledger.open_layout(PLATFORM.layout(clock.now_ns()))
            parts = cls(stores, clock, layout)
        await parts.define()
        parts.admission.observe(await stores.ledger.closed())
        return parts

    async def define(self, **fields: Any) -> Namespace:
        """Gives the namespace other fields than the defaults."""
        definition = Definition(name="plays", strategy=Strategy.EVENTUAL)
        definition = dataclasses.replace(definition, **fields)
        snapshot = next_snapshot(self.snapshot, [definition], applied_at_ns=0)
        if snapshot is not self.snapshot:
            assert await self.stores.namespace_store.put(snapshot)
        self.snapshot = snapshot
        self.namespace = snapshot.namespaces["plays"]
        return self.namespace

    def group_commit(self, limits: CommitLimits) -> GroupCommit:
        return GroupCommit(self.log, self.layout, limits, self.admission.observe)

    def path(self) -> EventPath:
        return EventPath(
            admission=self.admission,
            commit=self.commit,
            late=self.late,
            reads=self.reads,
            layout=self.layout,
        )

    # Events.

    def event(
        self, counter: str, delta: int | None = 1, token: str = "t", *, age_ms: int = 0
    ) -> Event:
        return Event(counter, self.clock.now_ns() - age_ms * NS_PER_MS, token, delta)

    async def write(self, *events: Event) -> list[SegmentRef]:
        """Puts each event into the log, in a segment of its own, past the server."""
        written = [
            segment(
                [event],
                window=self.layout.window_of(event.time_ns),
                shard=self.shard(event.counter),
                namespace_id=self.namespace.id,
            )
            for event in events
        ]
        await self.stores.event_log.append(written)
        return [each.ref for each in written]

    def shard(self, counter: str) -> int:
        return shard_of(self.namespace.id, counter, self.layout.shards)

    def counters(self, shard: int, number: int) -> list[str]:
        """Names of counters that are all in one shard."""
        names = (f"counter {at}" for at in range(10_000))
        found = [name for name in names if self.shard(name) == shard]
        return found[:number]

    async def stored_events(self) -> list[int]:
        """How many events each stored segment has, by window and shard."""
        counts = []
        for shard in range(self.layout.shards):
            refs = await self.stores.event_log.refs(shard, 0, FOREVER)
            counts += [ref.event_count for ref in refs]
        return counts

    # The worker.

    async def close(self, window: int) -> None:
        await self.stores.ledger.close(window)

    async def fold_through(self, window: int) -> None:
        """Closes and folds every shard up to a window."""
        await self.close(window)
        rollup = Rollup(fold_stores(self.stores), self.layout)
        for shard in range(self.layout.shards):
            while (
                await rollup.fold_shard(
                    shard, window, events_max=EVENTS_PER_PASS, rollups_per_batch=100
                )
            ).has_more:
                pass

    @property
    def window(self) -> int:
        return self.layout.window_of(self.clock.now_ns())


@contextmanager
def no_error_is_left_over() -> Iterator[None]:
    """Of what ends within, no error ends in the log because nobody was there to take it."""
    left_over: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: left_over.append(context))
    yield
    gc.collect()
    loop.set_exception_handler(None)
    assert left_over == []
