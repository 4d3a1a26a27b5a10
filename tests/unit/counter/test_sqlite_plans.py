"""What the embedded store asks for by key, it must find by key: however many keys there are, and
however large the table is. A plan that goes through the table gets slower with every add."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from counter.clock import ManualClock
from counter.rollups import RollupKey
from counter.segments import SegmentRef
from counter.storage.sqlite import Database, SqliteEventLog, SqliteRollupStore
from counter.storage.sqlite.database import ROWS_PER_STATEMENT_MAX

SIZES = [1 << power for power in range(ROWS_PER_STATEMENT_MAX.bit_length())]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path)
    yield opened
    await opened.close()


def plans(database: Database, sent: list[str]) -> list[str]:
    """How SQLite goes about what was sent, as it was sent."""
    database.reader.set_trace_callback(None)
    assert sent
    return [
        " | ".join(row[3] for row in database.read(f"EXPLAIN QUERY PLAN {statement}"))
        for statement in sent
    ]


@pytest.mark.parametrize("number", SIZES)
async def test_segments_are_found_by_their_keys(database: Database, number: int) -> None:
    sent: list[str] = []
    log = SqliteEventLog(database, ManualClock(), region="here")
    database.reader.set_trace_callback(sent.append)
    await log.bodies([SegmentRef(7, 1, at.to_bytes(16), 2, 0, 0) for at in range(number)])
    key = "region=? AND shard=? AND window=? AND lane=? AND namespace_id=? AND segment_id=?"
    for plan in plans(database, sent):
        assert f"SEARCH segments USING INDEX segments_by_partition ({key})" in plan, plan


@pytest.mark.parametrize("number", SIZES)
async def test_rollups_are_found_by_their_keys(database: Database, number: int) -> None:
    sent: list[str] = []
    store = SqliteRollupStore(database, region="here")
    database.reader.set_trace_callback(sent.append)
    await store.read([RollupKey(1, 0, f"title-{at}") for at in range(number)])
    key = "namespace_id=? AND bucket=? AND counter=? AND region=?"
    for plan in plans(database, sent):
        assert f"SEARCH rollups USING PRIMARY KEY ({key})" in plan, plan
