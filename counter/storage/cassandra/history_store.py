import asyncio
from collections.abc import Sequence

from counter.errors import StoreDamaged
from counter.history import Adjustment, HistoryRow
from counter.settings import Platform
from counter.storage.cassandra.envelopes import envelopes
from counter.storage.cassandra.session import CassandraSession
from counter.storage.cassandra.states import from_text, to_text
from counter.storage.ports import HistoryKey, HistoryWrite

_MS_PER_S = 1_000
_US_PER_MS = 1_000
# Each is a query, or a batch of rows, of its own.
_REQUESTS_AT_ONCE = 32
# Rows outlive their retention by more than clocks are off or a fold may lag.
_KEPT_LONGER_S = 86_400
# Cassandra refuses what expires after 20 years, or after January 2038 in the storage format that it
# writes by default. A refusal would stop the shard, so such rows do not expire.
_TTL_S_MAX = 20 * 365 * 86_400
_EXPIRY_MAX_S = 2**31 - 2
_NO_EXPIRY = 0

_Row = tuple[int, str, str, int, int, str, int, int]


class CassandraHistoryStore:
    """A partition per counter and length of step, newest step first."""

    def __init__(self, session: CassandraSession, platform: Platform) -> None:
        self._session = session
        self._region = platform.region
        self._lag_s_max = platform.log_retention_s  # of folds: what is older is not there any more

    async def write(
        self, rows: Sequence[HistoryWrite], adjustments: Sequence[Adjustment] = ()
    ) -> None:
        batches = list(envelopes([self._row(each) for each in rows], _characters))
        for start in range(0, len(batches), _REQUESTS_AT_ONCE):
            some = batches[start : start + _REQUESTS_AT_ONCE]
            await asyncio.gather(*(self._session.run_batch("write_history", each) for each in some))
        for start in range(0, len(adjustments), _REQUESTS_AT_ONCE):
            await asyncio.gather(
                *(self._adjust(each) for each in adjustments[start : start + _REQUESTS_AT_ONCE])
            )

    async def at(self, keys: Sequence[HistoryKey], step: int) -> list[HistoryRow | None]:
        asked = list(dict.fromkeys(keys))
        found: dict[HistoryKey, HistoryRow | None] = {}
        for start in range(0, len(asked), _REQUESTS_AT_ONCE):
            some = asked[start : start + _REQUESTS_AT_ONCE]
            rows = await asyncio.gather(*(self._at(key, step) for key in some))
            found.update(zip(some, rows, strict=True))
        return [found[key] for key in keys]

    async def between(
        self, key: HistoryKey, from_step: int, to_step: int, *, limit: int
    ) -> list[HistoryRow]:
        parameters = (*self._partition(key), from_step, to_step, limit)
        rows = await self._session.run("history_between", parameters)
        return [_history_row(step, state) for step, state in rows]

    async def adjustments(
        self, namespace_id: int, counter: str, from_ns: int, to_ns: int, *, limit: int
    ) -> list[Adjustment]:
        parameters = (namespace_id, counter, self._region, from_ns, to_ns, limit)
        rows = await self._session.run("adjustments", parameters)
        return [Adjustment(namespace_id, counter, *row) for row in rows]

    async def drop_expired(self, now_ns: int) -> int:
        return 0  # they expire

    def _partition(self, key: HistoryKey) -> tuple[int, str, str, int]:
        return key.namespace_id, key.counter, self._region, key.step_ms

    def _row(self, write: HistoryWrite) -> _Row:
        key, row, retention_ms = write
        # The same for whoever writes the row, so that a replay changes nothing: see schema.cql.
        stamp_us = row.until_step * key.step_ms * _US_PER_MS
        ttl_s = -(-retention_ms // _MS_PER_S) + _KEPT_LONGER_S
        written_s_max = (row.until_step + 1) * key.step_ms // _MS_PER_S + self._lag_s_max
        if ttl_s > _TTL_S_MAX or written_s_max + ttl_s > _EXPIRY_MAX_S:
            ttl_s = _NO_EXPIRY
        state = f"{row.until_step} {to_text(row.state)}"
        return (*self._partition(key), row.step, state, ttl_s, stamp_us)

    async def _adjust(self, each: Adjustment) -> None:
        key = (each.namespace_id, each.counter, self._region, each.time_ns, each.token)
        await self._session.run("write_adjustment", (*key, each.delta, each.author, each.reason))

    async def _at(self, key: HistoryKey, step: int) -> HistoryRow | None:
        rows = await self._session.run("history_at", (*self._partition(key), step))
        return _history_row(*rows[0]) if rows else None


def _history_row(step: int, text: str) -> HistoryRow:
    until_step, _, state = text.partition(" ")
    try:
        return HistoryRow(step, int(until_step), from_text(state))
    except ValueError as error:
        raise StoreDamaged(f"a row of the history cannot be read: {text!r}") from error


def _characters(row: _Row) -> int:
    """About its bytes: Cassandra's own limits are far above those of an envelope."""
    return sum(len(each) for each in row if isinstance(each, str))
