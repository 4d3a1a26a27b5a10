"""A database that an older Tally wrote: it opens, keeps its counts, and goes on."""

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from counter.clock import ManualClock
from counter.errors import StoreDamaged
from counter.namespaces import (
    EMPTY,
    About,
    Definition,
    Origin,
    Strategy,
    next_snapshot,
)
from counter.rollups import FoldRecord, Recent, Rollup, RollupKey
from counter.segments import SegmentRef
from counter.storage import sqlite
from counter.storage.ports import Fold
from counter.storage.sqlite import Database
from counter.windows import Layout
from tests.stores import REGION, Stores, sqlite_stores

LAYOUT = Layout(from_window=1_000, window_ms=1_000, shards=1)
REF = SegmentRef(1_001, 1, b"s" * 16, 2, 0, 0)
FIRST_VERSION = (
    b'{"version":1,"applied_at_ns":5,"next_id":2,"namespaces":[{"name":"plays",'
    b'"strategy":"eventual","description":"","owner":"","cardinality":"medium",'
    b'"max_delta":1000000,"cache_ttl_ms":5000,"cache_local_ttl_ms":500,'
    b'"dedupe_ttl_ms":null,"id":1}]}'
)


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """A file as schema version 1 has it, with what a fold left."""
    connection = sqlite3.connect(tmp_path / "tally.db")
    script = resources.files(sqlite.__package__) / "migrations" / "0001.sql"
    connection.executescript(script.read_text() + "PRAGMA user_version = 1;")
    connection.execute("INSERT INTO layouts VALUES (?, 1000, 1000, 1, 1)", (REGION,))
    connection.execute("INSERT INTO closes VALUES (?, 1004)", (REGION,))
    connection.execute("INSERT INTO watermarks VALUES (?, 0, 1004)", (REGION,))
    connection.execute(
        "INSERT INTO folds VALUES (?, 0, 1000, 1004, ?, 2, 1)",
        (REGION, msgspec.msgpack.encode((REF,))),
    )
    connection.executemany(
        "INSERT INTO rollups VALUES (1, 0, ?, ?, ?, ?, ?, ?)",
        [
            ("views", REGION, 7, 2, 5_000, 1_004),
            ("huge", REGION, str(2**80), 0, 0, 1_003),
            ("views", "elsewhere", 1_000, 0, 0, 1_004),
        ],
    )
    connection.execute("INSERT INTO namespace_versions VALUES (1, ?)", (FIRST_VERSION,))
    connection.commit()
    connection.close()
    return tmp_path


@pytest.fixture
async def stores(version_1: Path, clock: ManualClock) -> AsyncIterator[Stores]:
    database = Database(version_1)
    opened = sqlite_stores(database, clock)
    await opened.ledger.open_layout(LAYOUT)
    yield opened
    await database.close()


def key(counter: str) -> RollupKey:
    return RollupKey(1, 0, counter)


VIEWS = Rollup(7, 2, 5_000, 1_004, total=7, changed_window=1_004, first_window=-1, recent=None)
HUGE = Rollup(2**80, 0, 0, 1_003, total=2**80, changed_window=1_003, first_window=-1, recent=None)


async def test_counts_are_kept_and_what_is_not_known_has_defaults(stores: Stores) -> None:
    assert await stores.rollup_store.read([key("views"), key("huge")]) == [VIEWS, HUGE]
    page = await stores.rollup_store.page(1, 0, prefix="", after="", limit=9)
    assert page == [("huge", HUGE), ("views", VIEWS)]


async def test_decisions_are_kept(stores: Stores) -> None:
    record = FoldRecord(
        shard=0,
        from_window=1_000,
        to_window=1_004,
        segments=(REF,),
        event_count=2,
        namespaces_version=1,
        digest=b"",
        set_aside=(),
    )
    assert await stores.ledger.folds(0, 1_000, 1_004) == [record]
    assert await stores.ledger.watermarks() == [1_004]
    assert (await stores.ledger.closed()).through == 1_004
    # Who folds it now knows its digest; the record that was agreed on holds all the same.
    with_digest = msgspec.structs.replace(record, digest=b"d" * 16)
    fold = Fold(record=with_digest, rollups=[(key("views"), Rollup(through_window=9_999))])
    assert await stores.fold_commit.commit(fold, rollups_per_batch=10) == record
    assert await stores.rollup_store.read([key("views")]) == [VIEWS]


async def test_the_next_fold_goes_on_from_there(stores: Stores) -> None:
    newer = Rollup(8, 2, 5_000, 1_009, 8, 1_007, -1, Recent(1_005, ((1_007, 1),)))
    await stores.rollup_store.write([(key("views"), newer)])
    assert await stores.rollup_store.read([key("views"), key("huge")]) == [newer, HUGE]


async def test_versions_of_namespaces_are_kept_and_listed(stores: Stores) -> None:
    plays = Definition(name="plays", strategy=Strategy.EVENTUAL)
    first = next_snapshot(EMPTY, [plays], applied_at_ns=5)
    # Who made it is not known, and how many were created was not counted.
    expected = replace(first, about=About())
    assert await stores.namespace_store.latest() == expected
    assert await stores.namespace_store.versions(before=None, limit=9) == [expected.info]
    by_hand = About(origin=Origin.APPLIED, author="an admin", reason="no plays any more")
    second = next_snapshot(expected, [], applied_at_ns=6, about=by_hand)
    assert await stores.namespace_store.put(second)
    assert await stores.namespace_store.versions(before=None, limit=9) == [
        second.info,
        expected.info,
    ]
    assert await stores.namespace_store.versions(before=2, limit=9) == [expected.info]
    assert await stores.namespace_store.get(1) == expected


async def test_damaged_recent_windows_are_damage(version_1: Path, clock: ManualClock) -> None:
    database = Database(version_1)
    await database.write(
        lambda connection: connection.execute("UPDATE rollups SET recent = x'c1' WHERE epoch = 2")
    )
    store = sqlite_stores(database, clock).rollup_store
    assert await store.read([key("huge")]) == [HUGE]
    with pytest.raises(StoreDamaged, match="recent windows of a rollup cannot be read"):
        await store.read([key("views")])
    await database.close()


async def test_an_upgrade_happens_once(version_1: Path) -> None:
    for _ in range(2):
        database = Database(version_1)
        [(version,)] = database.read("PRAGMA user_version")
        assert version == 3
        await database.close()
