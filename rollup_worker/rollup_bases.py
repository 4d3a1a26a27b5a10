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
from dataclasses import dataclass, field

from counter.rollups import FoldRecord, Rollup, RollupKey
from counter.storage.ports import RollupRow, RollupStore

# Of one worker, in all its shards: some tens of megabytes.
ROLLUPS_KEPT_MAX = 100_000


@dataclass(slots=True)
class _Kept:
    """Of one shard, in two generations: the older one goes as a whole when the newer one is full.
    To keep rollups in order of use would cost every fold more than it saves."""

    through: int = -1  # the end of the last record that was folded here
    newer: dict[RollupKey, Rollup] = field(default_factory=dict)
    older: dict[RollupKey, Rollup] = field(default_factory=dict)


class RollupBases:
    def __init__(
        self, store: RollupStore, *, shards: int, kept_max: int = ROLLUPS_KEPT_MAX
    ) -> None:
        self._store = store
        self._generation_max = kept_max // shards // 2
        self._kept: dict[int, _Kept] = {}  # by shard

    async def before(
        self, record: FoldRecord, keys: Sequence[RollupKey]
    ) -> Sequence[Rollup | None]:
        """The rollups on which the record builds; None for counters that have none."""
        kept = self._kept_before(record)
        bases = [kept.newer.get(key) or kept.older.get(key) for key in keys]
        if None in bases:
            missing = [key for key, base in zip(keys, bases, strict=True) if base is None]
            found = iter(await self._store.read(missing))
            bases = [next(found) if base is None else base for base in bases]
        return bases

    def folded(self, record: FoldRecord, rows: Sequence[RollupRow]) -> None:
        """The record is folded, and these are all the rollups that it changed."""
        kept = self._kept[record.shard] = self._kept_before(record)
        kept.through = record.to_window
        kept.newer.update(rows)
        if len(kept.newer) > self._generation_max:
            kept.newer, kept.older = {}, kept.newer

    def _kept_before(self, record: FoldRecord) -> _Kept:
        kept = self._kept.get(record.shard)
        if kept is None or kept.through != record.from_window - 1:
            return _Kept()
        return kept
