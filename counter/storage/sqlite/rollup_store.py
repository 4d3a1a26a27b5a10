import sqlite3
from collections.abc import Sequence

from counter.rollups import Rollup, RollupKey
from counter.storage.name_range import name_range
from counter.storage.ports import RollupRow
from counter.storage.sqlite.database import Database, chunks, read_chunks, values
from counter.storage.sqlite.states import (
    COLUMN_COUNT,
    COLUMNS,
    READ_COLUMNS,
    from_columns,
    to_columns,
)

_INSERT = f"INSERT INTO rollups (namespace_id, bucket, counter, region, {COLUMNS}) "
_ROW = f"({', '.join('?' * (4 + COLUMN_COUNT))})"
_MERGE = (
    " ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in COLUMNS.split(", "))
    + " WHERE excluded.through_window >= through_window"
)
# CROSS: SQLite must not go through all rollups instead of looking for these.
_READ = (
    f" SELECT namespace_id, bucket, counter, {READ_COLUMNS} "
    "FROM wanted CROSS JOIN rollups USING (namespace_id, bucket, counter) WHERE region = ?"
)
_PAGE = (
    f"SELECT counter, {READ_COLUMNS} FROM rollups WHERE namespace_id = ? AND bucket = ? "
    "AND counter >= ? AND counter < ? AND region = ? ORDER BY counter LIMIT ?"
)
_COUNT = "SELECT count(*) FROM rollups WHERE namespace_id = ? AND bucket = ? AND region = ?"


class SqliteRollupStore:
    def __init__(self, database: Database, *, region: str) -> None:
        self._database = database
        self._region = region

    async def read(self, keys: Sequence[RollupKey]) -> list[Rollup | None]:
        found: dict[tuple[int, int, str], Rollup] = {}
        async for chunk in read_chunks(keys):
            wanted = values(len(chunk), "(?, ?, ?)")
            statement = f"WITH wanted(namespace_id, bucket, counter) AS ({wanted})" + _READ
            parameters = [each for key in chunk for each in key]
            for row in self._database.read(statement, [*parameters, self._region]):
                found[row[:3]] = from_columns(row[3:])
        return [found.get(key) for key in keys]

    async def write(self, rows: Sequence[RollupRow]) -> None:
        await self._database.write(lambda connection: self.write_in(connection, rows))

    async def page(
        self, namespace_id: int, bucket: int, *, prefix: str, after: str, limit: int
    ) -> list[tuple[str, Rollup]]:
        first, end = name_range(prefix, after)
        rows = self._database.read(_PAGE, (namespace_id, bucket, first, end, self._region, limit))
        return [(row[0], from_columns(row[1:])) for row in rows]

    async def count(self, namespace_id: int, bucket: int) -> int:
        rows = await self._database.read_aside(_COUNT, (namespace_id, bucket, self._region))
        return int(rows[0][0])

    def write_in(self, connection: sqlite3.Connection, rows: Sequence[RollupRow]) -> None:
        region = self._region
        for chunk in chunks(rows):
            parameters: list[object] = []
            for (namespace_id, bucket, counter), rollup in chunk:
                parameters += (namespace_id, bucket, counter, region)
                parameters += to_columns(rollup)
            connection.execute(_INSERT + values(len(chunk), _ROW) + _MERGE, parameters)
