import sqlite3
from collections.abc import Sequence

from counter.rollups import FoldRecord
from counter.storage.ports import RollupRow
from counter.storage.sqlite.database import Database
from counter.storage.sqlite.ledger import SqliteLedger
from counter.storage.sqlite.rollup_store import SqliteRollupStore


class SqliteFoldCommit:
    """A fold's record, rollups and watermark in one transaction: all of it or nothing."""

    def __init__(
        self, database: Database, ledger: SqliteLedger, rollups: SqliteRollupStore
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._rollups = rollups

    async def commit(self, record: FoldRecord, rows: Sequence[RollupRow]) -> FoldRecord:
        def job(connection: sqlite3.Connection) -> FoldRecord:
            agreed = self._ledger.propose_in(connection, record)
            if agreed == record:
                self._rollups.write_in(connection, rows)
                self._ledger.advance_in(connection, record.shard, record.to_window)
            return agreed

        agreed = await self._database.write(job)
        if agreed == record:
            self._ledger.advanced(record.shard, record.to_window)
        return agreed
