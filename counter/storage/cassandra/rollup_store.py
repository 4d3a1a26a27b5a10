import asyncio
from collections import defaultdict
from collections.abc import Sequence

from counter.clock import NS_PER_MS
from counter.rollups import Rollup, RollupKey
from counter.settings import Platform
from counter.storage.cassandra.session import CassandraSession
from counter.storage.cassandra.states import from_text, to_text
from counter.storage.name_range import name_range
from counter.storage.ports import RollupRow

_NS_PER_US = 1_000
_ROWS_PER_QUERY = 200
_ROWS_PER_BATCH = 200


class CassandraRollupStore:
    """Rows of one bucket are one partition: read with one query, written as one mutation."""

    def __init__(self, session: CassandraSession, platform: Platform) -> None:
        self._session = session
        self._region = platform.region
        self._window_us = platform.window_ms * NS_PER_MS // _NS_PER_US

    async def read(self, keys: Sequence[RollupKey]) -> list[Rollup | None]:
        by_bucket: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        for key in dict.fromkeys(keys):
            by_bucket[key.namespace_id, key.bucket].append(key.counter)
        found: dict[RollupKey, Rollup] = {}
        queries = [
            self._read(namespace_id, bucket, counters[start : start + _ROWS_PER_QUERY], found)
            for (namespace_id, bucket), counters in by_bucket.items()
            for start in range(0, len(counters), _ROWS_PER_QUERY)
        ]
        await asyncio.gather(*queries)
        return [found.get(key) for key in keys]

    async def write(self, rows: Sequence[RollupRow]) -> None:
        by_bucket: defaultdict[tuple[int, int], list[tuple[object, ...]]] = defaultdict(list)
        region, window_us = self._region, self._window_us
        for (namespace_id, bucket, counter), rollup in rows:
            stamp_us = (rollup.through_window + 1) * window_us
            by_bucket[namespace_id, bucket].append(
                (namespace_id, bucket, counter, region, to_text(rollup), stamp_us)
            )
        batches = [
            self._session.run_batch("write_rollup", of_bucket[start : start + _ROWS_PER_BATCH])
            for of_bucket in by_bucket.values()
            for start in range(0, len(of_bucket), _ROWS_PER_BATCH)
        ]
        await asyncio.gather(*batches)

    async def page(
        self, namespace_id: int, bucket: int, *, prefix: str, after: str, limit: int
    ) -> list[tuple[str, Rollup]]:
        key = (namespace_id, bucket, *name_range(prefix, after), self._region, limit)
        rows = await self._session.run("page_rollups", key)
        return [(counter, from_text(state)) for counter, state in rows]

    async def count(self, namespace_id: int, bucket: int) -> int:
        [(count,)] = await self._session.run("count_rollups", (namespace_id, bucket, self._region))
        return int(count)

    async def _read(
        self, namespace_id: int, bucket: int, counters: list[str], found: dict[RollupKey, Rollup]
    ) -> None:
        key = (namespace_id, bucket, counters, self._region)
        for counter, state in await self._session.run("read_rollups", key):
            found[RollupKey(namespace_id, bucket, counter)] = from_text(state)
