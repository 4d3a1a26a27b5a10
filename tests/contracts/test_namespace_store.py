"""NamespaceStore: versions follow one another, and each is for ever what it was."""

import asyncio
from dataclasses import fields, replace

import pytest

from counter.namespaces import (
    EMPTY,
    HISTORY_RETENTION_MS_MAX,
    LIMIT_COUNTERS_MAX,
    LIMIT_NAMES_CHARACTERS_MAX,
    LIMIT_PER_S_MAX,
    NAMESPACE_NAME_BYTES_MAX,
    RETIRED_MAX,
    About,
    Cardinality,
    Definition,
    HistoryStep,
    Limits,
    Namespace,
    Origin,
    Snapshot,
    Strategy,
    content_hash,
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
    limits=Limits(
        adds_per_s=10_000, reads_per_s=2**33, counters=5, batch_items=1, names=r"title/\d+|“\w+”"
    ),
    shadow=Strategy.ACCURATE,
)
ROLLBACK = About(
    origin=Origin.ROLLED_BACK,
    author="an admin ✓",
    reason='the limits of "plays" were\ntoo low',
    restores=2**40,
    created=1,
    changed=2,
    deleted=3,
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
    for given in (PLAYS, PLAYS.limits, ROLLBACK):
        for each in fields(given):
            assert getattr(given, each.name) != each.default, each.name
    plain = Namespace(id=1, name="likes", strategy=Strategy.EVENTUAL)
    assert await stores.namespace_store.put(snapshot(1, PLAYS, plain))
    found = await stores.namespace_store.latest()
    assert found == snapshot(1, PLAYS, plain)
    assert found is not None
    assert found.by_id == {PLAYS.id: PLAYS, 1: plain}
    assert isinstance(found.namespaces["video_plays"].strategy, Strategy)
    assert isinstance(found.namespaces["video_plays"].cardinality, Cardinality)


async def test_what_was_deleted_and_who_did_it_come_back(stores: Stores) -> None:
    likes = Namespace(id=1, name="likes", strategy=Strategy.EVENTUAL)
    # Of one name, and in the order of their deletion, not of their ids.
    deleted = (PLAYS, replace(PLAYS, id=7), replace(PLAYS, id=5, name="other"))
    given = replace(snapshot(1, likes), retired=deleted, about=ROLLBACK, folder_hash="f0")
    for each in fields(Snapshot):
        assert getattr(given, each.name) != each.default, each.name
    assert await stores.namespace_store.put(given)
    for found in (await stores.namespace_store.latest(), await stores.namespace_store.get(1)):
        assert found == given
        assert found is not None
        assert found.retired == deleted
        assert found.by_id == {each.id: each for each in (likes, *deleted)}
        assert isinstance(found.about.origin, Origin)
        assert dict(found.namespaces) == {"likes": likes}


async def test_as_much_as_there_can_be_fits(stores: Stores) -> None:
    """1,000 namespaces, of which each says as much as it may, and as many that were deleted."""
    largest = [
        Definition(
            name=f"n{number:0{NAMESPACE_NAME_BYTES_MAX - 1}}",
            strategy=Strategy.ROLLING_WINDOW,
            description="🎬" * 1_000,
            owner="🍿" * 200,
            max_delta=2**53,
            cache_ttl_ms=3_600_000,
            cache_local_ttl_ms=3_600_000,
            history=tuple(
                HistoryStep(step_ms=43_200_000 + at, retention_ms=HISTORY_RETENTION_MS_MAX)
                for at in range(4)
            ),
            rolling_window_ms=3_600_000,
            limits=Limits(
                adds_per_s=LIMIT_PER_S_MAX,
                reads_per_s=LIMIT_PER_S_MAX,
                counters=LIMIT_COUNTERS_MAX,
                batch_items=10_000,
                names="é" * LIMIT_NAMES_CHARACTERS_MAX,
            ),
        )
        for number in range(1_000)
    ]
    first = next_snapshot(EMPTY, largest, applied_at_ns=1)
    second = next_snapshot(first, [], applied_at_ns=2)
    third = next_snapshot(second, largest, applied_at_ns=3)
    for each in (first, second, third):
        assert await stores.namespace_store.put(each)
    found = await stores.namespace_store.latest()
    assert found == third
    assert found is not None
    assert len(found.by_id) == len(found.namespaces) + RETIRED_MAX == 2_000


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


async def listed(stores: Stores, before: int | None, limit: int) -> list[int]:
    found = await stores.namespace_store.versions(before=before, limit=limit)
    return [each.version for each in found]


async def test_versions_are_listed_newest_first_in_pages(stores: Stores) -> None:
    assert await listed(stores, None, 5) == []
    for version in range(1, 8):
        await stores.namespace_store.put(snapshot(version))
    assert await listed(stores, None, 500) == [7, 6, 5, 4, 3, 2, 1]
    assert await listed(stores, None, 7) == [7, 6, 5, 4, 3, 2, 1]
    assert await listed(stores, None, 3) == [7, 6, 5]
    assert await listed(stores, 5, 3) == [4, 3, 2]
    assert await listed(stores, 2, 3) == [1]
    assert await listed(stores, 1, 3) == []
    assert await listed(stores, 0, 3) == []
    assert await listed(stores, 8, 1) == [7]
    assert await listed(stores, 2**63 - 1, 2) == [7, 6]


async def test_a_listed_version_says_all_but_its_namespaces(stores: Stores) -> None:
    first = replace(snapshot(1, PLAYS), about=ROLLBACK, retired=(replace(PLAYS, id=1),))
    second = snapshot(2)
    for each in (first, second):
        await stores.namespace_store.put(each)
    found = await stores.namespace_store.versions(before=None, limit=10)
    assert found == [second.info, first.info]
    newest, oldest = found
    assert (oldest.namespaces, oldest.about, oldest.content_hash) == (
        1,
        ROLLBACK,
        content_hash([PLAYS]),
    )
    assert oldest.applied_at_ns == first.applied_at_ns
    assert isinstance(oldest.about.origin, Origin)
    assert (newest.namespaces, newest.about) == (0, About())


async def test_a_version_that_lost_a_race_is_not_listed(stores: Stores) -> None:
    offered = [replace(snapshot(1), about=About(author=f"admin {at}")) for at in range(10)]
    taken = await asyncio.gather(*(stores.namespace_store.put(each) for each in offered))
    won = offered[taken.index(True)]
    assert await stores.namespace_store.versions(before=None, limit=10) == [won.info]
