"""From a fold record to everything that it leads to: rollups, history, adjustments.

The answer is the same whoever computes it, and when (I3): it depends on the record, on the segments
that it names, on the version of the namespaces that it names, and on rollups that stand where the
record starts.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter

import msgspec

from counter.digest import Digest, differ
from counter.errors import StoreDamaged
from counter.events import Event
from counter.fold import FoldCounts, adjustments, gather
from counter.history import Adjustment, HistoryRow, fold_with_history
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import EMPTY, Namespace, Snapshot
from counter.rollups import ZERO, FoldRecord, RollupKey
from counter.segments import slices, unfolded_events
from counter.storage.ports import (
    EventLog,
    Fold,
    HistoryKey,
    HistoryWrite,
    NamespaceStore,
)
from counter.windows import Layout
from rollup_worker.rollup_bases import RollupBases

# Segments of a window are spread over the store: to read more of them at once is fewer requests.
_EVENTS_PER_READ = 10_000
# Between slices of the work others have their turn: in an embedded Tally those who add, which is
# why folds that have much to do must not have more of the event loop than they.
_EVENTS_PER_SLICE = 2_000
_COUNTERS_PER_SLICE = 10

_note_of = attrgetter("note")

EventsOfNamespaces = dict[int, defaultdict[str, list[Event]]]  # by id, then by counter


class RecordFolds:
    def __init__(
        self,
        event_log: EventLog,
        rollup_bases: RollupBases,
        namespace_store: NamespaceStore,
        layout: Layout,
    ) -> None:
        self._event_log = event_log
        self._rollup_bases = rollup_bases
        self._namespace_store = namespace_store
        self._layout = layout
        self._last_snapshot = EMPTY

    async def fold_of(
        self, record: FoldRecord, counts: FoldCounts, *, is_agreed: bool, rollups_per_batch: int
    ) -> Fold:
        """A proposal gets its digest here; a record that is agreed must have the same one."""
        events, adjusted, digest = await self._events(record)
        if not is_agreed:
            record = msgspec.structs.replace(record, digest=digest)
        elif differ(record.digest, digest):
            raise StoreDamaged(
                f"the segments of shard {record.shard} from window {record.from_window} to "
                f"{record.to_window} are not what its fold record says (digest {digest.hex()}, "
                f"recorded {record.digest.hex()}): restore them from another replica or a backup"
            )
        fold = Fold(record=record, rollups=[], history=[], adjustments=[])
        if events:
            snapshot = await self.snapshot(record.namespaces_version)
            for namespace_id, of_namespace in events.items():
                namespace = snapshot.by_id.get(namespace_id)
                # Deleted ones too, since somebody may bring them back with their counts. One that
                # is not even remembered as deleted stays away: nobody can ever read it again.
                if namespace is not None:
                    await self._add_namespace(
                        fold, namespace, of_namespace, adjusted, counts, rollups_per_batch
                    )
        return fold

    async def snapshot(self, version: int) -> Snapshot:
        """A version never changes, so the last one is kept. Version 0, of records from before the
        first namespaces were applied, is not in the store."""
        if version == EMPTY.version:
            return EMPTY
        if self._last_snapshot.version != version:
            snapshot = await self._namespace_store.get(version)
            assert snapshot is not None, version
            self._last_snapshot = snapshot
        return self._last_snapshot

    async def _events(self, record: FoldRecord) -> tuple[EventsOfNamespaces, set[str], bytes]:
        """With the names of counters that have adjustments, and the segments' digest.

        The record's segments are sorted: ids rise within each window.
        """
        events: EventsOfNamespaces = {}
        adjusted: set[str] = set()
        digest = Digest()
        for read in slices(record.segments, events_max=_EVENTS_PER_READ):
            bodies = iter(await self._event_log.bodies(read))
            for slice_ in slices(read, events_max=_EVENTS_PER_SLICE):
                for ref in slice_:
                    body = next(bodies)
                    decoded = unfolded_events(ref, body)
                    assert body is not None, "or it would have had no events"
                    digest.add(ref.namespace_id, body)
                    if any(map(_note_of, decoded)):
                        adjusted.update(each.counter for each in decoded if each.note is not None)
                    of_namespace = events.setdefault(ref.namespace_id, defaultdict(list))
                    gather(of_namespace, [(ref.segment_id, decoded)])
                await asyncio.sleep(0)
        return events, adjusted, digest.value()

    async def _add_namespace(
        self,
        fold: Fold,
        namespace: Namespace,
        events: dict[str, list[Event]],
        adjusted: Collection[str],
        counts: FoldCounts,
        rollups_per_batch: int,
    ) -> None:
        record, layout = fold.record, self._layout
        steps_ms = [each.step_ms for each in namespace.history]
        recent_windows = namespace.recent_windows(layout.window_ms)
        for batch in _batches(namespace, events, rollups_per_batch):
            rows = await self._rollup_bases.before(record, batch)
            for number, (key, row) in enumerate(zip(batch, rows, strict=True), 1):
                if number % _COUNTERS_PER_SLICE == 0:
                    await asyncio.sleep(0)
                base = row or ZERO
                if base.through_window >= record.from_window:
                    # Another fold from here is in the row: either this very record was committed
                    # before, or another one was, and then the commit of this one will say so.
                    continue
                rollup, past = fold_with_history(
                    base,
                    events[key.counter],
                    record.to_window,
                    counts,
                    layout=layout,
                    steps_ms=steps_ms,
                    recent_windows=recent_windows,
                )
                fold.rollups.append((key, rollup))
                if past:
                    fold.history.extend(_history_writes(namespace, key.counter, past))
                if key.counter in adjusted:
                    fold.adjustments.extend(_adjustments(namespace.id, events[key.counter]))
            await asyncio.sleep(0)


def _batches(
    namespace: Namespace, counters: Iterable[str], rollups_per_batch: int
) -> Iterator[list[RollupKey]]:
    buckets = ROLLUP_BUCKETS[namespace.cardinality]
    prefix = namespace_prefix(namespace.id)
    keys = [(counter_hash(prefix, counter) % buckets, counter) for counter in counters]
    keys.sort(key=itemgetter(0))  # neighbours in the store are read and written together
    for start in range(0, len(keys), rollups_per_batch):
        yield [
            RollupKey(namespace.id, bucket, counter)
            for bucket, counter in keys[start : start + rollups_per_batch]
        ]


def _history_writes(
    namespace: Namespace, counter: str, past: Sequence[tuple[int, HistoryRow]]
) -> Iterator[HistoryWrite]:
    retention_ms = {each.step_ms: each.retention_ms for each in namespace.history}
    for step_ms, row in past:
        key = HistoryKey(namespace.id, counter, step_ms)
        yield HistoryWrite(key, row, retention_ms[step_ms])


def _adjustments(namespace_id: int, events: Sequence[Event]) -> Iterator[Adjustment]:
    for event in adjustments(events):
        assert event.note is not None
        assert event.delta is not None, "an adjustment is an add"
        author, reason = event.note
        yield Adjustment(
            namespace_id, event.counter, event.time_ns, event.token, event.delta, author, reason
        )
