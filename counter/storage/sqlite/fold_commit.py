import sqlite3

from counter.rollups import FoldRecord
from counter.storage.ports import Fold
from counter.storage.sqlite.database import Database
from counter.storage.sqlite.history_store import SqliteHistoryStore
from counter.storage.sqlite.ledger import SqliteLedger
from counter.storage.sqlite.rollup_store import SqliteRollupStore


class SqliteFoldCommit:
    """A fold's record, history, rollups and watermark in one transaction: all of it or nothing."""

    def __init__(
        self,
        database: Database,
        ledger: SqliteLedger,
        history: SqliteHistoryStore,
        rollups: SqliteRollupStore,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._history = history
        self._rollups = rollups

    async def commit(self, fold: Fold, *, rollups_per_batch: int) -> FoldRecord:
        """`rollups_per_batch` is for stores that take a fold in several pieces: here it is one."""
        record = fold.record

        def job(connection: sqlite3.Connection) -> FoldRecord:
            agreed = self._ledger.propose_in(connection, record)
            if agreed == record:
                self._history.write_in(connection, fold.history, fold.adjustments)
                self._rollups.write_in(connection, fold.rollups)
                self._ledger.advance_in(connection, record.shard, record.to_window)
            return agreed

        agreed = await self._database.write(job)
        if agreed == record:
            self._ledger.advanced(record.shard, record.to_window)
        return agreed
