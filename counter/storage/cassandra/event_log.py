import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence

from counter.clock import NS_PER_S, Clock
from counter.metrics import CLOSE_CHECK_SECONDS
from counter.segments import Segment, SegmentRef
from counter.settings import Platform
from counter.storage.cassandra.ledger import CassandraLedger
from counter.storage.cassandra.session import CassandraSession
from counter.storage.ports import FOREVER, Closed

# Of one mutation, beyond its last segment. A node takes sixteen times as much.
_MUTATION_BYTES = 512 * 1_024
# How many windows one range is read with at once; each is a query of its own.
_WINDOWS_AT_ONCE = 32
# Of one answer with bodies: some megabytes at the most.
_SEGMENTS_PER_QUERY = 64
_EVENTS_PER_QUERY = 10_000
_EXPIRY_MARGIN_NS = 600 * NS_PER_S


class CassandraEventLog:
    """A partition per window and lane, in which the segments of a shard lie together.

    What one append has of a window and lane is one mutation, if it is not too large. Nobody relies
    on that: an append that failed is unknown as a whole. The close check of an append is a quorum
    read of the close mark that begins when the writes have returned; commits that wait for it at
    the same time share one.
    """

    def __init__(
        self, session: CassandraSession, ledger: CassandraLedger, clock: Clock, platform: Platform
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._clock = clock
        self._region = platform.region
        self._ttl_s = platform.log_retention_s
        self._close_check = CLOSE_CHECK_SECONDS.at()
        self._ahead_ns = platform.accept_limit_ns + 2 * platform.max_clock_skew_ns

    async def append(self, segments: Sequence[Segment]) -> Closed:
        writes = [self._append(each) for each in _mutations(segments)]
        if len(writes) == 1:
            await writes[0]
        else:
            await asyncio.gather(*writes)
        with self._close_check.timed():
            return await self._ledger.closed()

    async def refs(self, shard: int, from_window: int, to_window: int) -> list[SegmentRef]:
        first = max(from_window, self._first_window())
        last = self._last_window() if to_window == FOREVER else to_window
        refs: list[SegmentRef] = []
        for start in range(first, last + 1, _WINDOWS_AT_ONCE):
            windows = range(start, min(start + _WINDOWS_AT_ONCE, last + 1))
            for found in await asyncio.gather(*(self._refs_of(shard, each) for each in windows)):
                refs += found
        return refs

    async def bodies(self, refs: Sequence[SegmentRef]) -> list[bytes | None]:
        found: dict[bytes, bytes] = {}
        for of_query in await asyncio.gather(*(self._bodies_of(each) for each in _queries(refs))):
            found |= of_query
        return [found.get(ref.segment_id) for ref in refs]

    async def drop_through(self, window: int) -> int:
        return 0  # they expire

    async def _append(self, segments: Sequence[Segment]) -> None:
        rows = [
            (
                self._region,
                ref.window,
                ref.lane,
                ref.shard,
                ref.namespace_id,
                ref.segment_id,
                ref.event_count,
                body,
                self._ttl_s,
            )
            for ref, body in segments
        ]
        if len(rows) == 1:
            await self._session.run("append_segment", rows[0])
        else:
            await self._session.run_batch("append_segment", rows)

    async def _refs_of(self, shard: int, window: int) -> list[SegmentRef]:
        lanes = list(range(self._ledger.layout.lanes))
        rows = await self._session.run("segment_refs", (self._region, window, lanes, shard))
        return sorted(SegmentRef(window, *row) for row in rows)

    async def _bodies_of(self, refs: Sequence[SegmentRef]) -> dict[bytes, bytes]:
        ref = refs[0]
        ids = [each.segment_id for each in refs]
        key = (self._region, ref.window, ref.lane, ref.shard, ref.namespace_id, ids)
        return dict(await self._session.run("segment_bodies", key))

    def _first_window(self) -> int:
        """The first one whose segments may not all have expired. By the clock that is behind, and
        with a margin: a window that is left out here would be lost."""
        layout = self._ledger.layout
        now_ns = min(self._clock.now_ns(), self._ledger.store_time_ns())
        kept_from_ns = now_ns - self._ttl_s * NS_PER_S - self._ahead_ns - _EXPIRY_MARGIN_NS
        return max(layout.from_window, layout.window_of(max(0, kept_from_ns)))

    def _last_window(self) -> int:
        """The last one that an acknowledged event can be in. Of this process's clock and the
        store's, whichever is ahead: one of them may have been set back."""
        now_ns = max(self._clock.now_ns(), self._ledger.store_time_ns())
        return self._ledger.layout.window_of(now_ns + self._ahead_ns)


def _mutations(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Groups by partition, in pieces that one mutation can carry."""
    partitions: defaultdict[tuple[int, int], list[Segment]] = defaultdict(list)
    for segment in segments:
        partitions[segment.ref.window, segment.ref.lane].append(segment)
    for partition in partitions.values():
        piece: list[Segment] = []
        size = 0
        for segment in partition:
            piece.append(segment)
            size += len(segment.body)
            if size >= _MUTATION_BYTES:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece


def _queries(refs: Sequence[SegmentRef]) -> Iterator[list[SegmentRef]]:
    """Groups by partition, shard and namespace, in pieces that one answer can carry."""
    groups: defaultdict[tuple[int, int, int, int], list[SegmentRef]] = defaultdict(list)
    for ref in dict.fromkeys(refs):
        groups[ref.window, ref.lane, ref.shard, ref.namespace_id].append(ref)
    for group in groups.values():
        piece: list[SegmentRef] = []
        events = 0
        for ref in group:
            piece.append(ref)
            events += ref.event_count
            if len(piece) == _SEGMENTS_PER_QUERY or events >= _EVENTS_PER_QUERY:
                yield piece
                piece, events = [], 0
        if piece:
            yield piece
