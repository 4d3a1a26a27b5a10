from counter.clock import Clock
from counter.rollups import FoldRecord, SetAside
from counter.storage.ports import Closed
from counter.windows import Layout


class MemoryLedger:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._layout: Layout | None = None
        self._closed_through = -1
        self._watermarks: list[int] = []
        self._folds: list[dict[int, FoldRecord]] = []  # by shard, then by from_window
        self._set_asides: list[dict[bytes, SetAside]] = []  # by shard, then by segment

    async def open_layout(self, wanted: Layout) -> Layout:
        if self._layout is None:
            self._layout = wanted
            self._closed_through = wanted.from_window - 1
            self._watermarks = [wanted.from_window - 1] * wanted.shards
            self._folds = [{} for _ in range(wanted.shards)]
            self._set_asides = [{} for _ in range(wanted.shards)]
        return self._layout

    async def closed(self) -> Closed:
        return Closed(self._closed_through, self._clock.now_ns())

    async def close(self, window: int) -> None:
        self._closed_through = max(self._closed_through, window)

    async def watermarks(self) -> list[int]:
        return list(self._watermarks)

    async def advance(self, shard: int, window: int) -> None:
        self._watermarks[shard] = max(self._watermarks[shard], window)

    async def propose(self, record: FoldRecord) -> FoldRecord:
        return self._folds[record.shard].setdefault(record.from_window, record)

    async def folds(self, shard: int, from_window: int, to_window: int) -> list[FoldRecord]:
        return [
            record
            for start, record in sorted(self._folds[shard].items())
            if start <= to_window and record.to_window >= from_window
        ]

    async def drop_folds_through(self, window: int) -> int:
        dropped = 0
        for records in self._folds:
            for start in [s for s, record in records.items() if record.to_window <= window]:
                del records[start]
                dropped += 1
        for decisions in self._set_asides:
            for key in [k for k, each in decisions.items() if each.segment.window <= window]:
                del decisions[key]
        return dropped

    async def set_aside(self, decision: SetAside) -> None:
        segment = decision.segment
        self._set_asides[segment.shard].setdefault(segment.segment_id, decision)

    async def set_asides(self, shard: int) -> list[SetAside]:
        return sorted(self._set_asides[shard].values(), key=lambda each: each.segment)
