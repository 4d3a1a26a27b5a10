"""Fold passes: closed windows of a shard become a fold record, rollups and a watermark.

A pass proposes a record that names all segments of the windows after the watermark, and computes
the rollups from it. If another worker's record holds instead, it computes the rollups of that one.
So two workers, a paused worker or a replay can only write the same values again.

A pass works in slices and gives way to other work of the process between them.

All segments are decoded before their record is proposed. One that cannot be read stops its shard,
and nothing was decided about it yet: an operator may still have it restored, or set it aside. The
record then says what was left out, by whom and why, so that every replay leaves out the same.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from counter.clock import NS_PER_MS
from counter.errors import SegmentDamaged
from counter.fold import FoldCounts
from counter.metrics import (
    FOLD_CONFLICTS,
    FOLD_CONTESTS,
    FOLD_DUPLICATES,
    FOLD_PASS_EVENTS,
    FOLD_PASS_SECONDS,
    HISTORY_ROWS_WRITTEN,
    ROLLUPS_WRITTEN,
)
from counter.rollups import CachedCount, FoldRecord
from counter.segments import SegmentRef
from counter.storage.ports import (
    FOREVER,
    CountCache,
    CounterKey,
    EventLog,
    Fold,
    FoldCommit,
    HistoryStore,
    Ledger,
    NamespaceStore,
    RollupRow,
    RollupStore,
)
from counter.windows import Layout
from rollup_worker.record_folds import RecordFolds
from rollup_worker.rollup_bases import RollupBases

# A pass that took longer than this starts anew. Records are kept for a day at least, so whoever
# proposes within it cannot bring back a record of his own where another has held and expired.
PASS_S_MAX = 3_600.0
# How many windows are looked at at once: after an outage there may be very many.
_WINDOWS_PER_LOOK = 256
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

    def take(self, record: FoldRecord, counts: FoldCounts, seconds: float) -> None:
        self.events += record.event_count
        self.counts.duplicates += counts.duplicates
        self.counts.conflicts += counts.conflicts
        self.last_pass_events = record.event_count
        self.last_pass_s = seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class PassResult:
    events: int = 0
    rollups: int = 0
    seconds: float = 0.0
    is_full: bool = False  # cut short by its size: a larger one would have done more
    has_more: bool = False  # closed windows are left to fold
    folded_through: int  # the shard's watermark after it


@dataclass(frozen=True, kw_only=True)
class FoldStores:
    event_log: EventLog
    ledger: Ledger
    rollup_store: RollupStore
    history_store: HistoryStore
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
        self._bases = RollupBases(stores.rollup_store, shards=layout.shards)
        self._folds = RecordFolds(stores.event_log, self._bases, stores.namespace_store, layout)
        self.progress = [ShardProgress() for _ in range(layout.shards)]
        self._metrics = _PassMetrics()

    async def fold_shard(
        self, shard: int, closed_through: int, *, events_max: int, rollups_per_batch: int
    ) -> PassResult:
        """One pass over a shard's closed windows: about `events_max` events, or one window."""
        began_s = self._monotonic_s()
        # Another worker may have closed and folded further than this one knows.
        watermark = (await self._stores.ledger.watermarks())[shard]
        if closed_through <= watermark:
            return PassResult(folded_through=watermark)
        record = await self._decided(shard, watermark)
        is_agreed = record is not None
        if record is None:
            record = await self._proposal(shard, watermark, closed_through, events_max)
        if record is None:
            return PassResult(folded_through=watermark)
        while True:
            counts = FoldCounts()
            try:
                fold = await self._folds.fold_of(
                    record, counts, is_agreed=is_agreed, rollups_per_batch=rollups_per_batch
                )
            except SegmentDamaged as damage:
                if is_agreed:
                    raise
                record = await self._without_set_aside(record, damage)
                continue
            if self._monotonic_s() - began_s > PASS_S_MAX:
                return PassResult(has_more=True, folded_through=watermark)
            agreed = await self._stores.fold_commit.commit(
                fold, rollups_per_batch=rollups_per_batch
            )
            if agreed == fold.record:
                break
            self._metrics.contests.add()
            record, is_agreed = agreed, True
        self._bases.folded(agreed, fold.rollups)
        await self._refresh_cache(agreed, fold.rollups)
        seconds = self._monotonic_s() - began_s
        progress = self.progress[shard]
        progress.take(agreed, counts, seconds)
        self._metrics.record(progress, counts, fold)
        return PassResult(
            events=agreed.event_count,
            rollups=len(fold.rollups),
            seconds=seconds,
            is_full=agreed.event_count > 0 and agreed.to_window < closed_through,
            has_more=agreed.to_window < closed_through,
            folded_through=agreed.to_window,
        )

    async def _decided(self, shard: int, watermark: int) -> FoldRecord | None:
        """The next record, if it was agreed by a worker that did not finish, or is about to."""
        decided = await self._stores.ledger.folds(shard, watermark + 1, FOREVER)
        if not decided:
            return None
        assert decided[0].from_window == watermark + 1, "fold records form a chain"
        return decided[0]

    async def _proposal(
        self, shard: int, watermark: int, closed_through: int, events_max: int
    ) -> FoldRecord | None:
        from_window = watermark + 1
        refs, looked_through = await self._refs_of_pass(
            shard, from_window, closed_through, events_max
        )
        is_idle = not refs and looked_through - watermark < self._idle_windows
        # At the end of a day nothing more can join the record: whatever waited would wait for ever.
        if is_idle and looked_through == closed_through:
            return None
        # After the segments: whoever wrote one of them had a version that is in the store by now.
        snapshot = await self._stores.namespace_store.latest()
        to_window = _last_window_of_pass(refs, looked_through, events_max)
        segments = tuple(ref for ref in refs if ref.window <= to_window)
        return FoldRecord(
            shard=shard,
            from_window=from_window,
            to_window=to_window,
            segments=segments,
            event_count=sum(ref.event_count for ref in segments),
            namespaces_version=0 if snapshot is None else snapshot.version,
        )

    async def _without_set_aside(self, record: FoldRecord, damage: SegmentDamaged) -> FoldRecord:
        """The proposal without the segments that an operator decided to leave out.

        Raises the damage again if its segment is not among them.
        """
        decisions = await self._stores.ledger.set_asides(record.shard)
        by_id = {each.segment.segment_id: each for each in decisions}
        if damage.segment_id not in by_id:
            raise damage
        kept = tuple(ref for ref in record.segments if ref.segment_id not in by_id)
        left_out = (by_id[ref.segment_id] for ref in record.segments if ref.segment_id in by_id)
        return msgspec.structs.replace(
            record,
            segments=kept,
            event_count=sum(ref.event_count for ref in kept),
            set_aside=(*record.set_aside, *left_out),
        )

    async def _refs_of_pass(
        self, shard: int, from_window: int, closed_through: int, events_max: int
    ) -> tuple[list[SegmentRef], int]:
        """The next segments, as many as a pass takes or some more, and the last window looked at.

        Never beyond the day of the first window: a record does not cross days.
        """
        last = min(closed_through, self._layout.last_window_of_day(from_window))
        refs: list[SegmentRef] = []
        events = 0
        looked_through = from_window - 1
        while looked_through < last and events < events_max:
            start = looked_through + 1
            looked_through = min(last, looked_through + _WINDOWS_PER_LOOK)
            found = await self._stores.event_log.refs(shard, start, looked_through)
            refs += found
            events += sum(ref.event_count for ref in found)
        return refs, looked_through

    async def _refresh_cache(self, record: FoldRecord, rows: Sequence[RollupRow]) -> None:
        """Gives the counters that readers ask for their new counts; others stay out of the cache.

        Each row is complete through the record's end, so that is the stamp of its count.
        """
        stamp_ns = self._layout.complete_through_ns(record.to_window)
        cache = self._stores.shared_cache
        snapshot = await self._folds.snapshot(record.namespaces_version)
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
        self._history_rows = HISTORY_ROWS_WRITTEN.at()

    def record(self, shard: ShardProgress, counts: FoldCounts, fold: Fold) -> None:
        self._seconds.record(shard.last_pass_s)
        self._events.record(shard.last_pass_events)
        self._duplicates.add(counts.duplicates)
        self._conflicts.add(counts.conflicts)
        self._rollups.add(len(fold.rollups))
        self._history_rows.add(len(fold.history))


def _last_window_of_pass(refs: Sequence[SegmentRef], closed_through: int, events_max: int) -> int:
    """As many windows as fit in a pass, and at least the first one that has events."""
    events_by_window: Counter[int] = Counter()
    for ref in refs:
        events_by_window[ref.window] += ref.event_count
    events = 0
    for window, of_window in events_by_window.items():
        if events and events + of_window > events_max:
            return window - 1
        events += of_window
    return closed_through
