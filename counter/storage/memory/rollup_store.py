from collections import defaultdict
from collections.abc import Sequence

from counter.rollups import Rollup, RollupKey
from counter.storage.name_range import name_range
from counter.storage.ports import RollupRow


class MemoryRollupStore:
    def __init__(self) -> None:
        # By namespace and bucket, then by counter.
        self._buckets: defaultdict[tuple[int, int], dict[str, Rollup]] = defaultdict(dict)

    async def read(self, keys: Sequence[RollupKey]) -> list[Rollup | None]:
        return [self._bucket(key.namespace_id, key.bucket).get(key.counter) for key in keys]

    async def write(self, rows: Sequence[RollupRow]) -> None:
        for (namespace_id, bucket, counter), rollup in rows:
            rollups = self._buckets[namespace_id, bucket]
            present = rollups.get(counter)
            if present is None or present.through_window <= rollup.through_window:
                rollups[counter] = rollup

    async def page(
        self, namespace_id: int, bucket: int, *, prefix: str, after: str, limit: int
    ) -> list[tuple[str, Rollup]]:
        first, end = name_range(prefix, after)
        rollups = self._bucket(namespace_id, bucket)
        names = sorted(name for name in rollups if first <= name < end)
        return [(name, rollups[name]) for name in names[:limit]]

    async def count(self, namespace_id: int, bucket: int) -> int:
        return len(self._bucket(namespace_id, bucket))

    def _bucket(self, namespace_id: int, bucket: int) -> dict[str, Rollup]:
        return self._buckets.get((namespace_id, bucket), {})
