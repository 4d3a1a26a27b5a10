"""A fold committed step by step, for stores that have no transaction over all of it.

The order is what makes a crash harmless. After the record, everybody folds the same segments;
rollups that are written twice are written equal; the watermark, by which readers judge how complete
a row is, comes last.
"""

from collections.abc import Sequence

from counter.rollups import FoldRecord
from counter.storage.ports import Ledger, RollupRow, RollupStore


class StepwiseFoldCommit:
    def __init__(self, ledger: Ledger, rollups: RollupStore) -> None:
        self._ledger = ledger
        self._rollups = rollups

    async def commit(self, record: FoldRecord, rows: Sequence[RollupRow]) -> FoldRecord:
        agreed = await self._ledger.propose(record)
        if agreed != record:
            return agreed
        await self._rollups.write(rows)
        await self._ledger.advance(record.shard, record.to_window)
        return agreed
