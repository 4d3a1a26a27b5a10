"""Fold passes alone, in this process: events per second on the memory store and on SQLite.

The passes are the worker's own, over segments as group commit packs them: a shard's events of one
window together. Three shapes: many events per counter, all events on one counter, and one event
per counter.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, at_least
from benchmarks.progress import Progress
from benchmarks.requests import counter_name
from counter.clock import NS_PER_S, Clock, ManualClock
from counter.events import Event
from counter.keys import counter_hash, namespace_prefix
from counter.namespaces import (
    EMPTY,
    Cardinality,
    Definition,
    HistoryStep,
    Strategy,
    next_snapshot,
)
from counter.segments import SEGMENT_EVENTS_MAX, Segment, SegmentRef, encode
from counter.settings import Platform
from counter.storage.memory import (
    MemoryCountCache,
    MemoryEventLog,
    MemoryHistoryStore,
    MemoryLedger,
    MemoryNamespaceStore,
    MemoryRollupStore,
)
from counter.storage.sqlite import (
    Database,
    SqliteEventLog,
    SqliteFoldCommit,
    SqliteHistoryStore,
    SqliteLedger,
    SqliteNamespaceStore,
    SqliteRollupStore,
)
from counter.storage.stepwise import StepwiseFoldCommit
from counter.windows import Layout
from rollup_worker.rollup import FoldStores, Rollup
from tally.process import tune_garbage_collection

_EVENTS_PER_WINDOW = 50_000
NAMESPACE_ID = 1
_APPEND_SEGMENTS = 64
# The most that the worker's pace allows.
_EVENTS_PER_PASS = 20_000
_ROWS = 1_000

OpenStores = Callable[[], AbstractAsyncContextManager[FoldStores]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    name: str
    events: int
    counters: int

    @property
    def cold(self) -> bool:
        """Every event has a counter, and so a row, of its own."""
        return self.counters == self.events


def shapes(events: int) -> tuple[Shape, ...]:
    return (
        Shape(name="10,000 counters", events=events, counters=10_000),
        Shape(name="one counter", events=events, counters=1),
        Shape(name=f"{2 * events:,} cold counters", events=2 * events, counters=2 * events),
    )


async def measure(home: Path, *, events: int, repeats: int, progress: Progress) -> list[Figure]:
    platform = Platform()
    layout = platform.layout(ManualClock().now_ns())
    tune_garbage_collection()  # as `tally serve` does
    figures = []
    for shape in shapes(events):
        segments, last_window = packed_segments(shape, layout)
        for store, open_stores, passes in (
            ("memory", _memory, 1 if shape.cold else repeats),
            ("sqlite", partial(on_sqlite, home / f"{shape.counters}", platform), 1),
        ):
            progress.say(f"folds of {shape.events:,} events over {shape.name} on {store}")
            rates = [
                shape.events / await fold_s(open_stores, segments, layout, last_window)
                for _ in range(passes)
            ]
            figures.append(
                Figure(
                    name=f"fold, {store}, {shape.name}",
                    value=median(rates),
                    unit="events/s",
                    target=at_least(200_000) if store == "memory" and not shape.cold else None,
                    spread=(min(rates), max(rates)),
                    explains={"events": shape.events},
                )
            )
    return figures


async def fold_s(
    open_stores: OpenStores, segments: list[Segment], layout: Layout, last_window: int
) -> float:
    """How long the worker's passes over all shards take, and nothing else."""
    async with open_stores() as stores:
        await prepare(stores, segments, layout, last_window)
        return await fold_prepared_s(stores, segments, layout, last_window)


async def prepare(
    stores: FoldStores,
    segments: list[Segment],
    layout: Layout,
    last_window: int,
    *,
    history: tuple[HistoryStep, ...] = (),
) -> None:
    """Writes the segments and closes their windows."""
    await stores.ledger.open_layout(layout)
    definition = Definition(
        name="plays",
        strategy=Strategy.EVENTUAL,
        cardinality=Cardinality.HIGH,
        history=history,
    )
    await stores.namespace_store.put(next_snapshot(EMPTY, [definition], applied_at_ns=0))
    for start in range(0, len(segments), _APPEND_SEGMENTS):
        await stores.event_log.append(segments[start : start + _APPEND_SEGMENTS])
    await stores.ledger.close(last_window)


async def fold_prepared_s(
    stores: FoldStores, segments: list[Segment], layout: Layout, last_window: int
) -> float:
    rollup = Rollup(stores, layout)

    async def fold(shard: int) -> None:
        has_more = True
        while has_more:
            result = await rollup.fold_shard(
                shard, last_window, events_max=_EVENTS_PER_PASS, rollups_per_batch=_ROWS
            )
            has_more = result.has_more

    began_s = time.perf_counter()
    await asyncio.gather(*(fold(shard) for shard in range(layout.shards)))
    elapsed_s = time.perf_counter() - began_s
    folded = sum(each.events for each in rollup.progress)
    if folded != sum(segment.ref.event_count for segment in segments):
        raise RuntimeError(f"the passes folded {folded} events")
    return elapsed_s


def packed_segments(shape: Shape, layout: Layout) -> tuple[list[Segment], int]:
    """The events of a second per window, packed; and the last window."""
    prefix = namespace_prefix(NAMESPACE_ID)
    partitions: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    start_ns = layout.start_ns(layout.from_window)
    step_ns = NS_PER_S // _EVENTS_PER_WINDOW
    for number in range(shape.events):
        counter = counter_name(number % shape.counters)
        event = Event(counter, start_ns + number * step_ns, f"bench-{number:010d}", 1)
        shard = counter_hash(prefix, counter) % layout.shards
        partitions[layout.window_of(event.time_ns), shard].append(event)
    segments: list[Segment] = []
    for (window, shard), events in partitions.items():
        for start in range(0, len(events), SEGMENT_EVENTS_MAX):
            packed = events[start : start + SEGMENT_EVENTS_MAX]
            ref = SegmentRef(
                window=window,
                namespace_id=NAMESPACE_ID,
                segment_id=len(segments).to_bytes(16, "big"),
                event_count=len(packed),
                shard=shard,
                lane=0,
            )
            segments.append(Segment(ref, encode(packed)))
    return segments, max(window for window, _ in partitions)


@asynccontextmanager
async def _memory() -> AsyncIterator[FoldStores]:
    ledger, rollup_store = MemoryLedger(ManualClock()), MemoryRollupStore()
    history_store = MemoryHistoryStore()
    yield FoldStores(
        event_log=MemoryEventLog(ledger),
        ledger=ledger,
        rollup_store=rollup_store,
        history_store=history_store,
        fold_commit=StepwiseFoldCommit(ledger, history_store, rollup_store),
        shared_cache=MemoryCountCache(),
        namespace_store=MemoryNamespaceStore(),
    )


@asynccontextmanager
async def on_sqlite(
    directory: Path, platform: Platform, clock: Clock | None = None
) -> AsyncIterator[FoldStores]:
    """On a clock that stands still, unless there is one."""
    clock = clock or ManualClock()
    database = Database(directory)
    try:
        ledger = SqliteLedger(database, clock, region=platform.region)
        rollup_store = SqliteRollupStore(database, region=platform.region)
        history_store = SqliteHistoryStore(database, region=platform.region)
        yield FoldStores(
            event_log=SqliteEventLog(database, clock, region=platform.region),
            ledger=ledger,
            rollup_store=rollup_store,
            history_store=history_store,
            fold_commit=SqliteFoldCommit(database, ledger, history_store, rollup_store),
            shared_cache=MemoryCountCache(),
            namespace_store=SqliteNamespaceStore(database),
        )
    finally:
        await database.close()
