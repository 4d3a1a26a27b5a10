"""History on Cassandra: when rows expire, and that writing them again does no harm."""

import secrets

import pytest

from counter.history import HistoryRow
from counter.rollups import Rollup, RollupKey
from counter.settings import Platform
from counter.storage.cassandra import (
    CassandraHistoryStore,
    CassandraRollupStore,
    CassandraSession,
)
from counter.storage.ports import HistoryKey, HistoryWrite
from tests.cassandra_store import settings, shared_session

MINUTE_MS, DAY_MS = 60_000, 86_400_000
DAY_S, YEAR_S = 86_400, 365 * 86_400
STEP = 29_000_000  # a minute of 2025
KEY = HistoryKey(1, "views", MINUTE_MS)
ROW = HistoryRow(STEP, STEP + 3, Rollup(5))


async def opened() -> tuple[CassandraSession, CassandraHistoryStore, str]:
    session = await shared_session()
    platform = Platform(region=f"history {secrets.token_hex(8)}", log_retention_s=DAY_S)
    return session, CassandraHistoryStore(session, platform), platform.region


def cell(session: CassandraSession, region: str) -> tuple[int | None, int]:
    """The time to live that is left, and the timestamp."""
    rows = session._session.execute(
        f"SELECT TTL(state), WRITETIME(state) FROM {settings().keyspace}.history "
        "WHERE namespace_id = 1 AND counter = 'views' AND region = %s AND step_ms = %s",
        (region, MINUTE_MS),
    )
    [(ttl_s, stamp_us)] = rows
    return ttl_s, stamp_us


async def test_a_row_outlives_its_retention_by_a_day() -> None:
    session, store, region = await opened()
    await store.write([HistoryWrite(KEY, ROW, 10 * DAY_MS + 1)])
    ttl_s, stamp_us = cell(session, region)
    assert ttl_s is not None
    assert 11 * DAY_S - 60 < ttl_s <= 11 * DAY_S + 1
    assert stamp_us == (STEP + 3) * 60 * 1_000_000  # the start of the step until which it holds


async def test_a_row_written_again_keeps_the_later_end() -> None:
    session, store, region = await opened()
    for retention_ms in (10 * DAY_MS, 20 * DAY_MS, 5 * DAY_MS):
        await store.write([HistoryWrite(KEY, ROW, retention_ms)])
    ttl_s, _ = cell(session, region)
    assert ttl_s is not None
    assert ttl_s > 20 * DAY_S
    assert await store.at([KEY], STEP) == [ROW]


@pytest.mark.parametrize(
    ("step", "retention_s"),
    [
        (STEP, 21 * YEAR_S),  # more than Cassandra lets anything live
        (35_000_000, 2 * YEAR_S),  # from 2036 beyond January 2038
        (35_791_394 - 3, 600),  # in the last minute of that time
    ],
)
async def test_a_row_that_cannot_expire_in_time_is_kept(step: int, retention_s: int) -> None:
    session, store, region = await opened()
    row = HistoryRow(step, step + 3, Rollup(5))
    await store.write([HistoryWrite(KEY, row, retention_s * 1_000)])
    ttl_s, _ = cell(session, region)
    assert ttl_s is None
    assert await store.at([KEY], step) == [row]


async def test_pages_of_regions_are_told_apart() -> None:
    session = await shared_session()
    namespace_id = 2**40 + secrets.randbelow(2**40)
    for region in ("a", "b", "c"):
        store = CassandraRollupStore(session, Platform(region=region))
        await store.write(
            [(RollupKey(namespace_id, 0, name), Rollup(ord(region))) for name in ("p", "q", "r")]
        )
    page = await store.page(namespace_id, 0, prefix="", after="p", limit=2)
    assert page == [("q", Rollup(ord("c"))), ("r", Rollup(ord("c")))]
