"""The way to a real node: pages, many requests at once, errors in words, and what is in flight."""

import asyncio
import secrets
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from counter.clock import ManualClock
from counter.errors import StoreUnavailable
from counter.metrics import STORE_ERRORS
from counter.rollups import FoldRecord
from counter.settings import Platform
from counter.storage.cassandra import CassandraLedger, CassandraSession
from counter.windows import Layout
from tests.cassandra_store import settings, shared_session

FROM = 1_700_000_000
LAYOUT = Layout(from_window=FROM, window_ms=1_000, shards=1)


async def test_an_answer_of_many_pages_is_whole() -> None:
    session = await shared_session()
    partition = (f"pages {secrets.token_hex(4)}", 1, 0, 0)
    ids = {secrets.token_bytes(16) for _ in range(6_000)}  # a page has 5,000 rows
    for chunk in (list(ids)[start : start + 500] for start in range(0, 6_000, 500)):
        rows = [(*partition, 1, segment_id, 1, b"x", 600) for segment_id in chunk]
        await session.run_batch("append_segment", rows)
    region, window, lane, shard = partition
    found = await session.run("segment_refs", (region, window, [lane], shard))
    assert {row[1] for row in found} == ids
    assert len(found) == 6_000


async def test_more_requests_than_may_be_in_flight_wait_for_their_turn() -> None:
    narrow = await shared_session(replace(settings(), requests_in_flight_max=2))
    region = f"turns {secrets.token_hex(4)}"
    await asyncio.gather(*(narrow.run("beat", (region, str(n), b"", 60)) for n in range(200)))
    assert len(await narrow.run("live_members", (region,))) == 200


async def test_a_request_whose_turn_does_not_come_says_that_it_was_not_sent() -> None:
    stuck = await shared_session(
        replace(settings(), requests_in_flight_max=1, request_timeout_ms=50)
    )
    await stuck._room.acquire()
    with pytest.raises(StoreUnavailable, match="was not sent"):
        await stuck.run("live_members", ("anywhere",))


async def test_more_bytes_than_the_connection_takes_at_once_wait() -> None:
    """The driver refuses requests while its socket is full; they were not sent to anybody."""
    session = await shared_session(replace(settings(), requests_in_flight_max=64))
    region = f"bytes {secrets.token_hex(4)}"
    body = secrets.token_bytes(800_000)
    rows = [(region, window, 0, 0, 1, b"id", 1, body, 600) for window in range(40)]
    await asyncio.gather(*(session.run("append_segment", row) for row in rows))
    for window in range(40):
        assert len(await session.run("segment_refs", (region, window, [0], 0))) == 1


async def test_errors_are_told_in_words_and_counted() -> None:
    session = await shared_session()
    counted = STORE_ERRORS.at(store="cassandra", kind="other")
    before = counted.value
    for attempt in range(3):
        assert session.problem() is None, attempt
        with pytest.raises(StoreUnavailable, match=r"could not do beat.*unknown") as failed:
            # Cassandra refuses a time to live of more than 20 years.
            await session.run("beat", ("anywhere", "me", b"", 2_000_000_000))
        assert "\n" not in failed.value.message
    assert counted.value == before + 3
    assert "could not do beat" in (session.problem() or "")
    await session.run("live_members", ("anywhere",))
    assert session.problem() is None


class _AnsweredTwice:
    """A driver that answers each request a second time, with other rows and no further page."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def execute_async(self, *args: Any, **kwargs: Any) -> Any:
        sent = self._session.execute_async(*args, **kwargs)
        add_callbacks = sent.add_callbacks

        def add_twice(ok: Any, failed: Any, callback_args: tuple[Any, ...]) -> None:
            def answer(rows: Any) -> None:
                ok(rows, sent)
                ok([("twice",)], SimpleNamespace(_paging_state=None))

            add_callbacks(answer, failed)

        return SimpleNamespace(add_callbacks=add_twice)


async def test_of_two_answers_to_one_request_the_first_counts() -> None:
    """A read that is also asked of a second node is answered by both."""
    session = await shared_session()
    region = f"twice {secrets.token_hex(4)}"
    for start in range(0, 5_500, 500):  # more than one page
        rows = [(region, f"{number:05d}", b"", 600) for number in range(start, start + 500)]
        await session.run_batch("beat", rows)
    session._session = _AnsweredTwice(session._session)
    rows = await session.run("live_members", (region,))
    assert [row[0] for row in rows] == [f"{number:05d}" for number in range(5_500)]


class _FirstAnswerWithoutARecord:
    """A quorum whose nodes were asked at different moments: a record is missing, once."""

    def __init__(self, session: CassandraSession, missing: int) -> None:
        self._session = session
        self._missing = missing
        self.reads = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    async def run(self, name: str, parameters: tuple[object, ...]) -> list[tuple[object, ...]]:
        rows = await self._session.run(name, parameters)
        if name == "folds":
            self.reads += 1
            if self.reads == 1:
                del rows[self._missing]
        return rows


@pytest.mark.parametrize("missing", [1, 2])  # newest first: in the middle, at the beginning
async def test_a_record_without_the_one_before_it_is_read_again(missing: int) -> None:
    session = await shared_session()
    platform = Platform(region=f"gap {secrets.token_hex(4)}")
    ledger = CassandraLedger(session, platform, store_clock=ManualClock())
    await ledger.open_layout(LAYOUT)
    chain = [
        FoldRecord(
            shard=0,
            from_window=FROM + at,
            to_window=FROM + at,
            segments=(),
            event_count=0,
            namespaces_version=1,
        )
        for at in range(3)
    ]
    for record in chain:
        await ledger.propose(record)
    torn = _FirstAnswerWithoutARecord(session, missing)
    ledger._session = torn  # type: ignore[assignment]
    assert await ledger.folds(0, FROM, FROM + 10) == chain
    assert torn.reads == 2
