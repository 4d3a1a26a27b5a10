"""Folds and history beside what their store can do at best, in one run.

A fold reads segments and writes a row per counter. So its limits are a raw scan of the same
segments, read and not even decoded, and rows written one by one as they would be without folds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median

from benchmarks import folds
from benchmarks.figures import Figure, over_rounds
from benchmarks.progress import Progress
from benchmarks.requests import counter_name
from counter.clock import NS_PER_MS, SystemClock
from counter.events import Event
from counter.history import HistoryRow
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import Cardinality, HistoryStep, Namespace, Strategy
from counter.rollups import Rollup, RollupKey
from counter.segments import Segment, decode, encode, slices
from counter.settings import Platform
from counter.storage.cassandra import (
    CassandraEventLog,
    CassandraHistoryStore,
    CassandraLedger,
    CassandraNamespaceStore,
    CassandraRollupStore,
    CassandraSession,
    ClusterSettings,
)
from counter.storage.memory import MemoryCountCache
from counter.storage.ports import HistoryKey, HistoryWrite
from counter.storage.stepwise import StepwiseFoldCommit
from counter.windows import Layout
from counter_server.count_history import CountHistories
from counter_server.reads import Reads
from counter_server.tail import Tail
from rollup_worker.rollup import FoldStores

# A store of its own, under the name that is given.
OpenStores = Callable[[str], AbstractAsyncContextManager[FoldStores]]

_EVENTS_PER_SCAN = 2_000
_WRITES_IN_FLIGHT = 32
_WRITES = 3_000
_STEP = HistoryStep(step_ms=60_000, retention_ms=7 * 86_400_000)
_DAY_STEPS = 1_440
_HISTORY_COUNTERS = 20_000
_HISTORY_READS = 20


async def measure(
    open_stores: OpenStores,
    *,
    store: str,
    platform: Platform,
    events: int,
    repeats: int,
    progress: Progress,
) -> list[Figure]:
    layout = platform.layout(SystemClock().now_ns())
    counters, hot, cold = folds.shapes(events // 2)
    ratios: list[float] = []
    rates: dict[str, list[float]] = {"counters": [], "hot": [], "scan": []}
    for round_ in range(repeats):
        for kind, shape in (("counters", counters), ("hot", hot)):
            progress.say(f"folds of {shape.events:,} events over {shape.name} on {store}")
            segments, last_window = folds.packed_segments(shape, layout)
            scan_s, fold_s = await _scan_and_fold(
                open_stores(f"{kind} {round_}"), segments, layout, last_window
            )
            rates[kind].append(shape.events / fold_s)
            if kind == "counters":
                rates["scan"].append(shape.events / scan_s)
                ratios.append(scan_s / fold_s)
    progress.say(f"folds of {cold.events:,} cold counters, and as many rows one by one, on {store}")
    segments, last_window = folds.packed_segments(cold, layout)
    _, cold_s = await _scan_and_fold(open_stores("cold"), segments, layout, last_window)
    single_rows_per_s = await _single_rows_per_s(open_stores("single rows"), layout)
    return [
        over_rounds(
            f"events folded / scanned raw, {store}, {counters.name}",
            ratios,
            unit="x",
            explains={
                "folded_per_s": median(rates["counters"]),
                "scanned_per_s": median(rates["scan"]),
            },
        ),
        over_rounds(
            f"events folded, one counter / {counters.name}, {store}",
            [one / many for one, many in zip(rates["hot"], rates["counters"], strict=True)],
            unit="x",
            explains={"folded_per_s": median(rates["hot"])},
        ),
        Figure(
            name=f"counters rolled up / rows written one by one, {store}",
            value=cold.events / cold_s / single_rows_per_s,
            unit="x",
            explains={
                "rolled_up_per_s": cold.events / cold_s,
                "single_rows_per_s": single_rows_per_s,
            },
        ),
        await _history_cost(open_stores, layout, store, progress),
        await _history_of_a_day(open_stores, layout, store, progress),
    ]


async def _scan_and_fold(
    opened: AbstractAsyncContextManager[FoldStores],
    segments: list[Segment],
    layout: Layout,
    last_window: int,
) -> tuple[float, float]:
    """How long reading the segments takes, and then folding them."""
    async with opened as stores:
        await folds.prepare(stores, segments, layout, last_window)
        began_s = time.perf_counter()
        scanned = 0
        for shard in range(layout.shards):
            refs = await stores.event_log.refs(shard, layout.from_window, last_window)
            for slice_ in slices(refs, events_max=_EVENTS_PER_SCAN):
                bodies = await stores.event_log.bodies(slice_)
                scanned += sum(body is not None for body in bodies)
        scan_s = time.perf_counter() - began_s
        if scanned != len(segments):
            raise RuntimeError(f"the scan found {scanned} of {len(segments)} segments")
        return scan_s, await folds.fold_prepared_s(stores, segments, layout, last_window)


async def _single_rows_per_s(
    opened: AbstractAsyncContextManager[FoldStores], layout: Layout
) -> float:
    rows = iter([(_key(number), Rollup(1, 0, 0, 1, 1, 1, 1)) for number in range(_WRITES)])
    async with opened as stores:
        await stores.ledger.open_layout(layout)

        async def write() -> None:
            for row in rows:
                await stores.rollup_store.write([row])

        began_s = time.perf_counter()
        await asyncio.gather(*(write() for _ in range(_WRITES_IN_FLIGHT)))
        return _WRITES / (time.perf_counter() - began_s)


def _key(number: int) -> RollupKey:
    counter = counter_name(number)
    hashed = counter_hash(namespace_prefix(folds.NAMESPACE_ID), counter)
    return RollupKey(folds.NAMESPACE_ID, hashed % ROLLUP_BUCKETS[Cardinality.HIGH], counter)


async def _history_cost(
    open_stores: OpenStores, layout: Layout, store: str, progress: Progress
) -> Figure:
    """The dearest fold there is: every counter changes for the first time in a new step."""
    progress.say(f"folds that end a step for {_HISTORY_COUNTERS:,} counters, on {store}")
    windows_per_step = _STEP.step_ms // layout.window_ms
    segments: list[Segment] = []
    for window in (layout.from_window, layout.from_window + windows_per_step):
        shape = folds.Shape(name="", events=_HISTORY_COUNTERS, counters=_HISTORY_COUNTERS)
        segments += _moved(folds.packed_segments(shape, layout)[0], window, layout)
    last_window = max(each.ref.window for each in segments)
    seconds = {}
    for history in ((), (_STEP,)):
        async with open_stores(f"history {len(history)}") as stores:
            await folds.prepare(stores, segments, layout, last_window, history=history)
            seconds[len(history)] = await folds.fold_prepared_s(
                stores, segments, layout, last_window
            )
    return Figure(
        name=f"rollups with a new row of history every second fold / without, {store}",
        value=seconds[0] / seconds[1],
        unit="x",
        explains={
            "rollups_per_s": 2 * _HISTORY_COUNTERS / seconds[1],
            "history_rows_per_s": _HISTORY_COUNTERS / seconds[1],
        },
    )


def _moved(segments: list[Segment], window: int, layout: Layout) -> list[Segment]:
    """The same counters once more, in another window."""
    moved = []
    for number, (ref, _) in enumerate(segments):
        events = [
            Event(event.counter, layout.start_ns(window) + at, event.token, 1)
            for at, event in enumerate(decode(segments[number].body))
        ]
        segment_id = window.to_bytes(8, "big") + number.to_bytes(8, "big")
        moved_ref = ref._replace(window=window, segment_id=segment_id, event_count=len(events))
        moved.append(Segment(moved_ref, encode(events)))
    return moved


async def _history_of_a_day(
    open_stores: OpenStores, layout: Layout, store: str, progress: Progress
) -> Figure:
    """GetCountHistory without its transport: 1,440 points from as many rows."""
    progress.say(f"the history of a day, on {store}")
    counter = counter_name(1)
    namespace = Namespace(
        name="plays",
        id=folds.NAMESPACE_ID,
        strategy=Strategy.EVENTUAL,
        cardinality=Cardinality.HIGH,
        history=(_STEP,),
    )
    async with open_stores("a day") as stores:
        await stores.ledger.open_layout(layout)
        newest = layout.step_of(layout.from_window, _STEP.step_ms)
        key = HistoryKey(namespace.id, counter, _STEP.step_ms)
        rows = []
        for age in range(_DAY_STEPS, 0, -1):
            step, total = newest - age, _DAY_STEPS - age + 1
            last = layout.last_window_of_step(step, _STEP.step_ms)
            state = Rollup(total, 0, 0, last, total, last, 1)
            rows.append(HistoryWrite(key, HistoryRow(step, step + 1, state), _STEP.retention_ms))
        await stores.history_store.write(rows)
        window = layout.from_window
        row = Rollup(_DAY_STEPS + 1, 0, 0, window, _DAY_STEPS + 1, window, 1)
        await stores.rollup_store.write([(_key(1), row)])
        tail = Tail(stores.event_log, stores.ledger, shards=layout.shards)
        reads = Reads(stores.ledger, stores.rollup_store, tail, layout)
        histories = CountHistories(reads, stores.history_store, layout)
        end_ns = layout.start_ns(window)
        elapsed_ms = []
        for _ in range(_HISTORY_READS):
            began_s = time.perf_counter()
            answer = await histories.read(
                namespace,
                counter,
                start_ns=end_ns - (_DAY_STEPS - 2) * _STEP.step_ms * NS_PER_MS,
                end_ns=end_ns,
                step_ms=_STEP.step_ms,
                now_ns=end_ns,
            )
            elapsed_ms.append((time.perf_counter() - began_s) * 1_000)
            if any(point.delta != 1 or not point.known for point in answer.points):
                raise RuntimeError("the history of a day is wrong")
    return over_rounds(
        f"GetCountHistory over a day in steps of a minute, {store}",
        elapsed_ms,
        unit="ms",
        explains={"points": len(answer.points)},
    )


def on_cassandra(cluster: ClusterSettings, platform: Platform) -> OpenStores:
    @asynccontextmanager
    async def opened(name: str) -> AsyncIterator[FoldStores]:
        of_region = Platform(
            region=f"rollups {name}", window_ms=platform.window_ms, shards=platform.shards
        )
        session = await CassandraSession.connect(cluster)
        try:
            ledger = CassandraLedger(session, of_region)
            rollup_store = CassandraRollupStore(session, of_region)
            history_store = CassandraHistoryStore(session, of_region)
            yield FoldStores(
                event_log=CassandraEventLog(session, ledger, SystemClock(), of_region),
                ledger=ledger,
                rollup_store=rollup_store,
                history_store=history_store,
                fold_commit=StepwiseFoldCommit(ledger, history_store, rollup_store),
                shared_cache=MemoryCountCache(),
                namespace_store=CassandraNamespaceStore(session, platform_name=of_region.region),
            )
        finally:
            await session.close()

    return opened
