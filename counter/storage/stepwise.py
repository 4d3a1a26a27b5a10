"""A fold committed step by step, for stores that have no transaction over all of it.

The order is what makes a crash harmless. After the record, everybody folds the same segments.
History comes before the rollups, because it is made from the rollups as they were: a fold that
finds a rollup past its record's end skips it, and the history that goes with it must be there
already. Rows that are written twice are written equal; the watermark, by which readers judge how
complete a row is, comes last.
"""

from counter.rollups import FoldRecord
from counter.storage.ports import Fold, HistoryStore, Ledger, RollupStore


class StepwiseFoldCommit:
    def __init__(self, ledger: Ledger, history: HistoryStore, rollups: RollupStore) -> None:
        self._ledger = ledger
        self._history = history
        self._rollups = rollups

    async def commit(self, fold: Fold, *, rollups_per_batch: int) -> FoldRecord:
        record = fold.record
        agreed = await self._ledger.propose(record)
        if agreed != record:
            return agreed
        if fold.history or fold.adjustments:
            await self._history.write(fold.history, fold.adjustments)
        for start in range(0, len(fold.rollups), rollups_per_batch):
            await self._rollups.write(fold.rollups[start : start + rollups_per_batch])
        await self._ledger.advance(record.shard, record.to_window)
        return agreed
