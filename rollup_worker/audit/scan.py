"""Recounts of many counters of one shard, in one walk over its fold records.

Memory is bounded: a record's events are folded before the next record is read, and the states that
the history should have are compared whenever there are many of them.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from counter.digest import Digest
from counter.errors import StoreDamaged
from counter.events import Event
from counter.history import HistoryRow
from counter.namespaces import Namespace, Snapshot
from counter.rollups import FoldRecord, Rollup
from counter.storage.ports import CounterKey, HistoryKey, HistoryStore, NamespaceStore
from counter.windows import Layout
from rollup_worker.audit.bases import AuditBases
from rollup_worker.audit.log import AuditLog, GiveWay, RecordCheck, Unread, difference_of
from rollup_worker.audit.recount import Recount, StepKey
from rollup_worker.audit.values import Difference, DifferenceKind

# States that wait for their comparison, over all counters of a walk.
_PENDING_MAX = 50_000
_ROWS_PER_PAGE = 1_000
_SNAPSHOTS_MAX = 8


@dataclass(slots=True)
class Track:
    """A counter on its way through the records."""

    namespace: Namespace
    counter: str
    row: Rollup | None
    through_window: int  # records up to here are in the row, and no others
    recount: Recount | None = None  # None: there is no base
    # Up to here events are lost: the recount has to begin again, after that.
    broken_through: int = -1

    @property
    def key(self) -> CounterKey:
        return self.namespace.id, self.counter

    def wants(self, window: int) -> bool:
        """Whether events of the window are to be counted again."""
        assert self.recount is not None
        return self.broken_through < 0 and window > self.recount.base.through_window


@dataclass(slots=True)
class Walk:
    """What a walk found beside the counters themselves."""

    segments: dict[object, Difference] = field(default_factory=dict)  # each once
    pending: int = 0  # states that wait for their comparison, over all counters


class AuditScan:
    def __init__(
        self,
        log: AuditLog,
        bases: AuditBases,
        history_store: HistoryStore,
        namespace_store: NamespaceStore,
        layout: Layout,
    ) -> None:
        self._log = log
        self._bases = bases
        self._history = history_store
        self._namespaces = namespace_store
        self._layout = layout
        self._snapshots: dict[int, Snapshot] = {}

    async def walk(
        self, shard: int, tracks: Sequence[Track], walk: Walk, *, verify: bool, give_way: GiveWay
    ) -> None:
        """Gives each track its events. `verify`: also compares the digests of their records."""
        bases = [each.recount.base for each in tracks if each.recount is not None]
        if not bases:
            return
        by_key = {each.key: each for each in tracks if each.recount is not None}
        next_window = min(base.through_window for base in bases) + 1
        last_window = max(each.through_window for each in by_key.values())
        in_all_through = min(each.through_window for each in by_key.values())
        async for record in self._log.records(shard, next_window, last_window):
            if record.from_window > next_window:
                self._lost_records(by_key, walk, shard, next_window, record.from_window - 1)
            next_window = record.to_window + 1
            if not record.segments:
                continue
            wanted = by_key
            if record.to_window > in_all_through:
                wanted = {
                    key: each
                    for key, each in by_key.items()
                    if record.to_window <= each.through_window
                }
            await self._take(record, wanted, walk, verify=verify, give_way=give_way)
            if walk.pending > _PENDING_MAX:
                for track in by_key.values():
                    await self._compare_pending(track)
                walk.pending = 0
        if next_window <= last_window:
            self._lost_records(by_key, walk, shard, next_window, last_window)

    async def finish(self, track: Track, give_way: GiveWay) -> None:
        """Compares what there is to compare of a track that has all its events."""
        assert track.recount is not None
        await self._compare_pending(track)
        await self._check_chains(track, give_way)
        track.recount.finish()

    async def _take(
        self,
        record: FoldRecord,
        by_key: dict[CounterKey, Track],
        walk: Walk,
        *,
        verify: bool,
        give_way: GiveWay,
    ) -> None:
        ids = {namespace_id for namespace_id, _ in by_key}
        refs = [ref for ref in record.segments if ref.namespace_id in ids]
        # A record whose first windows are older than what is kept may have lost segments already.
        verify = verify and bool(refs) and record.from_window >= self._log.kept_from()
        if verify:
            refs = list(record.segments)
        elif refs:
            from_window = min(_base_window(each) for each in by_key.values()) + 1
            refs = [ref for ref in refs if ref.window >= from_window]
        events: defaultdict[CounterKey, list[Event]] = defaultdict(list)
        digest, event_count, unread = Digest(), 0, []
        async for found in self._log.segments(refs, give_way):
            if isinstance(found, Unread):
                unread.append(found)
                continue
            ref = found.ref
            event_count += len(found.events)
            if verify:
                digest.add(ref.namespace_id, found.body)
            if ref.namespace_id not in ids:
                continue
            for event in found.events:
                track = by_key.get((ref.namespace_id, event.counter))
                if track is not None and track.wants(ref.window):
                    events[track.key].append(event)
        for each in unread:
            self._unread(each, by_key, walk)
        if verify and events and not unread:
            check = RecordCheck(record=record, events=event_count, digest=digest.value(), unread=())
            for difference in check.differences():
                walk.segments.setdefault((record.shard, record.from_window), difference)
        if events:
            await self._fold(record, by_key, events, walk)

    async def _fold(
        self,
        record: FoldRecord,
        by_key: dict[CounterKey, Track],
        events: dict[CounterKey, list[Event]],
        walk: Walk,
    ) -> None:
        snapshot = await self._snapshot(record.namespaces_version)
        for key, of_counter in events.items():
            track = by_key[key]
            namespace = snapshot.by_id.get(track.namespace.id)
            if namespace is None or track.recount is None or track.broken_through >= 0:
                continue
            before = len(track.recount.pending)
            steps_ms = [each.step_ms for each in namespace.history]
            track.recount.take(of_counter, record.to_window, steps_ms)
            walk.pending += len(track.recount.pending) - before

    def _unread(self, unread: Unread, by_key: dict[CounterKey, Track], walk: Walk) -> None:
        ref = unread.ref
        if unread.is_lost:
            walk.segments.setdefault(ref.segment_id, difference_of(unread))
        for track in by_key.values():
            if track.namespace.id == ref.namespace_id and ref.window > _base_window(track):
                track.broken_through = max(track.broken_through, ref.window)

    def _lost_records(
        self,
        by_key: dict[CounterKey, Track],
        walk: Walk,
        shard: int,
        from_window: int,
        to_window: int,
    ) -> None:
        """Records are kept for longer than segments, so these did not expire."""
        walk.segments.setdefault(
            (shard, from_window),
            Difference(
                kind=DifferenceKind.SEGMENTS,
                from_window=from_window,
                to_window=to_window,
                expected=0,
                actual=0,
                message=f"the fold records of shard {shard} for windows {from_window} to "
                f"{to_window} are gone: which segments counted is not known any more",
            ),
        )
        for track in by_key.values():
            if to_window > _base_window(track) and from_window <= track.through_window:
                track.broken_through = max(track.broken_through, to_window)

    async def _compare_pending(self, track: Track) -> None:
        recount = track.recount
        if recount is None or not recount.pending or track.broken_through >= 0:
            return
        steps: defaultdict[int, list[int]] = defaultdict(list)
        for step_ms, row, _ in recount.pending:
            steps[step_ms].append(row.step)
        stored: dict[StepKey, HistoryRow] = {}
        due_from: dict[int, int] = {}
        kept = {each.step_ms for each in track.namespace.history}
        for step_ms, of_length in steps.items():
            if step_ms in kept:
                due_from[step_ms] = await self._bases.due_from(track.namespace, step_ms)
            key = HistoryKey(track.namespace.id, track.counter, step_ms)
            next_step, last_step = of_length[0], of_length[-1]
            while rows := await self._history.between(
                key, next_step, last_step, limit=_ROWS_PER_PAGE
            ):
                stored.update({(step_ms, row.step): row for row in rows})
                next_step = rows[-1].step + 1
        recount.compare_pending(stored, due_from)

    async def _check_chains(self, track: Track, give_way: GiveWay) -> None:
        """All that is kept of the history, up to the rollup that the audit read: what folds have
        added since does not count."""
        recount = track.recount
        assert recount is not None
        newest = track.row or recount.expected
        if newest.changed_window < 0:
            return
        for each in track.namespace.history:
            key = HistoryKey(track.namespace.id, track.counter, each.step_ms)
            due_from = await self._bases.due_from(track.namespace, each.step_ms)
            last_step = self._layout.step_of(newest.changed_window, each.step_ms) - 1
            before: HistoryRow | None = None
            next_step = 0
            while rows := await self._history.between(
                key, next_step, last_step, limit=_ROWS_PER_PAGE
            ):
                for row in rows:
                    recount.check_chain(each.step_ms, before, row, due_from)
                    before = row
                next_step = rows[-1].step + 1
                await give_way()
            recount.check_chain(each.step_ms, before, None, due_from)

    async def _snapshot(self, version: int) -> Snapshot:
        """A version never changes, so the last few are kept."""
        known = self._snapshots.get(version)
        if known is None:
            known = await self._namespaces.get(version)
            if known is None:
                raise StoreDamaged(f"version {version} of the namespaces is gone")
            while len(self._snapshots) >= _SNAPSHOTS_MAX:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[version] = known
        return known


def _base_window(track: Track) -> int:
    assert track.recount is not None
    return track.recount.base.through_window
