import sqlite3

import msgspec

from counter.clock import Clock
from counter.decoding import UNREADABLE
from counter.errors import StoreDamaged
from counter.rollups import FoldRecord, SetAside
from counter.segments import SegmentRef
from counter.storage.ports import Closed
from counter.storage.sqlite.database import Database
from counter.windows import Layout

_LAYOUT = (
    "SELECT from_window, window_ms, shards, lanes FROM layouts WHERE region = ? "
    "ORDER BY from_window"
)
_ADD_LAYOUT = "INSERT INTO layouts VALUES (?, ?, ?, ?, ?)"
_CLOSED = "SELECT closed_through FROM closes WHERE region = ?"
_CLOSE = (
    "INSERT INTO closes VALUES (?, ?) ON CONFLICT DO UPDATE "
    "SET closed_through = max(closed_through, excluded.closed_through)"
)
_WATERMARKS = "SELECT window FROM watermarks WHERE region = ? ORDER BY shard"
_ADVANCE = (
    "INSERT INTO watermarks VALUES (?, ?, ?) ON CONFLICT DO UPDATE "
    "SET window = max(window, excluded.window)"
)
_FOLD_COLUMNS = (
    "shard, from_window, to_window, segments, event_count, namespaces_version, digest, set_aside"
)
_PROPOSE = (
    f"INSERT OR IGNORE INTO folds (region, {_FOLD_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_FOLD = f"SELECT {_FOLD_COLUMNS} FROM folds WHERE region = ? AND shard = ? AND from_window = ?"
# The chain has no gaps, so the range begins in the last record that starts at or before it.
_FOLDS = (
    f"SELECT {_FOLD_COLUMNS} FROM folds WHERE region = ?1 AND shard = ?2 AND to_window >= ?3 "
    "AND from_window BETWEEN coalesce((SELECT max(from_window) FROM folds "
    "WHERE region = ?1 AND shard = ?2 AND from_window <= ?3), ?3) AND ?4 ORDER BY from_window"
)
_DROP = (
    "DELETE FROM folds WHERE (region, shard, from_window) IN (SELECT region, shard, from_window "
    "FROM folds WHERE region = ? AND to_window <= ? LIMIT ?)"
)
_SET_ASIDE = "INSERT OR IGNORE INTO set_asides VALUES (?, ?, ?, ?, ?)"
_SET_ASIDES = "SELECT decision FROM set_asides WHERE region = ? AND shard = ?"
_DROP_SET_ASIDES = "DELETE FROM set_asides WHERE region = ? AND window <= ?"
_DROPPED_PER_CALL_MAX = 2_000
_SQLITE_INTEGER_MAX = 2**63 - 1

_segments = msgspec.msgpack.Decoder(tuple[SegmentRef, ...])
_decisions = msgspec.msgpack.Decoder(tuple[SetAside, ...])
_decision = msgspec.msgpack.Decoder(SetAside)


class SqliteLedger:
    """Only this process writes the file, so what it last wrote is what the file says.

    The watermarks, which every read asks for, are therefore also kept in memory, changed after the
    commit that made the change durable. The close mark is not: a close whose caller went away may
    stand all the same, appends then see it, and no later answer may be older than theirs (I4).
    """

    def __init__(self, database: Database, clock: Clock, *, region: str) -> None:
        self._database = database
        self._clock = clock
        self._region = region
        self._watermarks: list[int] = []

    async def open_layout(self, wanted: Layout) -> Layout:
        def job(connection: sqlite3.Connection) -> Layout:
            row = connection.execute(_LAYOUT, (self._region,)).fetchone()
            if row is not None:
                from_window, window_ms, shards, lanes = row
                return Layout(
                    from_window=from_window, window_ms=window_ms, shards=shards, lanes=lanes
                )
            origin = wanted.from_window - 1
            connection.execute(
                _ADD_LAYOUT,
                (self._region, wanted.from_window, wanted.window_ms, wanted.shards, wanted.lanes),
            )
            connection.execute(_CLOSE, (self._region, origin))
            for shard in range(wanted.shards):
                connection.execute(_ADVANCE, (self._region, shard, origin))
            return wanted

        layout = await self._database.write(job)
        rows = self._database.read(_WATERMARKS, (self._region,))
        self._watermarks = [window for (window,) in rows]
        return layout

    async def closed(self) -> Closed:
        [(through,)] = self._database.read(_CLOSED, (self._region,))
        return Closed(through, self._clock.now_ns())

    async def close(self, window: int) -> None:
        await self._database.write(
            lambda connection: connection.execute(_CLOSE, (self._region, window))
        )

    async def watermarks(self) -> list[int]:
        return list(self._watermarks)

    async def advance(self, shard: int, window: int) -> None:
        await self._database.write(lambda connection: self.advance_in(connection, shard, window))
        self.advanced(shard, window)

    async def propose(self, record: FoldRecord) -> FoldRecord:
        return await self._database.write(lambda connection: self.propose_in(connection, record))

    async def folds(self, shard: int, from_window: int, to_window: int) -> list[FoldRecord]:
        to_window = min(to_window, _SQLITE_INTEGER_MAX)
        rows = self._database.read(_FOLDS, (self._region, shard, from_window, to_window))
        return [_record(row) for row in rows]

    async def drop_folds_through(self, window: int) -> int:
        def job(connection: sqlite3.Connection) -> int:
            # People made these one by one: few. They are all in records by now.
            connection.execute(_DROP_SET_ASIDES, (self._region, window))
            return connection.execute(_DROP, (self._region, window, _DROPPED_PER_CALL_MAX)).rowcount

        return await self._database.write(job)

    async def set_aside(self, decision: SetAside) -> None:
        segment = decision.segment
        key = (self._region, segment.shard, segment.segment_id, segment.window)
        row = (*key, msgspec.msgpack.encode(decision))
        await self._database.write(lambda connection: connection.execute(_SET_ASIDE, row))

    async def set_asides(self, shard: int) -> list[SetAside]:
        rows = self._database.read(_SET_ASIDES, (self._region, shard))
        try:
            decisions = [_decision.decode(packed) for (packed,) in rows]
        except UNREADABLE as error:
            raise StoreDamaged(
                f"a decision to set aside a segment of shard {shard} cannot be read: {error}"
            ) from error
        return sorted(decisions, key=lambda each: each.segment)

    # The parts that a fold's one transaction is made of.

    def propose_in(self, connection: sqlite3.Connection, record: FoldRecord) -> FoldRecord:
        row = (
            self._region,
            record.shard,
            record.from_window,
            record.to_window,
            msgspec.msgpack.encode(record.segments),
            record.event_count,
            record.namespaces_version,
            record.digest,
            msgspec.msgpack.encode(record.set_aside),
        )
        if connection.execute(_PROPOSE, row).rowcount == 1:
            return record
        return _record(connection.execute(_FOLD, row[:3]).fetchone())

    def advance_in(self, connection: sqlite3.Connection, shard: int, window: int) -> None:
        connection.execute(_ADVANCE, (self._region, shard, window))

    def advanced(self, shard: int, window: int) -> None:
        """To be called once the transaction of `advance_in` is durable."""
        self._watermarks[shard] = max(self._watermarks[shard], window)


def _record(row: tuple[int, int, int, bytes, int, int, bytes, bytes]) -> FoldRecord:
    shard, from_window, to_window, packed, event_count, namespaces_version, digest, aside = row
    try:
        segments = _segments.decode(packed)
        set_aside = _decisions.decode(aside)
    except UNREADABLE as error:
        raise StoreDamaged(
            f"the fold record of shard {shard} from window {from_window} cannot be read: {error}"
        ) from error
    return FoldRecord(
        shard=shard,
        from_window=from_window,
        to_window=to_window,
        segments=segments,
        event_count=event_count,
        namespaces_version=namespaces_version,
        digest=digest,
        set_aside=set_aside,
    )
