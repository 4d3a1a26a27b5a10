"""Versions of the namespaces on a real node, beside a Tally of the version before, and when it is
not known whether a version was written."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from counter.errors import SetupError, StoreUnavailable
from counter.namespaces import (
    EMPTY,
    About,
    Definition,
    Snapshot,
    Strategy,
    next_snapshot,
    snapshot_to_json,
)
from counter.storage.cassandra import CassandraNamespaceStore, CassandraSession, schema
from tests.cassandra_store import DATA_CENTER, settings, shared_session

PLAYS = Definition(name="plays", strategy=Strategy.EVENTUAL)
FIRST = next_snapshot(EMPTY, [PLAYS], applied_at_ns=1, about=About(author="one of two"))


class Unsure:
    """A session that does not learn what came of its first attempts to agree."""

    def __init__(self, session: CassandraSession, *, lost: int) -> None:
        self._session = session
        self._lost = lost
        self.agree = CassandraSession.agree.__get__(self)

    async def run(self, name: str, parameters: Sequence[object]) -> list[Any]:
        rows = await self._session.run(name, parameters)
        if name == "put_namespaces" and self._lost:
            self._lost -= 1
            raise StoreUnavailable("it did not answer in time")
        return rows


async def stores(*, lost: int) -> tuple[CassandraNamespaceStore, CassandraNamespaceStore]:
    """One that is unsure, and another one on the same versions."""
    session, platform_name = await shared_session(), f"platform {secrets.token_hex(6)}"
    unsure: Any = Unsure(session, lost=lost)
    return (
        CassandraNamespaceStore(unsure, platform_name=platform_name),
        CassandraNamespaceStore(session, platform_name=platform_name),
    )


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_version_that_is_our_own_from_an_attempt_that_seemed_to_fail(lost: int) -> None:
    unsure, other = await stores(lost=lost)
    assert await unsure.put(FIRST)
    assert await other.latest() == FIRST
    assert await other.versions(before=None, limit=9) == [FIRST.info]


async def test_a_version_of_somebody_else_who_wrote_the_same_namespaces() -> None:
    unsure, other = await stores(lost=0)
    theirs = replace(FIRST, about=About(author="the other of two"))
    latest = unsure._list

    async def and_then_they_write(*args: Any, **kwargs: Any) -> Any:
        seen = await latest(*args, **kwargs)
        assert await other.put(theirs)
        return seen

    unsure._list = and_then_they_write  # type: ignore[method-assign]
    assert not await unsure.put(FIRST)
    assert await other.latest() == theirs


def put_by_the_version_before(
    session: Any, keyspace: str, platform_name: str, snapshot: Snapshot
) -> tuple[Any, ...]:
    """The statement of schema version 2, on a session of the driver. Answers with its row."""
    statement = (
        f"INSERT INTO {keyspace}.namespace_versions (platform, version, body) "
        "VALUES (%s, %s, %s) IF NOT EXISTS"
    )
    row = (platform_name, snapshot.version, snapshot_to_json(snapshot))
    answer: tuple[Any, ...] = session.execute(statement, row).one()
    return answer


async def test_beside_a_tally_of_the_version_before() -> None:
    session, platform_name = await shared_session(), f"platform {secrets.token_hex(6)}"
    store = CassandraNamespaceStore(session, platform_name=platform_name)
    before = partial(
        put_by_the_version_before, session._session, settings().keyspace, platform_name
    )
    second = next_snapshot(FIRST, [], applied_at_ns=2)
    third = next_snapshot(second, [PLAYS], applied_at_ns=3)
    assert before(FIRST)[0]
    assert await store.put(second)
    assert before(third)[0]
    assert await store.versions(before=None, limit=9) == [third.info, second.info, FIRST.info]
    assert await store.versions(before=3, limit=1) == [second.info]
    assert await store.versions(before=2, limit=1) == [FIRST.info]
    # It takes the last column of the row that is there for the body, to know its own again.
    refused = before(second)
    assert (refused[0], refused[-1]) == (False, snapshot_to_json(second))


async def test_a_keyspace_of_schema_version_2_is_brought_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = replace(settings(), keyspace=f"test_{secrets.token_hex(6)}")
    until_then = schema.migrations()[:2]
    with monkeypatch.context() as patched:
        patched.setattr(schema, "migrations", lambda: until_then)
        assert await schema.apply(old, {DATA_CENTER: 1}, lambda _: None) == [1, 2]
    driver = (await shared_session())._session
    assert put_by_the_version_before(driver, old.keyspace, "tally", FIRST)[0]
    with pytest.raises(SetupError, match="has schema version 2, this Tally needs version 4"):
        await CassandraSession.connect(old)
    assert await schema.apply(old, {DATA_CENTER: 1}, lambda _: None) == [3, 4]
    session = await CassandraSession.connect(old)
    store = CassandraNamespaceStore(session)
    assert await store.latest() == FIRST
    second = next_snapshot(FIRST, [], applied_at_ns=2)
    assert await store.put(second)
    assert await store.versions(before=None, limit=9) == [second.info, FIRST.info]
    await session.close()
