"""NamespaceStore: versions follow one another, and each is for ever what it was."""

import asyncio
from dataclasses import fields, replace

import pytest

from counter.namespaces import (
    EMPTY,
    Cardinality,
    Definition,
    HistoryStep,
    Namespace,
    Snapshot,
    Strategy,
    next_snapshot,
)
from tests.stores import Stores

PLAYS = Namespace(
    id=2**40,
    name="video_plays",
    strategy=Strategy.BEST_EFFORT,
    description="Plays per title: “all” of them 🎬",
    owner="playback-team",
    cardinality=Cardinality.HIGH,
    max_delta=2**53,
    cache_ttl_ms=1,
    cache_local_ttl_ms=0,
    dedupe_ttl_ms=77,
    history=(
        HistoryStep(step_ms=60_000, retention_ms=86_400_000),
        HistoryStep(step_ms=3_600_000, retention_ms=2**41),
    ),
    rolling_window_ms=300_000,
)


def snapshot(version: int, *namespaces: Namespace) -> Snapshot:
    return Snapshot(
        version=version,
        applied_at_ns=1_700_000_000_123_456_789,
        next_id=2**40 + 1,
        namespaces={each.name: each for each in namespaces},
    )


async def test_a_new_store_has_no_version(stores: Stores) -> None:
    assert await stores.namespace_store.latest() is None
    assert await stores.namespace_store.get(0) is None
    assert await stores.namespace_store.get(1) is None


async def test_every_field_comes_back(stores: Stores) -> None:
    # Nothing in PLAYS is a default: a field that is not stored would show.
    for each in fields(Definition):
        assert getattr(PLAYS, each.name) != each.default, each.name
    plain = Namespace(id=1, name="likes", strategy=Strategy.EVENTUAL)
    assert await stores.namespace_store.put(snapshot(1, PLAYS, plain))
    found = await stores.namespace_store.latest()
    assert found == snapshot(1, PLAYS, plain)
    assert found is not None
    assert found.by_id == {PLAYS.id: PLAYS, 1: plain}
    assert isinstance(found.namespaces["video_plays"].strategy, Strategy)
    assert isinstance(found.namespaces["video_plays"].cardinality, Cardinality)


async def test_a_version_can_be_empty(stores: Stores) -> None:
    assert await stores.namespace_store.put(snapshot(1))
    assert await stores.namespace_store.latest() == snapshot(1)


@pytest.mark.parametrize("version", [0, 1, 2, 4, -1])
async def test_only_the_version_after_the_latest_is_taken(stores: Stores, version: int) -> None:
    first, second = snapshot(1, PLAYS), snapshot(2)
    assert await stores.namespace_store.put(first)
    assert await stores.namespace_store.put(second)
    other = snapshot(version, replace(PLAYS, owner="somebody else"))
    assert not await stores.namespace_store.put(other)
    assert await stores.namespace_store.latest() == second
    assert await stores.namespace_store.get(1) == first
    assert await stores.namespace_store.get(version) == {1: first, 2: second}.get(version)


async def test_the_first_version_is_1(stores: Stores) -> None:
    assert not await stores.namespace_store.put(snapshot(2))
    assert not await stores.namespace_store.put(snapshot(0))
    assert await stores.namespace_store.latest() is None


async def test_of_writers_at_once_one_wins(stores: Stores) -> None:
    offered = [snapshot(1, replace(PLAYS, owner=f"team {at}")) for at in range(10)]
    taken = await asyncio.gather(*(stores.namespace_store.put(each) for each in offered))
    assert sum(taken) == 1
    assert await stores.namespace_store.latest() == offered[taken.index(True)]


async def test_a_version_is_immutable(stores: Stores) -> None:
    given = {"video_plays": PLAYS}
    offered = Snapshot(version=1, applied_at_ns=1, next_id=2**40 + 1, namespaces=given)
    await stores.namespace_store.put(offered)
    given.clear()
    found = await stores.namespace_store.get(1)
    assert found is not None
    assert dict(found.namespaces) == {"video_plays": PLAYS}
    with pytest.raises(TypeError):
        found.namespaces["other"] = PLAYS  # type: ignore[index]


async def test_a_chain_of_versions(stores: Stores) -> None:
    current = EMPTY
    chain: list[Snapshot] = []
    for names in (["a"], ["a", "b"], ["b"], ["a", "b"]):
        wanted = [Definition(name=name, strategy=Strategy.ACCURATE) for name in names]
        current = next_snapshot(current, wanted, applied_at_ns=len(chain))
        chain.append(current)
        assert await stores.namespace_store.put(current)
    for version, each in enumerate(chain, start=1):
        assert await stores.namespace_store.get(version) == each
