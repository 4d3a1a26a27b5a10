"""Audits: compute counters again from what is kept, and compare. They write nothing.

An audit reads in this order: the watermark, the rollup, the fold records, their segments, the
history. A fold that goes on meanwhile cannot make a false difference:

* All records up to the watermark are in the rollup, because the watermark was read before the row.
  A record beyond it is in the row only if the row says so itself (`through_window`). So the audit
  counts records up to the later of the two, and no others.
* The record that the row names was agreed on before the row was written, so reading records after
  the row finds it.
* A fold writes history before rollups. So what the row put into the history is there when the
  history is read; what later folds have added is beyond the row's own step, and is left out.

Retention may take segments away meanwhile. A segment that is gone and may be gone by its age makes
the audit begin again with what is left; one that should be there is a difference of its own.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from counter.clock import Clock
from counter.errors import (
    AuditWithoutBase,
    FoldPending,
    HistoryTooOld,
    InvalidRequest,
    NamespaceUnknown,
    Overloaded,
    Unsupported,
)
from counter.events import Event
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import Namespace, Snapshot, Strategy
from counter.rollups import ZERO, FoldRecord, Rollup, RollupKey
from counter.settings import Platform
from counter.storage.ports import EventLog, HistoryStore, Ledger, NamespaceStore, RollupStore
from counter.windows import Layout
from rollup_worker.audit.bases import AuditBases
from rollup_worker.audit.log import AuditLog, GiveWay, RecordCheck, give_way
from rollup_worker.audit.recount import DIFFERENCES_MAX, Recount
from rollup_worker.audit.scan import AuditScan, Track, Walk
from rollup_worker.audit.values import Base, BaseKind, Difference

COUNTERS_PER_WINDOW_MAX = 1_000
# Audits that callers ask for: each may read a shard's whole log.
_AUDITS_AT_ONCE_MAX = 4
_RETRY_AFTER_MS = 1_000
# How often the walk over a shard's records begins again because something was gone.
_WALKS_MAX = 3


@dataclass(frozen=True, kw_only=True)
class AuditStores:
    event_log: EventLog
    ledger: Ledger
    rollup_store: RollupStore
    history_store: HistoryStore
    namespace_store: NamespaceStore


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterAudit:
    namespace: Namespace
    counter: str
    base: Base | None  # None: too little is kept; `why_without_base` says what would help
    why_without_base: str
    audited_through: int  # window
    expected: Rollup
    actual: Rollup
    events: int
    is_different: bool
    differences: tuple[Difference, ...]
    adjustments: tuple[Event, ...]
    pending_adjustments: tuple[Event, ...] = ()  # looked for only where something is different


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardAudit:
    """Some counters of a shard, in the order asked, and what their segments showed on the way."""

    counters: list[CounterAudit]
    segments: list[Difference]


@dataclass(kw_only=True, slots=True)
class WindowAudit:
    check: RecordCheck
    late_segments: int
    differences: list[Difference]
    equal: int = 0
    different: int = 0
    without_base: int = 0
    is_different: bool = field(default=False)


class Audit:
    def __init__(
        self, stores: AuditStores, *, layout: Layout, platform: Platform, clock: Clock
    ) -> None:
        self.stores = stores
        self.layout = layout
        self._log = AuditLog(stores.event_log, stores.ledger, layout, platform, clock)
        self._bases = AuditBases(
            stores.history_store, stores.namespace_store, layout, platform, clock
        )
        self._scan = AuditScan(
            self._log, self._bases, stores.history_store, stores.namespace_store, layout
        )
        self._asked = 0

    async def counter(
        self, namespace_name: str, counter: str, base_time_ns: int | None = None
    ) -> CounterAudit:
        """Raises AuditWithoutBase if too little is kept, unless something wrong was found."""
        async with self._one_of_few():
            namespace = await self._namespace(namespace_name)
            base_window = None if base_time_ns is None else self.layout.window_of(base_time_ns)
            shard = self.shard_of(namespace, counter)
            found = await self.shard(
                shard, [(namespace, counter)], base_window=base_window, verify=True
            )
            [audit] = found.counters
            if found.segments:
                differences = sorted([*found.segments, *audit.differences], key=_by_window)
                audit = replace(
                    audit, is_different=True, differences=tuple(differences[:DIFFERENCES_MAX])
                )
            if audit.is_different:
                pending = await self._log.pending_adjustments(
                    shard, namespace.id, counter, audit.audited_through
                )
                audit = replace(audit, pending_adjustments=tuple(pending))
        if audit.base is None and not audit.is_different:
            raise AuditWithoutBase(audit.why_without_base)
        return audit

    async def window(self, shard: int, time_ns: int) -> WindowAudit:
        """The fold record that the window belongs to, and the counters in it."""
        if not 0 <= shard < self.layout.shards:
            raise InvalidRequest(
                "SHARD_UNKNOWN",
                "shard",
                f"there is no shard {shard}: shards are 0 to {self.layout.shards - 1}",
            )
        async with self._one_of_few():
            record = await self._record_of(shard, self.layout.window_of(time_ns))
            keys: dict[tuple[int, str], None] = {}

            def note(namespace_id: int, events: Sequence[Event]) -> None:
                for event in events:
                    if len(keys) < COUNTERS_PER_WINDOW_MAX:
                        keys[namespace_id, event.counter] = None

            check = await self._log.check(record, seen=note)
            if any(not each.is_lost for each in check.unread):
                raise _too_old(shard)
            late_segments = await self._log.late_segments(record)
            by_id = (await self._snapshot()).by_id
            counters = [
                (by_id[namespace_id], counter) for namespace_id, counter in keys
                if namespace_id in by_id
            ]  # fmt: skip
            found = await self.shard(shard, counters)
        return _of_window(check, late_segments, found)

    async def shard(
        self,
        shard: int,
        counters: Sequence[tuple[Namespace, str]],
        *,
        base_window: int | None = None,
        verify: bool = False,
        give_way: GiveWay = give_way,
    ) -> ShardAudit:
        """Counters of one shard, with one walk over its records."""
        if not counters:
            return ShardAudit(counters=[], segments=[])
        watermark = (await self.stores.ledger.watermarks())[shard]
        keys = [rollup_key(namespace, counter) for namespace, counter in counters]
        rows = await self.stores.rollup_store.read(keys)
        tracks = [
            Track(namespace, counter, row, max(watermark, row.through_window if row else watermark))
            for (namespace, counter), row in zip(counters, rows, strict=True)
        ]
        walk = Walk()
        kept_from = self._log.kept_from(margin=True)
        waiting = tracks
        for _ in range(_WALKS_MAX):
            for track in waiting:
                await self._set_base(track, kept_from, base_window)
            await self._scan.walk(shard, waiting, walk, verify=verify, give_way=give_way)
            waiting = [track for track in waiting if track.broken_through >= 0]
            if not waiting:
                break
            kept_from = max(track.broken_through for track in waiting) + 1
            kept_from = max(kept_from, self._log.kept_from())
        for track in tracks:
            if track.broken_through >= 0:
                track.recount = None
            elif track.recount is not None:
                await self._scan.finish(track, give_way)
        return ShardAudit(
            counters=[self._audit_of(track, kept_from, base_window) for track in tracks],
            segments=sorted(walk.segments.values(), key=_by_window),
        )

    async def check_record(
        self, record: FoldRecord, give_way: GiveWay = give_way
    ) -> list[Difference]:
        """Whether the record's segments are what it says."""
        return (await self._log.check(record, give_way=give_way)).differences()

    def shard_of(self, namespace: Namespace, counter: str) -> int:
        return counter_hash(namespace_prefix(namespace.id), counter) % self.layout.shards

    # Parts of it.

    async def _set_base(self, track: Track, kept_from: int, base_window: int | None) -> None:
        track.broken_through = -1
        row, namespace, counter = track.row, track.namespace, track.counter
        kept_from = min(kept_from, track.through_window + 1)
        base: Base | None
        if base_window is None:
            base = self._bases.start(row, kept_from) if row is not None else None
            if base is None:
                base = await self._bases.earliest(
                    namespace, counter, kept_from, track.through_window
                )
            if base is None and row is None:
                base = self._bases.start(None, kept_from)
            if base is None and row is not None:
                through = max(row.through_window, kept_from - 1)
                base = Base(kind=BaseKind.ROLLUP, through_window=through, state=row)
        else:
            base = None
            if row is None or base_window < row.first_window:
                base = self._bases.start(row, kept_from)
            if base is None:
                window = min(base_window, track.through_window)
                base = await self._bases.at(namespace, counter, kept_from, window)
        track.recount = None
        if base is not None:
            track.recount = Recount(self.layout, base, row, track.through_window)

    def _audit_of(self, track: Track, kept_from: int, base_window: int | None) -> CounterAudit:
        recount, actual = track.recount, track.row or ZERO
        base = None if recount is None else recount.base
        if base is not None and base.kind is BaseKind.ROLLUP:
            base = None
        return CounterAudit(
            namespace=track.namespace,
            counter=track.counter,
            base=base,
            why_without_base="" if base else _why_without(track, kept_from, base_window),
            audited_through=track.through_window,
            expected=actual if recount is None else recount.expected,
            actual=actual,
            events=0 if recount is None else recount.events,
            is_different=recount is not None and recount.is_different,
            differences=tuple(sorted(recount.differences if recount else (), key=_by_window)),
            adjustments=tuple(recount.adjustments if recount else ()),
        )

    async def _record_of(self, shard: int, window: int) -> FoldRecord:
        watermark = (await self.stores.ledger.watermarks())[shard]
        if window > watermark:
            raise FoldPending(
                f"shard {shard} is folded up to window {watermark}, and window {window} is later: "
                "ask again when it is folded",
                retry_after_ms=self.layout.window_ms,
            )
        records = await self.stores.ledger.folds(shard, window, window)
        if not records:
            raise _too_old(shard)
        return records[0]

    async def _snapshot(self) -> Snapshot:
        snapshot = await self.stores.namespace_store.latest()
        if snapshot is None:
            raise NamespaceUnknown("there are no namespaces yet: apply some first")
        return snapshot

    async def _namespace(self, name: str) -> Namespace:
        namespace = (await self._snapshot()).namespaces.get(name)
        if namespace is None:
            raise NamespaceUnknown(f"there is no namespace {name}: create it first")
        if namespace.strategy is Strategy.BEST_EFFORT and namespace.shadow is None:
            raise Unsupported(f"namespace {name} is best_effort: its adds leave no events to audit")
        return namespace

    @asynccontextmanager
    async def _one_of_few(self) -> AsyncIterator[None]:
        if self._asked >= _AUDITS_AT_ONCE_MAX:
            raise Overloaded(
                f"{self._asked} audits run already, which is the limit: try again later",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        self._asked += 1
        try:
            yield
        finally:
            self._asked -= 1


def rollup_key(namespace: Namespace, counter: str) -> RollupKey:
    hashed = counter_hash(namespace_prefix(namespace.id), counter)
    return RollupKey(namespace.id, hashed % ROLLUP_BUCKETS[namespace.cardinality], counter)


def _of_window(check: RecordCheck, late_segments: int, found: ShardAudit) -> WindowAudit:
    own = check.differences()
    audit = WindowAudit(
        check=check,
        late_segments=late_segments,
        differences=own + [each for each in found.segments if each not in own],
    )
    for counter in found.counters:
        audit.different += counter.is_different
        if counter.base is None:
            audit.without_base += not counter.is_different
        else:
            audit.equal += not counter.is_different
        where = f"counter {counter.counter} of namespace {counter.namespace.name}: "
        audit.differences += [
            replace(each, message=where + each.message) for each in counter.differences
        ]
    audit.is_different = bool(own) or bool(found.segments) or audit.different > 0
    audit.differences = audit.differences[:DIFFERENCES_MAX]
    return audit


def _by_window(difference: Difference) -> tuple[int, int]:
    return difference.from_window, difference.to_window


def _too_old(shard: int) -> HistoryTooOld:
    return HistoryTooOld(
        f"the fold of this window of shard {shard}, or the segments that it names, are no longer "
        "kept: ask for a window within log_retention"
    )


def _why_without(track: Track, kept_from: int, base_window: int | None) -> str:
    named = f"counter {track.counter} of namespace {track.namespace.name}"
    if base_window is not None:
        return (
            f"{named} has no known state at base_time from which all events are kept: leave "
            "base_time out, or ask for another time"
        )
    if track.row is not None and track.row.changed_window < kept_from:
        return (
            f"{named} has not changed since what is kept of the event log begins: there is nothing "
            "to count again"
        )
    if not track.namespace.history:
        return (
            f"{named} began before what is kept of the event log, and its namespace keeps no "
            "history to begin with: give the namespace a history, or a longer log_retention"
        )
    return (
        f"{named} began before what is kept of the event log, and no state of its history reaches "
        "into it: keep shorter steps, or a longer log_retention"
    )
