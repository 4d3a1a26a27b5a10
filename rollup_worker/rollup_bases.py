"""Rollups as this worker's own folds left them, so that the next fold need not read them again.

*Why what is kept is what the store would say.* A rollup before a record is a pure function of the
shard's records before it (I3). What is kept of a shard was computed here, from those very records,
one after the other: when this worker has folded a record, it knows the rollup of each counter in
it, and the rollups of all others are what they were. So what is kept is right as long as each
record starts where the last one that was folded here ended. If it does not, others have folded in
between, and everything of that shard is forgotten.

A counter that is not kept is read. Nothing but folds writes rollups; if somebody else did, by hand,
the next fold of a counter that is kept here puts its rollup right again.
"""

from collections.abc import Sequence
from itertools import islice

from counter.rollups import FoldRecord, Rollup, RollupKey
from counter.storage.ports import RollupRow, RollupStore

# Of one worker, in all its shards: some tens of megabytes.
ROLLUPS_KEPT_MAX = 100_000


class RollupBases:
    def __init__(
        self, store: RollupStore, *, shards: int, kept_max: int = ROLLUPS_KEPT_MAX
    ) -> None:
        self._store = store
        self._kept_max = kept_max // shards
        self._kept: dict[int, dict[RollupKey, Rollup]] = {}  # by shard; the oldest first
        self._through: dict[int, int] = {}  # the end of the last record that was folded here

    async def before(
        self, record: FoldRecord, keys: Sequence[RollupKey]
    ) -> Sequence[Rollup | None]:
        """The rollups on which the record builds; None for counters that have none."""
        kept = self._kept_before(record)
        if not kept:
            return await self._store.read(keys)
        missing = [key for key in keys if key not in kept]
        found = dict(zip(missing, await self._store.read(missing), strict=True)) if missing else {}
        return [kept[key] if key in kept else found[key] for key in keys]

    def folded(self, record: FoldRecord, rows: Sequence[RollupRow]) -> None:
        """The record is folded, and these are all the rollups that it changed."""
        kept = self._kept_before(record)
        for key, rollup in rows:
            kept.pop(key, None)  # so that it is the newest
            kept[key] = rollup
        for key in list(islice(kept, max(0, len(kept) - self._kept_max))):
            del kept[key]
        self._kept[record.shard], self._through[record.shard] = kept, record.to_window

    def _kept_before(self, record: FoldRecord) -> dict[RollupKey, Rollup]:
        if self._through.get(record.shard) != record.from_window - 1:
            return {}
        return self._kept[record.shard]
