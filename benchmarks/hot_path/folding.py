"""What a fold costs for each event, by stage; the rows of all counters are there already."""

import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import folds
from benchmarks.hot_path.stages import Stages, least_us
from benchmarks.requests import counter_name
from counter.clock import ManualClock
from counter.digest import Digest
from counter.events import Event
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import Cardinality
from counter.rollups import Rollup as RollupRow
from counter.rollups import RollupKey
from counter.segments import Segment, decode, encode
from counter.settings import Platform
from counter.windows import Layout
from rollup_worker.rollup import FoldStores, Rollup

_EVENTS = 100_000
_ROUNDS = 3
_EVENTS_PER_PASS = 20_000
_ROWS_PER_BATCH = 1_000
_PREFILL_ROWS = 10_000
# By store and method: the stage.
_STORE_STAGES = {
    "event_log": {"refs": "read_segments", "bodies": "read_segments"},
    "rollup_store": {"read": "read_rows"},
    "fold_commit": {"commit": "write_rows"},
    "shared_cache": {"get": "refresh_cache", "put": "refresh_cache"},
}


async def fold_stages(home: Path, counters: int) -> Stages:
    layout = Platform().layout(ManualClock().now_ns())
    segments, last_window = _segments(counters, layout)
    rounds = [
        await _folded(home / f"{number}", counters, segments, layout, last_window)
        for number in range(_ROUNDS)
    ]
    best = min(rounds, key=lambda each: each.whole_us)
    bodies = [segment.body for segment in segments]
    digest = Digest()

    def digested() -> None:
        for each in bodies:
            digest.add(1, each)

    best.parts_us["unpack"] = least_us(lambda: [decode(each) for each in bodies], _EVENTS, 5)
    best.parts_us["digest"] = least_us(digested, _EVENTS, 5)
    return best


async def _folded(
    home: Path, counters: int, segments: list[Segment], layout: Layout, last_window: int
) -> Stages:
    async with folds.on_sqlite(home, Platform()) as stores:
        await folds.prepare(stores, segments, layout, last_window)
        await _prefill(stores, counters)
        with_timers, spent_s = _with_timers(stores)
        rollup = Rollup(with_timers, layout)
        gc.collect()
        began_s = time.process_time()
        for shard in range(layout.shards):
            has_more = True
            while has_more:
                result = await rollup.fold_shard(
                    shard,
                    last_window,
                    events_max=_EVENTS_PER_PASS,
                    rollups_per_batch=_ROWS_PER_BATCH,
                )
                has_more = result.has_more
        whole_s = time.process_time() - began_s
    return Stages(
        whole_us=whole_s / _EVENTS * 1_000_000,
        parts_us={stage: s / _EVENTS * 1_000_000 for stage, s in spent_s.items()},
    )


class _Timed:
    """Adds up the processor time that calls of a store take."""

    def __init__(self, inner: Any, stages: dict[str, str], spent_s: dict[str, float]) -> None:
        self._inner = inner
        self._stages = stages
        self._spent_s = spent_s

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        stage = self._stages.get(name)
        if stage is None:
            return method

        async def timed(*values: Any, **named: Any) -> Any:
            began_s = time.process_time()
            try:
                return await method(*values, **named)
            finally:
                self._spent_s[stage] += time.process_time() - began_s

        return timed


def _with_timers(stores: FoldStores) -> tuple[FoldStores, dict[str, float]]:
    spent_s = {stage: 0.0 for stages in _STORE_STAGES.values() for stage in stages.values()}

    def timed(port: str) -> Any:
        return _Timed(getattr(stores, port), _STORE_STAGES[port], spent_s)

    return (
        FoldStores(
            event_log=timed("event_log"),
            ledger=stores.ledger,
            rollup_store=timed("rollup_store"),
            history_store=stores.history_store,
            fold_commit=timed("fold_commit"),
            shared_cache=timed("shared_cache"),
            namespace_store=stores.namespace_store,
        ),
        spent_s,
    )


def _segments(counters: int, layout: Layout) -> tuple[list[Segment], int]:
    """Events that are spread over the counters evenly, also where there are more of those."""
    shape = folds.Shape(name="", events=_EVENTS, counters=min(counters, _EVENTS))
    segments, last_window = folds.packed_segments(shape, layout)
    stride = counters // shape.counters
    if stride > 1:
        # All shards are folded, so it does not matter which one a counter is in.
        segments = [Segment(ref, encode(_renamed(decode(body), stride))) for ref, body in segments]
    return segments, last_window


def _renamed(events: Sequence[Event], stride: int) -> list[Event]:
    return [
        Event(
            counter_name(int(event.counter.rpartition("-")[2]) * stride),
            event.time_ns,
            event.token,
            event.delta,
        )
        for event in events
    ]


async def _prefill(stores: FoldStores, counters: int) -> None:
    prefix = namespace_prefix(folds.NAMESPACE_ID)
    buckets = ROLLUP_BUCKETS[Cardinality.HIGH]
    keys = sorted(
        RollupKey(folds.NAMESPACE_ID, counter_hash(prefix, name) % buckets, name)
        for name in map(counter_name, range(counters))
    )
    row = RollupRow(1, 0, 0, 0, 1, 0, 0)
    for start in range(0, len(keys), _PREFILL_ROWS):
        await stores.rollup_store.write([(key, row) for key in keys[start : start + _PREFILL_ROWS]])
