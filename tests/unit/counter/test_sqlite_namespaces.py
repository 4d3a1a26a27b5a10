"""Versions of the namespaces on SQLite: a list of them reads none of their bodies."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from counter.errors import StoreDamaged
from counter.namespaces import EMPTY, Definition, Strategy, next_snapshot
from counter.storage.sqlite import Database, SqliteNamespaceStore

FIRST = next_snapshot(
    EMPTY, [Definition(name="plays", strategy=Strategy.EVENTUAL)], applied_at_ns=1
)
COLUMNS = "SELECT name FROM pragma_table_info('namespace_versions')"
UNREADABLE = "a stored version of the namespaces cannot be read: .*: if a newer Tally wrote it"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def store(database: Database) -> SqliteNamespaceStore:
    made = SqliteNamespaceStore(database)
    assert await made.put(FIRST)
    return made


async def damage(database: Database, column: str, value: bytes) -> None:
    statement = f"UPDATE namespace_versions SET {column} = ?"
    await database.write(lambda connection: connection.execute(statement, (value,)))


async def test_a_list_reads_no_bodies(database: Database, store: SqliteNamespaceStore) -> None:
    await damage(database, "body", b"whatever")
    assert await store.versions(before=None, limit=9) == [FIRST.info]
    # SQLite goes through everything in a row that is before a column.
    columns = [name for (name,) in database.read(COLUMNS)]
    assert columns.index("about") < columns.index("body")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"{}",
        b'{"version":1,"applied_at_ns":1,"next_id":2,"namespaces":'
        b'[{"name":"a","strategy":"of_the_future","id":1}]}',
    ],
)
async def test_what_cannot_be_read_is_told(
    database: Database, store: SqliteNamespaceStore, body: bytes
) -> None:
    await damage(database, "body", body)
    await damage(database, "about", body)
    with pytest.raises(StoreDamaged, match=UNREADABLE):
        await store.latest()
    with pytest.raises(StoreDamaged, match=UNREADABLE):
        await store.get(1)
    with pytest.raises(StoreDamaged, match=UNREADABLE):
        await store.versions(before=None, limit=1)
