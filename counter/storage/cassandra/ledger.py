import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from counter.clock import NS_PER_MS, Clock
from counter.decoding import UNREADABLE
from counter.errors import StoreDamaged, StoreUnavailable
from counter.rollups import FoldRecord, SetAside
from counter.settings import Platform
from counter.storage.cassandra.session import CassandraSession
from counter.storage.cassandra.shared_read import SharedRead
from counter.storage.ports import Closed
from counter.windows import NS_PER_DAY, Layout

_NS_PER_US = 1_000
# Readers ask for the records after the watermark: mostly none, seldom more than a few.
_FOLDS_PER_QUERY = 8
_RECORDS_KEPT_LONGER_S = 86_400

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FoldRecord)
_decision_decoder = msgspec.msgpack.Decoder(SetAside)


class CassandraLedger:
    """Marks are plain quorum writes that carry their window's end as timestamp: they only go
    forward, whoever writes them in whatever order. Fold records, decisions to set segments aside
    and the layout, which must be decided once, are inserted if absent."""

    def __init__(
        self,
        session: CassandraSession,
        platform: Platform,
        *,
        store_clock: Clock | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`store_clock`: for tests that move time by hand, instead of Cassandra's own clock."""
        self._session = session
        self._region = platform.region
        self._records_ttl_s = platform.log_retention_s + _RECORDS_KEPT_LONGER_S
        self._store_clock = store_clock
        self._monotonic_ns = monotonic_ns
        self._layout: Layout | None = None
        self._last_closed: tuple[Closed, int] | None = None  # with the steady time of its answer
        self.closed = SharedRead(self._read_closed)
        self._shared_watermarks = SharedRead(self._read_watermarks)

    @property
    def layout(self) -> Layout:
        assert self._layout is not None, "open_layout comes first"
        return self._layout

    async def open_layout(self, wanted: Layout) -> Layout:
        """Also writes the first marks: again at each start, which changes nothing later."""
        columns = (wanted.from_window, wanted.window_ms, wanted.shards, wanted.lanes)
        await self._session.agree("open_layout", (self._region, *columns))
        [row] = await self._session.run("layout", (self._region,))
        from_window, window_ms, shards, lanes = row
        self._layout = Layout(
            from_window=from_window, window_ms=window_ms, shards=shards, lanes=lanes
        )
        before = from_window - 1
        await self.close(before)
        await asyncio.gather(*(self.advance(shard, before) for shard in range(shards)))
        return self._layout

    async def close(self, window: int) -> None:
        await self._session.run("close", (self._region, window, self._timestamp_us(window)))

    async def watermarks(self) -> list[int]:
        return list(await self._shared_watermarks())

    async def advance(self, shard: int, window: int) -> None:
        stamp_us = self._timestamp_us(window)
        await self._session.run("advance", (self._region, shard, window, stamp_us))

    def store_time_ns(self) -> int:
        """About what the store's clock says now, by its last answer; 0 before there is one."""
        if self._last_closed is None:
            return 0
        closed, answered_ns = self._last_closed
        return closed.store_time_ns + self._monotonic_ns() - answered_ns

    async def propose(self, record: FoldRecord) -> FoldRecord:
        parameters = (
            self._region,
            record.shard,
            self._day_of(record.from_window),
            record.from_window,
            _encoder.encode(record),
            self._records_ttl_s,
        )
        present = await self._session.agree("propose_fold", parameters)
        # A row that was there: region, shard, day, from_window, record.
        return record if present is None else _decoded(present[-1])

    async def folds(self, shard: int, from_window: int, to_window: int) -> list[FoldRecord]:
        """A record is proposed only when the one before it is agreed on at a quorum. A quorum read
        may all the same show a record without the one before it, if its nodes were asked at
        different moments; a second read then shows both."""
        from_window = max(from_window, self.layout.from_window)
        records = await self._read_folds(shard, from_window, to_window)
        if records and (records[0].from_window > from_window or _has_gap(records)):
            records = await self._read_folds(shard, from_window, to_window)
            if _has_gap(records):
                raise StoreUnavailable(
                    f"the fold records of shard {shard} after window {from_window} have a gap: "
                    "is a node of the quorum without data that it had? Repair the table folds",
                    retry_after_ms=500,
                )
        return records

    async def drop_folds_through(self, window: int) -> int:
        return 0  # they expire

    async def set_aside(self, decision: SetAside) -> None:
        segment = decision.segment
        key = (self._region, segment.shard, segment.segment_id)
        row = (*key, _encoder.encode(decision), self._records_ttl_s)
        await self._session.agree("set_aside", row)

    async def set_asides(self, shard: int) -> list[SetAside]:
        rows = await self._session.run("set_asides", (self._region, shard))
        try:
            decisions = [_decision_decoder.decode(row[0]) for row in rows]
        except UNREADABLE as error:
            raise StoreDamaged(
                f"a decision to set aside a segment of shard {shard} cannot be read: {error}"
            ) from error
        return sorted(decisions, key=lambda each: each.segment)

    async def _read_closed(self) -> Closed:
        began_ns = self._monotonic_ns()
        rows = await self._session.run("closed", (self._region,))
        ended_ns = self._monotonic_ns()
        if not rows:
            raise StoreDamaged(f"region {self._region} has no close mark: was its row deleted?")
        through, store_time_ms = rows[0]
        store_time_ns = (
            store_time_ms * NS_PER_MS if self._store_clock is None else self._store_clock.now_ns()
        )
        closed = Closed(through, store_time_ns, ended_ns - began_ns + NS_PER_MS)
        self._last_closed = (closed, ended_ns)
        return closed

    async def _read_watermarks(self) -> list[int]:
        rows: dict[int, int] = dict(await self._session.run("watermarks", (self._region,)))
        if len(rows) != self.layout.shards:
            raise StoreDamaged(
                f"region {self._region} has {len(rows)} watermarks, not {self.layout.shards}: "
                "were rows deleted?"
            )
        return [rows[shard] for shard in range(self.layout.shards)]

    async def _read_folds(self, shard: int, from_window: int, to_window: int) -> list[FoldRecord]:
        """Day by day, as far as the chain goes: a record never crosses a day."""
        records: list[FoldRecord] = []
        window = from_window
        while window <= to_window:
            last_of_day = self.layout.last_window_of_day(window)
            of_day = await self._read_folds_of_day(shard, window, min(to_window, last_of_day))
            records += of_day
            if not of_day or of_day[-1].to_window < last_of_day:
                break
            window = last_of_day + 1
        return records

    async def _read_folds_of_day(
        self, shard: int, from_window: int, to_window: int
    ) -> list[FoldRecord]:
        """Backwards from the end, to the record that holds the first window."""
        newest_first: list[FoldRecord] = []
        day, before = self._day_of(from_window), to_window
        while True:
            key = (self._region, shard, day, before, _FOLDS_PER_QUERY)
            rows = await self._session.run("folds", key)
            newest_first += [_decoded(row[0]) for row in rows]
            if len(rows) < _FOLDS_PER_QUERY or newest_first[-1].from_window <= from_window:
                break
            before = newest_first[-1].from_window - 1
        return [each for each in reversed(newest_first) if each.to_window >= from_window]

    def _timestamp_us(self, window: int) -> int:
        return self.layout.end_ns(window) // _NS_PER_US

    def _day_of(self, window: int) -> int:
        return self.layout.start_ns(window) // NS_PER_DAY


def _has_gap(records: Sequence[FoldRecord]) -> bool:
    return any(after.from_window != before.to_window + 1 for before, after in pairwise(records))


def _decoded(body: bytes) -> FoldRecord:
    try:
        return _decoder.decode(body)
    except UNREADABLE as error:
        raise StoreDamaged(f"a fold record cannot be decoded: {error}") from error
