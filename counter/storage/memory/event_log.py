from collections import defaultdict
from collections.abc import Sequence

from counter.segments import Segment, SegmentRef
from counter.storage.memory.ledger import MemoryLedger
from counter.storage.ports import Closed


class MemoryEventLog:
    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger
        # By (window, shard), then by segment id.
        self._partitions: defaultdict[tuple[int, int], dict[bytes, Segment]] = defaultdict(dict)

    async def append(self, segments: Sequence[Segment]) -> Closed:
        for segment in segments:
            ref = segment.ref
            self._partitions[ref.window, ref.shard].setdefault(ref.segment_id, segment)
        return await self._ledger.closed()

    async def refs(self, shard: int, from_window: int, to_window: int) -> list[SegmentRef]:
        return sorted(
            segment.ref
            for (window, of_shard), partition in self._partitions.items()
            if of_shard == shard and from_window <= window <= to_window
            for segment in partition.values()
        )

    async def bodies(self, refs: Sequence[SegmentRef]) -> list[bytes | None]:
        found = []
        for ref in refs:
            segment = self._partitions.get((ref.window, ref.shard), {}).get(ref.segment_id)
            found.append(None if segment is None else segment.body)
        return found

    async def drop_through(self, window: int) -> int:
        dropped = [key for key in self._partitions if key[0] <= window]
        return sum(len(self._partitions.pop(key)) for key in dropped)
