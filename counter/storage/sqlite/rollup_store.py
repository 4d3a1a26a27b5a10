import sqlite3
from collections.abc import Sequence

from counter.rollups import Rollup, RollupKey
from counter.storage.ports import RollupRow
from counter.storage.sqlite.database import Database, chunks, values

_COLUMNS = "(namespace_id, bucket, counter, region, count, epoch, cleared_at_ns, through_window)"
_MERGE = (
    " ON CONFLICT DO UPDATE SET count = excluded.count, epoch = excluded.epoch, "
    "cleared_at_ns = excluded.cleared_at_ns, through_window = excluded.through_window "
    "WHERE excluded.through_window >= through_window"
)
_READ = (
    " SELECT namespace_id, bucket, counter, count, epoch, cleared_at_ns, through_window "
    "FROM wanted JOIN rollups USING (namespace_id, bucket, counter) WHERE region = ?"
)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class SqliteRollupStore:
    def __init__(self, database: Database, *, region: str) -> None:
        self._database = database
        self._region = region

    async def read(self, keys: Sequence[RollupKey]) -> list[Rollup | None]:
        found: dict[tuple[int, int, str], Rollup] = {}
        for chunk in chunks(keys):
            wanted = values(len(chunk), "(?, ?, ?)")
            statement = f"WITH wanted(namespace_id, bucket, counter) AS ({wanted})" + _READ
            parameters = [each for key in chunk for each in key]
            for row in self._database.read(statement, [*parameters, self._region]):
                found[row[:3]] = Rollup(int(row[3]), row[4], row[5], row[6])
        return [found.get(key) for key in keys]

    async def write(self, rows: Sequence[RollupRow]) -> None:
        await self._database.write(lambda connection: self.write_in(connection, rows))

    def write_in(self, connection: sqlite3.Connection, rows: Sequence[RollupRow]) -> None:
        for chunk in chunks(rows):
            parameters: list[object] = []
            for (namespace_id, bucket, counter), rollup in chunk:
                count: int | str = rollup.count
                if not _INT64_MIN <= rollup.count <= _INT64_MAX:
                    count = str(rollup.count)
                parameters += (
                    namespace_id,
                    bucket,
                    counter,
                    self._region,
                    count,
                    rollup.epoch,
                    rollup.cleared_at_ns,
                    rollup.through_window,
                )
            statement = values(len(chunk), "(?, ?, ?, ?, ?, ?, ?, ?)")
            connection.execute(f"INSERT INTO rollups {_COLUMNS} {statement}{_MERGE}", parameters)
