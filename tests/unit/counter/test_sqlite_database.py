"""The embedded store's file: its lock, its schema, and what happens when the disk is not well."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from counter.clock import ManualClock
from counter.errors import SetupError, StoreDamaged, StoreUnavailable
from counter.events import Event
from counter.namespaces import Namespace, Snapshot, Strategy
from counter.rollups import FoldRecord, Rollup, RollupKey
from counter.storage.ports import Fold
from counter.storage.sqlite import Database
from counter.windows import Layout
from tests.stores import REGION, Stores, segment, sqlite_stores

LAYOUT = Layout(from_window=1_000, window_ms=1_000, shards=4)
KEY = RollupKey(1, 0, "views")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path)
    yield opened
    await opened.close()


async def test_a_second_open_is_refused_and_names_the_process(tmp_path: Path) -> None:
    first = Database(tmp_path)
    with pytest.raises(SetupError, match=rf"{tmp_path} is in use by process {os.getpid()}: "):
        Database(tmp_path)
    # The refused one left the first alone.
    assert await first.write(lambda connection: 5) == 5
    await first.close()
    again = Database(tmp_path)
    await again.close()


async def test_a_lock_file_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("999999999\n")
    await Database(tmp_path).close()
    assert (tmp_path / "LOCK").read_text() == f"{os.getpid()}\n"


async def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(SetupError, match="cannot use data directory"):
        Database(tmp_path / "file")


async def test_an_empty_file_is_migrated(tmp_path: Path) -> None:
    (tmp_path / "tally.db").touch()
    database = Database(tmp_path)
    [(version,)] = database.read("PRAGMA user_version")
    assert version >= 1
    assert database.read("SELECT count(*) FROM segments") == [(0,)]
    assert database.read("PRAGMA journal_mode") == [("wal",)]
    await database.close()


async def test_a_newer_schema_is_refused_and_not_touched(tmp_path: Path) -> None:
    await Database(tmp_path).close()
    path = tmp_path / "tally.db"
    with sqlite3.connect(path) as connection:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SetupError, match="has schema version 99, but this Tally knows versions up"):
        Database(tmp_path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (99,)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    await Database(tmp_path).close()  # the refused open let go of the lock


async def test_a_schema_step_that_fails_leaves_the_version_before_it(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "tally.db")
    connection.execute("CREATE TABLE rollups (somebody TEXT)")  # in the way of the first step
    connection.close()
    with pytest.raises(SetupError, match=r"cannot open .*tally\.db.*rollups already exists"):
        Database(tmp_path)
    connection = sqlite3.connect(tmp_path / "tally.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (1,)
    connection.close()


async def test_everything_survives_a_reopen(tmp_path: Path, clock: ManualClock) -> None:
    written = [
        segment([Event("views", 1, "t", 2**40)], window=1_000 + at, shard=at) for at in range(4)
    ]
    record = FoldRecord(
        shard=2,
        from_window=1_000,
        to_window=1_003,
        segments=(written[2].ref,),
        event_count=1,
        namespaces_version=1,
    )
    namespace = Namespace(id=1, name="likes", strategy=Strategy.EVENTUAL)
    snapshot = Snapshot(version=1, applied_at_ns=5, next_id=2, namespaces={"likes": namespace})
    rollup = Rollup(2**80, 2, 3, 1_003)

    database = Database(tmp_path)
    stores = sqlite_stores(database, clock)
    await stores.ledger.open_layout(LAYOUT)
    await stores.namespace_store.put(snapshot)
    await stores.event_log.append(written)
    await stores.ledger.close(1_003)
    fold = Fold(record=record, rollups=[(KEY, rollup)])
    await stores.fold_commit.commit(fold, rollups_per_batch=100)
    await database.close()

    database = Database(tmp_path)
    stores = sqlite_stores(database, clock)
    assert await stores.ledger.open_layout(Layout(from_window=1, window_ms=5, shards=1)) == LAYOUT
    assert await stores.namespace_store.latest() == snapshot
    assert (await stores.ledger.closed()).through == 1_003
    assert await stores.ledger.watermarks() == [999, 999, 1_003, 999]
    assert await stores.ledger.folds(2, 1_000, 1_000) == [record]
    assert await stores.rollup_store.read([KEY]) == [rollup]
    for shard in range(4):
        assert await stores.event_log.refs(shard, 0, 2**62) == [written[shard].ref]
        assert await stores.event_log.bodies([written[shard].ref]) == [written[shard].body]
    await database.close()


async def test_marks_do_not_go_back_in_the_file_either(tmp_path: Path, clock: ManualClock) -> None:
    database = Database(tmp_path)
    ledger = sqlite_stores(database, clock).ledger
    await ledger.open_layout(LAYOUT)
    for window in (1_005, 1_002):
        await ledger.close(window)
        await ledger.advance(1, window)
    await database.close()
    database = Database(tmp_path)
    ledger = sqlite_stores(database, clock).ledger
    await ledger.open_layout(LAYOUT)
    assert (await ledger.closed()).through == 1_005
    assert await ledger.watermarks() == [999, 1_005, 999, 999]
    await database.close()


async def test_a_writer_that_dies_leaves_what_was_committed(tmp_path: Path) -> None:
    """The file as a killed process leaves it, with its write-ahead log, opened elsewhere."""
    database = Database(tmp_path / "first")
    await database.write(
        lambda connection: connection.execute("INSERT INTO closes VALUES (?, 7)", (REGION,))
    )
    (tmp_path / "second").mkdir()
    for each in (tmp_path / "first").iterdir():
        (tmp_path / "second" / each.name).write_bytes(each.read_bytes())
    copy = Database(tmp_path / "second")
    assert copy.read("SELECT closed_through FROM closes") == [(7,)]
    await copy.close()
    await database.close()


def _closing(region: str, window: int) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute(
        "INSERT INTO closes VALUES (?, ?)", (region, window)
    )


async def test_one_bad_job_does_not_fail_its_neighbours(database: Database) -> None:
    def stop(connection: sqlite3.Connection) -> None:
        raise ZeroDivisionError("a mistake of ours")

    started, go_on = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        started.set()
        assert go_on.wait(10)

    holding = asyncio.create_task(database.write(hold))
    await asyncio.to_thread(started.wait, 10)
    # All of these wait behind the one that is held, and so share a transaction.
    jobs = [_closing("a", 1), stop, _closing("b", 2**70), _closing("c", 3)]
    sharing = [asyncio.create_task(database.write(job)) for job in jobs]
    await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*sharing, return_exceptions=True)
    await holding
    assert isinstance(results[1], ZeroDivisionError)
    assert isinstance(results[2], OverflowError)
    assert database.read("SELECT * FROM closes ORDER BY 1") == [("a", 1), ("c", 3)]
    assert database.problem is None


async def test_jobs_that_wait_share_a_transaction_and_keep_their_order(database: Database) -> None:
    def note(number: int) -> Any:
        return lambda connection: connection.execute(
            "INSERT INTO closes VALUES ('r', ?) ON CONFLICT DO UPDATE SET closed_through = ?",
            (number, number),
        )

    await asyncio.gather(*(database.write(note(number)) for number in range(500)))
    assert database.read("SELECT closed_through FROM closes") == [(499,)]


async def test_a_write_whose_caller_went_away_stands(database: Database) -> None:
    writing = asyncio.create_task(
        database.write(lambda connection: connection.execute("INSERT INTO closes VALUES ('r', 1)"))
    )
    await asyncio.sleep(0)
    writing.cancel()
    await database.write(lambda connection: None)
    assert database.read("SELECT * FROM closes") == [("r", 1)]


async def test_close_finishes_what_waits_and_then_refuses(tmp_path: Path) -> None:
    database = Database(tmp_path)
    writes = [asyncio.create_task(database.write(_closing(f"r{at}", 1))) for at in range(200)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="closed"):
        await asyncio.wait_for(database.write(lambda connection: None), 10)
    await asyncio.wait_for(closing, 10)
    await asyncio.gather(*writes)
    again = Database(tmp_path)
    assert again.read("SELECT count(*) FROM closes") == [(200,)]
    await again.close()


# A disk that is full.


async def _fill(stores: Stores) -> int:
    """Appends until the disk is full; answers with the number of segments that it took."""
    for count in range(2_000):
        large = segment([Event("views", 1, "t", 1)], window=1_000)._replace(body=b"x" * 50_000)
        try:
            await stores.event_log.append([large])
        except StoreUnavailable:
            return count
    raise AssertionError("the disk never filled")


async def test_a_full_disk_is_a_problem_until_space_is_freed(
    tmp_path: Path, clock: ManualClock
) -> None:
    database = Database(tmp_path)
    stores = sqlite_stores(database, clock)
    await stores.ledger.open_layout(LAYOUT)
    await database.write(lambda connection: connection.execute("PRAGMA max_page_count = 150"))
    stored = await _fill(stores)
    assert stored > 0
    assert database.problem is not None
    assert "no space left" in database.problem
    # What was acknowledged is there, what was not left no trace, and reads go on.
    refs = await stores.event_log.refs(0, 1_000, 1_000)
    assert len(refs) == stored
    assert None not in await stores.event_log.bodies(refs)
    more = [segment([], window=1_000)._replace(body=b"x" * 50_000) for _ in range(3)]
    with pytest.raises(StoreUnavailable, match="no space left") as refused:
        await stores.event_log.append(more)
    assert refused.value.retry_after_ms is not None
    assert len(await stores.event_log.refs(0, 1_000, 1_000)) == stored
    # Space is freed: it goes on by itself.
    while await stores.event_log.drop_through(1_000):
        pass
    late = segment([Event("views", 1, "t", 1)], window=1_001)
    await stores.event_log.append([late])
    assert database.problem is None
    await database.close()
    database = Database(tmp_path)
    assert await sqlite_stores(database, clock).event_log.bodies([late.ref]) == [late.body]
    await database.close()


# A file that is damaged.


async def _filled(directory: Path, clock: ManualClock) -> Stores:
    database = Database(directory)
    stores = sqlite_stores(database, clock)
    await stores.ledger.open_layout(LAYOUT)
    rows = [(RollupKey(1, 0, f"counter {at}"), Rollup(at, through_window=5)) for at in range(5_000)]
    await stores.rollup_store.write(rows)
    await database.close()
    return stores


async def test_a_damaged_header_is_refused_at_the_start(tmp_path: Path, clock: ManualClock) -> None:
    await _filled(tmp_path, clock)
    path = tmp_path / "tally.db"
    body = path.read_bytes()
    path.write_bytes(b"\xde\xad\xbe\xef" * 25 + body[100:])
    with pytest.raises(SetupError, match=r"is damaged .*restore the data directory"):
        Database(tmp_path)
    path.write_bytes(body)
    await Database(tmp_path).close()  # the refused open let go of the lock


async def test_damage_in_the_middle_puts_the_store_out_of_service(
    tmp_path: Path, clock: ManualClock
) -> None:
    await _filled(tmp_path, clock)
    path = tmp_path / "tally.db"
    body = bytearray(path.read_bytes())
    body[4_096 * 12 :] = b"\xa5" * (len(body) - 4_096 * 12)
    path.write_bytes(body)
    database = Database(tmp_path)
    store = sqlite_stores(database, clock).rollup_store
    keys = [RollupKey(1, 0, f"counter {at}") for at in range(5_000)]
    with pytest.raises(StoreUnavailable, match=r"is damaged .*restore the data directory"):
        await store.read(keys)
    assert database.problem is not None
    assert "is damaged" in database.problem
    # For good: nothing is acknowledged any more, whatever part of the file it would touch.
    with pytest.raises(StoreUnavailable, match="out of service"):
        await database.write(lambda connection: None)
    assert "is damaged" in database.problem
    await database.close()


def _error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CORRUPT_INDEX,
        sqlite3.SQLITE_NOTADB,
    ],
)
async def test_after_a_failed_fsync_nothing_is_acknowledged_any_more(
    database: Database, code: int
) -> None:
    """Not even what waited already: the kernel may call the next fsync a success."""
    started, go_on = threading.Event(), threading.Event()

    def fail(connection: sqlite3.Connection) -> None:
        started.set()
        assert go_on.wait(10)
        raise _error(code)

    failing = asyncio.create_task(database.write(fail))
    await asyncio.to_thread(started.wait, 10)
    waiting = asyncio.create_task(
        database.write(lambda connection: connection.execute("INSERT INTO closes VALUES ('r', 1)"))
    )
    await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(failing, waiting, return_exceptions=True)
    assert [type(each) for each in results] == [StoreUnavailable, StoreUnavailable]
    assert database.problem is not None
    assert database.read("SELECT * FROM closes") == []


async def test_an_error_that_passes_leaves_no_problem_behind(database: Database) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise _error(sqlite3.SQLITE_IOERR_WRITE)

    with pytest.raises(StoreUnavailable, match="read-only after an error"):
        await database.write(fail)
    assert database.problem is not None
    await database.write(lambda connection: None)
    assert database.problem is None


async def test_a_fold_record_that_cannot_be_read_back_is_damage(
    database: Database, clock: ManualClock
) -> None:
    await database.write(
        lambda connection: connection.execute(
            "INSERT INTO folds VALUES (?, 0, 1, 2, ?, 0, 1, x'', x'90')",
            (REGION, b"\xc1 not a list"),
        )
    )
    with pytest.raises(StoreDamaged, match="fold record"):
        await sqlite_stores(database, clock).ledger.folds(0, 1, 1)
