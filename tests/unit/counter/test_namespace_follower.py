import asyncio

import pytest
from structlog.testing import capture_logs

from counter import namespace_follower
from counter.errors import SetupError, StoreUnavailable
from counter.namespace_follower import NamespaceFollower
from counter.namespaces import (
    EMPTY,
    Definition,
    Snapshot,
    Strategy,
    VersionInfo,
    next_snapshot,
)
from counter.storage.memory import MemoryNamespaceStore


class Store(MemoryNamespaceStore):
    away = False

    async def versions(self, *, before: int | None, limit: int) -> list[VersionInfo]:
        if self.away:
            raise StoreUnavailable("the store is away")
        return await super().versions(before=before, limit=limit)


class Server:
    """Takes everything but namespaces that are called `bad`."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def check(self, snapshot: Snapshot) -> None:
        if "bad" in snapshot.namespaces:
            raise SetupError("namespace bad: cannot be served")

    def switch(self, snapshot: Snapshot) -> None:
        self.taken.append(snapshot.version)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def follower(store: Store, server: Server) -> NamespaceFollower:
    return NamespaceFollower(store, check=server.check, switch=server.switch)


async def apply(store: Store, *names: str) -> None:
    latest = await store.latest() or EMPTY
    definitions = [Definition(name=name, strategy=Strategy.EVENTUAL) for name in names]
    assert await store.put(next_snapshot(latest, definitions, applied_at_ns=1))


async def test_each_new_version_is_taken_once(
    store: Store, server: Server, follower: NamespaceFollower
) -> None:
    await follower.look()
    assert follower.current is None
    await apply(store, "plays")
    await follower.look()
    await follower.look()
    assert server.taken == [1]
    await apply(store, "plays", "likes")
    await apply(store, "plays", "likes", "quotas")
    await follower.look()
    assert server.taken == [1, 3]
    assert follower.current == await store.latest()


async def test_what_cannot_be_served_changes_nothing(
    store: Store, server: Server, follower: NamespaceFollower
) -> None:
    await apply(store, "plays")
    await follower.look()
    await apply(store, "plays", "bad")
    with capture_logs() as logs:
        await follower.look()
        await follower.look()
    assert [(each["action"], each["version"], each["kept"]) for each in logs] == [
        ("namespaces_refused", 2, 1)
    ]
    assert server.taken == [1]
    await apply(store, "likes")
    await follower.look()
    assert server.taken == [1, 3]


async def test_nothing_to_serve_at_the_start_is_an_error(
    store: Store, server: Server, follower: NamespaceFollower
) -> None:
    await apply(store, "bad")
    for _ in range(2):  # also when it is tried again
        with pytest.raises(SetupError, match="namespace bad"):
            await follower.look()
    assert server.taken == []


async def test_a_store_that_is_away_is_told_once_and_harms_nothing(
    store: Store, server: Server, follower: NamespaceFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_follower, "POLL_S", 0.0)
    await apply(store, "plays")
    await follower.look()
    store.away = True
    with capture_logs() as logs:
        running = asyncio.create_task(follower.run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert [each["action"] for each in logs] == ["namespaces_unreadable"]
        assert follower.current is not None
        store.away = False
        await apply(store, "plays", "likes")
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()
    assert server.taken == [1, 2]
    actions = [each["action"] for each in logs]
    assert actions == ["namespaces_unreadable", "namespaces_taken", "namespaces_readable"]


async def test_a_wake_up_has_the_store_asked_at_once(
    store: Store, server: Server, follower: NamespaceFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_follower, "POLL_S", 3_600.0)
    await apply(store, "a")
    await follower.look()
    following = asyncio.create_task(follower.run())
    await apply(store, "a", "b")
    await asyncio.sleep(0)
    assert server.taken == [1]
    follower.wake()
    async with asyncio.timeout(10):
        while server.taken != [1, 2]:  # noqa: ASYNC110 - nothing tells when it has looked
            await asyncio.sleep(0.001)
    following.cancel()


async def test_what_is_refused_is_told_until_a_later_version_is_taken(
    store: Store, follower: NamespaceFollower
) -> None:
    await apply(store, "a")
    await follower.look()
    assert (follower.version, follower.refused_version, follower.problem) == (1, 0, "")
    await apply(store, "a", "bad")
    await follower.look()
    assert (follower.version, follower.refused_version) == (1, 2)
    assert follower.problem == "namespace bad: cannot be served"
    await apply(store, "a", "b")
    await follower.look()
    assert (follower.version, follower.refused_version, follower.problem) == (3, 0, "")


async def test_at_a_start_the_last_version_that_can_be_served_is_taken(
    store: Store, server: Server, follower: NamespaceFollower
) -> None:
    for names in (["a"], ["a", "b"], ["bad"], ["bad", "worse"]):
        await apply(store, *names)
    await follower.look()
    assert (server.taken, follower.version, follower.refused_version) == ([2], 2, 4)
    await apply(store, "c")
    await follower.look()
    assert (server.taken, follower.refused_version) == ([2, 5], 0)


async def test_a_later_version_is_never_replaced_by_an_earlier_one(
    store: Store, server: Server, follower: NamespaceFollower
) -> None:
    await apply(store, "a")
    await apply(store, "a", "b")
    await follower.look()
    earlier = await store.get(1)
    assert earlier is not None
    follower.take(earlier)
    assert (server.taken, follower.version) == ([2], 2)
