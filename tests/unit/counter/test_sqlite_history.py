"""History in the embedded store: regions apart, and nothing looks at every row."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from counter.history import Adjustment, HistoryRow
from counter.rollups import Rollup, RollupKey
from counter.storage.ports import HistoryKey, HistoryWrite
from counter.storage.sqlite import Database, SqliteHistoryStore, SqliteRollupStore

MINUTE_MS, DAY_MS = 60_000, 86_400_000
KEY = HistoryKey(1, "views", MINUTE_MS)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path)
    yield opened
    await opened.close()


async def test_regions_are_told_apart(database: Database) -> None:
    here, there = (SqliteHistoryStore(database, region=region) for region in ("here", "there"))
    for store, count in ((here, 1), (there, 2)):
        row = HistoryRow(5, 6, Rollup(count))
        fix = Adjustment(1, "views", 5, "t", count, "oncall", "why")
        await store.write([HistoryWrite(KEY, row, DAY_MS)], [fix])
    for store, count in ((here, 1), (there, 2)):
        assert await store.at([KEY], 9) == [HistoryRow(5, 6, Rollup(count))]
        assert len(await store.between(KEY, 0, 9, limit=9)) == 1
        [fix] = await store.adjustments(1, "views", 0, 9, limit=9)
        assert fix.delta == count
    assert await here.drop_expired((7 * MINUTE_MS + DAY_MS) * 1_000_000) == 1
    assert await here.at([KEY], 9) == [None]
    assert await there.at([KEY], 9) == [HistoryRow(5, 6, Rollup(2))]


async def test_pages_of_regions_are_told_apart(database: Database) -> None:
    for region in ("a", "b", "c"):
        store = SqliteRollupStore(database, region=region)
        await store.write(
            [(RollupKey(1, 0, f"{name}{region}"), Rollup(3)) for name in ("p", "q", "r")]
        )
    page = await store.page(1, 0, prefix="", after="pa", limit=2)
    assert [name for name, _ in page] == ["pc", "qc"]


async def test_every_statement_seeks(database: Database) -> None:
    """As SQLite plans what the stores really send."""
    sent: list[str] = []
    database.reader.set_trace_callback(sent.append)

    def trace(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(sent.append)

    await database.write(trace)
    history = SqliteHistoryStore(database, region="here")
    await history.at([KEY, KEY._replace(counter="plays")], 9)
    await history.between(KEY, 0, 9, limit=9)
    await history.adjustments(1, "views", 0, 9, limit=9)
    await history.write([HistoryWrite(KEY, HistoryRow(0, 1, Rollup(1)), 0)])
    await history.drop_expired(2 * MINUTE_MS * 1_000_000)
    await SqliteRollupStore(database, region="here").page(1, 0, prefix="p", after="q", limit=9)
    database.reader.set_trace_callback(None)
    plans = [
        [row[3] for row in database.read(f"EXPLAIN QUERY PLAN {statement}")]
        for statement in sent
        if statement.startswith(("SELECT", "WITH", "DELETE"))
    ]
    of_a_row = "namespace_id=? AND counter=? AND region=? AND step_ms=? AND step"
    assert len(plans) == 6
    at, between, adjustments, expired, drop, page = (" | ".join(plan) for plan in plans)
    assert f"SEARCH history USING PRIMARY KEY ({of_a_row}=?)" in at
    assert f"SEARCH earlier USING PRIMARY KEY ({of_a_row}<?)" in at
    assert f"SEARCH history USING PRIMARY KEY ({of_a_row}>? AND step<?)" in between
    assert "(namespace_id=? AND counter=? AND region=? AND time_ns>? AND time_ns<?)" in adjustments
    assert f"SEARCH history USING PRIMARY KEY ({of_a_row}=?)" in drop
    assert "history_by_expiry (region=? AND expires_at_ms<?)" in expired
    assert "(namespace_id=? AND bucket=? AND counter>? AND counter<?)" in page
