import sqlite3
from collections.abc import Sequence

from counter.clock import Clock
from counter.segments import Segment, SegmentRef
from counter.storage.ports import Closed
from counter.storage.sqlite.database import Database, chunks, read_chunks, values

_INSERT = (
    "INSERT OR IGNORE INTO segments "
    "(region, shard, window, lane, namespace_id, segment_id, event_count, body) "
)
_CLOSED = "SELECT closed_through FROM closes WHERE region = ?"
_REFS = (
    "SELECT window, namespace_id, segment_id, event_count, shard, lane FROM segments "
    "WHERE region = ? AND shard = ? AND window BETWEEN ? AND ? "
    "ORDER BY window, namespace_id, segment_id"
)
# CROSS: with many keys SQLite would rather go through the whole log and look for each row in them.
_BODIES = (
    " SELECT segment_id, body FROM wanted CROSS JOIN segments "
    "USING (shard, window, lane, namespace_id, segment_id) WHERE region = ?"
)
_DROP = (
    "DELETE FROM segments WHERE rowid IN (SELECT rowid FROM segments "
    "WHERE region = ? AND shard = ? AND window <= ? LIMIT ?)"
)
# Keeps a transaction of retention short, so that adds do not wait behind it.
_DROPPED_PER_CALL_MAX = 500


class SqliteEventLog:
    """The close check of an append is in the append's own transaction."""

    def __init__(self, database: Database, clock: Clock, *, region: str) -> None:
        self._database = database
        self._clock = clock
        self._region = region

    async def append(self, segments: Sequence[Segment]) -> Closed:
        statements = []
        for chunk in chunks(segments):
            parameters: list[object] = []
            for ref, body in chunk:
                parameters += (
                    self._region,
                    ref.shard,
                    ref.window,
                    ref.lane,
                    ref.namespace_id,
                    ref.segment_id,
                    ref.event_count,
                    body,
                )
            statements.append(
                (_INSERT + values(len(chunk), "(?, ?, ?, ?, ?, ?, ?, ?)"), parameters)
            )

        def job(connection: sqlite3.Connection) -> int:
            for statement, parameters in statements:
                connection.execute(statement, parameters)
            through: int = connection.execute(_CLOSED, (self._region,)).fetchone()[0]
            return through

        through = await self._database.write(job)
        return Closed(through, self._clock.now_ns())

    async def refs(self, shard: int, from_window: int, to_window: int) -> list[SegmentRef]:
        rows = self._database.read(_REFS, (self._region, shard, from_window, to_window))
        return [SegmentRef(*row) for row in rows]

    async def bodies(self, refs: Sequence[SegmentRef]) -> list[bytes | None]:
        found: dict[bytes, bytes] = {}
        async for chunk in read_chunks(refs):
            wanted = values(len(chunk), "(?, ?, ?, ?, ?)")
            with_wanted = (
                f"WITH wanted(shard, window, lane, namespace_id, segment_id) AS ({wanted})"
            )
            parameters: list[object] = []
            for ref in chunk:
                parameters += (ref.shard, ref.window, ref.lane, ref.namespace_id, ref.segment_id)
            found.update(self._database.read(with_wanted + _BODIES, [*parameters, self._region]))
        return [found.get(ref.segment_id) for ref in refs]

    async def drop_through(self, window: int) -> int:
        [(shards,)] = self._database.read(
            "SELECT coalesce(max(shards), 0) FROM layouts WHERE region = ?", (self._region,)
        )

        def job(connection: sqlite3.Connection) -> int:
            dropped = 0
            for shard in range(shards):
                limit = _DROPPED_PER_CALL_MAX - dropped
                cursor = connection.execute(_DROP, (self._region, shard, window, limit))
                dropped += cursor.rowcount
            return dropped

        return await self._database.write(job)
