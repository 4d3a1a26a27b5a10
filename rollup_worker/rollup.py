"""Fold passes: closed windows of a shard become a fold record, rollups and a watermark.

A pass proposes a record that names all segments of the windows after the watermark, and computes
the rollups from it. If another worker's record holds instead, it computes the rollups of that one.
So two workers, a paused worker or a replay can only write the same values again.

A pass works in slices and gives way to other work of the process between them.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from counter.clock import NS_PER_MS
from counter.errors import StoreDamaged
from counter.events import Event
from counter.fold import FoldCounts, fold, gather
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.metrics import (
    FOLD_CONFLICTS,
    FOLD_CONTESTS,
    FOLD_DUPLICATES,
    FOLD_PASS_EVENTS,
    FOLD_PASS_SECONDS,
    ROLLUPS_WRITTEN,
)
from counter.namespaces import EMPTY, Namespace, Snapshot
from counter.rollups import ZERO, CachedCount, FoldRecord, RollupKey
from counter.segments import SegmentRef, decode
from counter.storage.ports import (
    FOREVER,
    CountCache,
    CounterKey,
    EventLog,
    FoldCommit,
    Ledger,
    NamespaceStore,
    RollupRow,
    RollupStore,
)
from counter.windows import Layout

# A pass that took longer than this starts anew. Records are kept for a day at least, so whoever
# proposes within it cannot bring back a record of his own where another has held and expired.
PASS_S_MAX = 3_600.0
# How many windows are looked at at once: after an outage there may be very many.
_WINDOWS_PER_LOOK = 256
# Bounds memory, and how long adds wait behind a pass on a store with one writer.
EVENTS_PER_PASS_MAX = 20_000
_COUNTERS_PER_SLICE = 512
_EVENTS_PER_SLICE = 2_000
# A shard without events is folded at least this often: its reads stay about as fresh as others',
# and an idle store does not fill with empty records.
_IDLE_FOLD_NS = 2_000 * NS_PER_MS


@dataclass(slots=True)
class ShardProgress:
    """Since this process started."""

    events: int = 0
    counts: FoldCounts = field(default_factory=FoldCounts)
    last_pass_events: int = 0
    last_pass_s: float = 0.0
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class FoldStores:
    event_log: EventLog
    ledger: Ledger
    rollup_store: RollupStore
    fold_commit: FoldCommit
    shared_cache: CountCache
    namespace_store: NamespaceStore


class Rollup:
    def __init__(
        self,
        stores: FoldStores,
        layout: Layout,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores = stores
        self._monotonic_s = monotonic_s
        self._layout = layout
        self._idle_windows = max(1, _IDLE_FOLD_NS // layout.window_ns)
        self._last_snapshot = EMPTY
        self.progress = [ShardProgress() for _ in range(layout.shards)]
        self._metrics = _PassMetrics()

    async def fold_shard(self, shard: int, closed_through: int) -> bool:
        """One pass over a shard's closed windows; False if there is nothing left to fold."""
        began_s = self._monotonic_s()
        # Another worker may have closed and folded further than this one knows.
        watermark = (await self._stores.ledger.watermarks())[shard]
        record = await self._next_record(shard, watermark, closed_through)
        if record is None:
            return False
        while True:
            counts = FoldCounts()
            rows = await self._rows(record, counts)
            if self._monotonic_s() - began_s > PASS_S_MAX:
                return True
            agreed = await self._stores.fold_commit.commit(record, rows)
            if agreed == record:
                break
            self._metrics.contests.add()
            record = agreed
        await self._refresh_cache(record, rows)
        progress = self.progress[shard]
        progress.events += record.event_count
        progress.counts.duplicates += counts.duplicates
        progress.counts.conflicts += counts.conflicts
        progress.last_pass_events = record.event_count
        progress.last_pass_s = self._monotonic_s() - began_s
        self._metrics.record(progress, counts, rollups=len(rows))
        return record.to_window < closed_through

    async def _next_record(
        self, shard: int, watermark: int, closed_through: int
    ) -> FoldRecord | None:
        from_window = watermark + 1
        if closed_through < from_window:
            return None
        decided = await self._stores.ledger.folds(shard, from_window, FOREVER)
        if decided:  # by a worker that did not finish, or is about to
            assert decided[0].from_window == from_window, "fold records form a chain"
            return decided[0]
        refs, looked_through = await self._refs_of_pass(shard, from_window, closed_through)
        if not refs and looked_through - watermark < self._idle_windows:
            return None
        # After the segments: whoever wrote one of them had a version that is in the store by now.
        snapshot = await self._stores.namespace_store.latest()
        to_window = _last_window_of_pass(refs, looked_through)
        segments = tuple(ref for ref in refs if ref.window <= to_window)
        return FoldRecord(
            shard=shard,
            from_window=from_window,
            to_window=to_window,
            segments=segments,
            event_count=sum(ref.event_count for ref in segments),
            namespaces_version=0 if snapshot is None else snapshot.version,
        )

    async def _refs_of_pass(
        self, shard: int, from_window: int, closed_through: int
    ) -> tuple[list[SegmentRef], int]:
        """The next segments, as many as a pass takes or some more, and the last window looked at.

        Never beyond the day of the first window: a record does not cross days.
        """
        last = min(closed_through, self._layout.last_window_of_day(from_window))
        refs: list[SegmentRef] = []
        events = 0
        looked_through = from_window - 1
        while looked_through < last and events < EVENTS_PER_PASS_MAX:
            start = looked_through + 1
            looked_through = min(last, looked_through + _WINDOWS_PER_LOOK)
            found = await self._stores.event_log.refs(shard, start, looked_through)
            refs += found
            events += sum(ref.event_count for ref in found)
        return refs, looked_through

    async def _rows(self, record: FoldRecord, counts: FoldCounts) -> list[RollupRow]:
        """The rollups that the record leads to: the same whoever computes them, and when (I3)."""
        if not record.segments:
            return []
        snapshot = await self._snapshot(record.namespaces_version)
        rows: list[RollupRow] = []
        for namespace_id, events in (await self._events(record.segments)).items():
            namespace = snapshot.by_id.get(namespace_id)
            if namespace is None:  # deleted; nobody can ever read it again
                continue
            await self._fold_namespace(namespace, events, record, rows, counts)
        return rows

    async def _snapshot(self, version: int) -> Snapshot:
        """A version never changes, so the last one is kept."""
        if self._last_snapshot.version != version:
            snapshot = await self._stores.namespace_store.get(version)
            assert snapshot is not None, version
            self._last_snapshot = snapshot
        return self._last_snapshot

    async def _events(self, refs: Sequence[SegmentRef]) -> dict[int, defaultdict[str, list[Event]]]:
        """By namespace, then by counter. `refs` are sorted, so ids rise within each window."""
        events: dict[int, defaultdict[str, list[Event]]] = {}
        for slice_ in _slices(refs):
            for ref, body in zip(slice_, await self._stores.event_log.bodies(slice_), strict=True):
                if body is None:
                    raise StoreDamaged(
                        f"segment {ref.segment_id.hex()} of window {ref.window}, shard {ref.shard} "
                        "is named by its fold record but gone"
                    )
                of_namespace = events.setdefault(ref.namespace_id, defaultdict(list))
                gather(of_namespace, [(ref.segment_id, decode(body))])
            await asyncio.sleep(0)
        return events

    async def _fold_namespace(
        self,
        namespace: Namespace,
        events: dict[str, list[Event]],
        record: FoldRecord,
        rows: list[RollupRow],
        counts: FoldCounts,
    ) -> None:
        buckets = ROLLUP_BUCKETS[namespace.cardinality]
        prefix = namespace_prefix(namespace.id)
        keys = [(counter_hash(prefix, counter) % buckets, counter) for counter in events]
        keys.sort(key=itemgetter(0))  # neighbours in the store are read and written together
        for start in range(0, len(keys), _COUNTERS_PER_SLICE):
            slice_ = [
                RollupKey(namespace.id, bucket, counter)
                for bucket, counter in keys[start : start + _COUNTERS_PER_SLICE]
            ]
            present = await self._stores.rollup_store.read(slice_)
            for key, row in zip(slice_, present, strict=True):
                base = row or ZERO
                if base.through_window >= record.from_window:
                    # Another fold from here is in the row: either this very record was committed
                    # before, or another one was, and then the commit of this one will say so.
                    continue
                rows.append((key, fold(base, events[key.counter], record.to_window, counts)))
            await asyncio.sleep(0)

    async def _refresh_cache(self, record: FoldRecord, rows: Sequence[RollupRow]) -> None:
        """Gives the counters that readers ask for their new counts; others stay out of the cache.

        Each row is complete through the record's end, so that is the stamp of its count.
        """
        stamp_ns = self._layout.complete_through_ns(record.to_window)
        cache = self._stores.shared_cache
        snapshot = await self._snapshot(record.namespaces_version)
        cached = await cache.get(
            [(namespace_id, counter) for (namespace_id, _, counter), _ in rows]
        )
        by_ttl: defaultdict[int, list[tuple[CounterKey, CachedCount]]] = defaultdict(list)
        for (key, rollup), count in zip(rows, cached, strict=True):
            if count is not None:
                fresh = CachedCount(rollup.count, stamp_ns, rollup.epoch, rollup.cleared_at_ns)
                ttl_ms = snapshot.by_id[key.namespace_id].cache_ttl_ms
                by_ttl[ttl_ms].append(((key.namespace_id, key.counter), fresh))
        for ttl_ms, items in by_ttl.items():
            await cache.put(items, ttl_ms=ttl_ms)


class _PassMetrics:
    def __init__(self) -> None:
        self.contests = FOLD_CONTESTS.at()
        self._seconds = FOLD_PASS_SECONDS.at()
        self._events = FOLD_PASS_EVENTS.at()
        self._duplicates = FOLD_DUPLICATES.at()
        self._conflicts = FOLD_CONFLICTS.at()
        self._rollups = ROLLUPS_WRITTEN.at()

    def record(self, shard: ShardProgress, counts: FoldCounts, *, rollups: int) -> None:
        self._seconds.record(shard.last_pass_s)
        self._events.record(shard.last_pass_events)
        self._duplicates.add(counts.duplicates)
        self._conflicts.add(counts.conflicts)
        self._rollups.add(rollups)


def _slices(refs: Sequence[SegmentRef]) -> Iterator[list[SegmentRef]]:
    """Cuts a pass's segments into pieces of about the same work."""
    slice_: list[SegmentRef] = []
    events = 0
    for ref in refs:
        slice_.append(ref)
        events += ref.event_count
        if events >= _EVENTS_PER_SLICE:
            yield slice_
            slice_, events = [], 0
    if slice_:
        yield slice_


def _last_window_of_pass(refs: Sequence[SegmentRef], closed_through: int) -> int:
    """As many windows as fit in a pass, and at least the first one that has events."""
    events_by_window: Counter[int] = Counter()
    for ref in refs:
        events_by_window[ref.window] += ref.event_count
    events = 0
    for window, of_window in events_by_window.items():
        if events and events + of_window > EVENTS_PER_PASS_MAX:
            return window - 1
        events += of_window
    return closed_through
