"""The schema on a real node: applied once, from anywhere, and required at the start."""

import asyncio
import itertools
import secrets
from dataclasses import replace

import pytest

from counter.errors import SetupError
from counter.storage.cassandra import CassandraSession
from counter.storage.cassandra.schema import apply, migrations, status
from counter.storage.cassandra.session import queries
from tests.cassandra_store import DATA_CENTER, settings

REPLICATION = {DATA_CENTER: 1}


def quiet(_: str) -> None:
    pass


def test_migrations_are_numbered_from_1_without_gaps() -> None:
    assert [each.version for each in migrations()] == list(range(1, len(migrations()) + 1))
    for migration in migrations():
        assert migration.statements, migration
        for statement in migration.statements:
            assert statement.startswith(("CREATE TABLE IF NOT EXISTS", "ALTER TABLE")), statement
            assert "--" not in statement


def test_every_table_repairs_on_read() -> None:
    """Quorum reads that could go back would break the closing protocol."""
    created = [
        statement
        for migration in migrations()
        for statement in migration.statements
        if statement.startswith("CREATE TABLE")
    ]
    assert len(created) >= 8
    assert all("read_repair = 'BLOCKING'" in each for each in created)


def test_every_query_has_a_name_of_its_own() -> None:
    names = [query.name for query in queries("k")]
    assert len(names) == len(set(names)) >= 19
    agreed = {query.name for query in queries("k") if query.kind == "agree"}
    assert agreed == {"open_layout", "propose_fold", "set_aside", "put_namespaces"}
    for query in queries("k"):
        assert ("IF NOT EXISTS" in query.cql) == (query.kind == "agree"), query.name
        assert query.cql.startswith("SELECT") == (query.kind == "read"), query.name


async def test_two_that_apply_at_once_make_one_schema() -> None:
    fresh = replace(settings(), keyspace=f"test_{secrets.token_hex(6)}")
    before = await status(fresh)
    assert (before.version, len(before.pending)) == (0, len(migrations()))
    with pytest.raises(SetupError, match=rf"{fresh.keyspace} has no schema.*tally schema apply"):
        await CassandraSession.connect(fresh)
    told: list[str] = []
    applied = await asyncio.gather(*(apply(fresh, REPLICATION, told.append) for _ in range(3)))
    # Each migration was run by exactly one of them.
    assert sorted(itertools.chain(*applied)) == [each.version for each in migrations()]
    assert "migration 1" in " ".join(told)
    after = await status(fresh)
    assert (after.version, after.pending) == (migrations()[-1].version, ())
    assert await apply(fresh, REPLICATION, quiet) == []
    session = await CassandraSession.connect(fresh)
    assert await session.run("live_members", ("nowhere",)) == []
    await session.close()


async def test_another_replication_than_the_keyspace_has_is_told_and_not_changed() -> None:
    told: list[str] = []
    assert await apply(settings(), {DATA_CENTER: 2}, told.append) == []
    assert "left as it is" in " ".join(told)


async def test_replication_to_a_data_center_that_is_not_there() -> None:
    fresh = replace(settings(), keyspace=f"test_{secrets.token_hex(6)}")
    with pytest.raises(SetupError, match=r"cassandra\.replication"):
        await apply(fresh, {"atlantis": 3}, quiet)
