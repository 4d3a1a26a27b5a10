import sqlite3
from collections.abc import Sequence
from typing import Any

from counter.clock import NS_PER_MS
from counter.history import Adjustment, HistoryRow
from counter.storage.ports import HistoryKey, HistoryWrite
from counter.storage.sqlite.database import Database, chunks, values
from counter.storage.sqlite.states import COLUMN_COUNT, COLUMNS, from_columns, to_columns

_WRITE = (
    "INSERT OR REPLACE INTO history "
    f"(namespace_id, counter, region, step_ms, step, until_step, expires_at_ms, {COLUMNS}) "
)
_ROW = f"({', '.join('?' * (7 + COLUMN_COUNT))})"
_STATE = ", ".join(f"history.{column}" for column in COLUMNS.split(", "))
# Two seeks for each key: the step, then its row.
_AT = (
    f" SELECT namespace_id, counter, step_ms, step, until_step, {_STATE} "
    "FROM wanted CROSS JOIN history USING (namespace_id, counter, step_ms) "
    "WHERE region = ?1 AND step = (SELECT max(step) FROM history AS earlier "
    "WHERE earlier.namespace_id = wanted.namespace_id AND earlier.counter = wanted.counter "
    "AND earlier.region = ?1 AND earlier.step_ms = wanted.step_ms AND earlier.step <= ?2)"
)
_BETWEEN = (
    f"SELECT step, until_step, {COLUMNS} FROM history WHERE namespace_id = ? AND counter = ? "
    "AND region = ? AND step_ms = ? AND step BETWEEN ? AND ? ORDER BY step LIMIT ?"
)
_EXPIRED = (
    "SELECT namespace_id, counter, region, step_ms, step FROM history "
    "WHERE region = ? AND expires_at_ms <= ? LIMIT ?"
)
_DROP = (
    "DELETE FROM history WHERE namespace_id = ? AND counter = ? AND region = ? AND step_ms = ? "
    "AND step = ?"
)
_ADJUST = "INSERT OR REPLACE INTO adjustments VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ADJUSTMENTS = (
    "SELECT time_ns, token, delta, author, reason FROM adjustments WHERE namespace_id = ? "
    "AND counter = ? AND region = ? AND time_ns BETWEEN ? AND ? ORDER BY time_ns, token LIMIT ?"
)
_DROPPED_PER_CALL_MAX = 2_000


class SqliteHistoryStore:
    def __init__(self, database: Database, *, region: str) -> None:
        self._database = database
        self._region = region

    async def write(
        self, rows: Sequence[HistoryWrite], adjustments: Sequence[Adjustment] = ()
    ) -> None:
        await self._database.write(lambda connection: self.write_in(connection, rows, adjustments))

    async def at(self, keys: Sequence[HistoryKey], step: int) -> list[HistoryRow | None]:
        found: dict[tuple[int, str, int], HistoryRow] = {}
        for chunk in chunks(keys):
            # Numbered, because the region and the step, which come first, are asked for twice.
            wanted = ", ".join(
                f"(?{at}, ?{at + 1}, ?{at + 2})" for at in range(3, 3 + 3 * len(chunk), 3)
            )
            statement = f"WITH wanted(namespace_id, counter, step_ms) AS (VALUES {wanted})" + _AT
            parameters = [each for key in chunk for each in key]
            for row in self._database.read(statement, [self._region, step, *parameters]):
                found[row[:3]] = _row(row[3:])
        return [found.get(key) for key in keys]

    async def between(
        self, key: HistoryKey, from_step: int, to_step: int, *, limit: int
    ) -> list[HistoryRow]:
        namespace_id, counter, step_ms = key
        of_counter = (namespace_id, counter, self._region, step_ms)
        rows = self._database.read(_BETWEEN, (*of_counter, from_step, to_step, limit))
        return [_row(row) for row in rows]

    async def adjustments(
        self, namespace_id: int, counter: str, from_ns: int, to_ns: int, *, limit: int
    ) -> list[Adjustment]:
        of_counter = (namespace_id, counter, self._region)
        rows = self._database.read(_ADJUSTMENTS, (*of_counter, from_ns, to_ns, limit))
        return [Adjustment(namespace_id, counter, *row) for row in rows]

    async def drop_expired(self, now_ns: int) -> int:
        parameters = (self._region, now_ns // NS_PER_MS, _DROPPED_PER_CALL_MAX)

        def job(connection: sqlite3.Connection) -> int:
            expired = connection.execute(_EXPIRED, parameters).fetchall()
            connection.executemany(_DROP, expired)
            return len(expired)

        return await self._database.write(job)

    def write_in(
        self,
        connection: sqlite3.Connection,
        rows: Sequence[HistoryWrite],
        adjustments: Sequence[Adjustment],
    ) -> None:
        """A part of a fold's one transaction."""
        for chunk in chunks(rows):
            parameters: list[object] = []
            for write in chunk:
                (namespace_id, counter, step_ms), row, _ = write
                parameters += (namespace_id, counter, self._region, step_ms)
                parameters += (row.step, row.until_step, write.expires_at_ms)
                parameters += to_columns(row.state)
            connection.execute(_WRITE + values(len(chunk), _ROW), parameters)
        for each in adjustments:
            key = (each.namespace_id, each.counter, self._region, each.time_ns, each.token)
            connection.execute(_ADJUST, (*key, each.delta, each.author, each.reason))


def _row(columns: tuple[Any, ...]) -> HistoryRow:
    step, until_step, *state = columns
    return HistoryRow(step, until_step, from_columns(tuple(state)))
