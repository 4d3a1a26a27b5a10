"""Namespaces that are deleted, created anew and rolled back: whose events are folded, and where."""

import random
from contextlib import suppress

import pytest

import counter.namespaces
from counter.rollups import CachedCount
from tests.unit.rollup_worker.world import COUNTERS, Crash, CrashAt, World


async def test_events_of_a_namespace_that_is_deleted_before_their_fold_are_folded(
    world: World,
) -> None:
    await world.apply("plays", "gone")
    gone = world.id_of("gone")
    for name in COUNTERS:
        await world.write(name, 4, namespace="gone")
    await world.write("views", 7)
    await world.apply("plays")
    assert "gone" not in world.snapshot.namespaces
    await world.fold_all()
    await world.check()
    assert (await world.rollups())[gone, COUNTERS[0]] == (4, 0, 0)


async def test_a_rollback_brings_back_every_event_that_was_acknowledged(world: World) -> None:
    plays, version = world.id_of("plays"), world.snapshot.version
    await world.write("views", 1)
    await world.fold_all()
    await world.write("views", 20)
    await world.apply("likes")
    await world.fold_all()
    # By a server that does not know yet that it is deleted.
    await world.write("views", 300, namespace_id=plays)
    await world.write("views", 5, namespace="likes")
    await world.roll_back(version)
    assert world.id_of("plays") == plays
    await world.write("views", 4_000)
    await world.fold_all()
    await world.check()
    assert (await world.rollups())[plays, "views"] == (4_321, 0, 0)


async def test_a_rollback_over_a_namespace_of_the_same_name_swaps_the_counts(
    world: World,
) -> None:
    first, version = world.id_of("plays"), world.snapshot.version
    await world.write("views", 4)
    await world.apply()
    await world.apply("plays")
    second = world.id_of("plays")
    assert second != first
    await world.write("views", 1)
    await world.roll_back(version)
    assert world.id_of("plays") == first
    await world.write("views", 4)
    await world.roll_back(version + 2)
    assert world.id_of("plays") == second
    await world.write("views", 1)
    await world.fold_all()
    await world.check()
    assert await world.rollups() == {(first, "views"): (8, 0, 0), (second, "views"): (2, 0, 0)}


async def test_a_namespace_of_the_same_name_starts_at_0(world: World) -> None:
    before = world.id_of("plays")
    await world.write("views", 4)
    await world.fold_all()
    await world.apply()
    await world.apply("plays")
    after = world.id_of("plays")
    assert after != before
    await world.write("views", 1)
    await world.fold_all()
    assert await world.rollups() == {(before, "views"): (4, 0, 0), (after, "views"): (1, 0, 0)}


async def test_a_cached_count_follows_while_the_namespace_is_deleted(world: World) -> None:
    """Else a rollback could bring back, for the cache's time, a count of before the deletion."""
    plays = world.id_of("plays")
    old = (plays, "views"), CachedCount(0, 0, 0, 0)
    await world.stores.count_cache.put([old], ttl_ms=60_000)
    await world.write("views", 4)
    await world.apply()
    await world.fold_all()
    [cached] = await world.stores.count_cache.get([(plays, "views")])
    assert cached is not None
    assert cached.count == 4


async def test_a_namespace_that_is_no_longer_remembered_is_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter.namespaces, "RETIRED_MAX", 2)
    await world.apply("plays", "forgotten")
    forgotten = world.id_of("forgotten")
    await world.write("views", 4, namespace="forgotten")
    await world.write("views", 7)
    key = world.key(forgotten, "views")
    await world.apply("plays")
    for name in ("a", "b"):
        await world.apply("plays", name)
        await world.apply("plays")
    assert forgotten not in world.snapshot.by_id
    world.acknowledged.pop((forgotten, "views"))
    await world.fold_all()
    assert await world.rollups() == world.expected()
    assert await world.stores.rollup_store.read([key]) == [None]
    assert await world.stores.count_cache.get([(forgotten, "views")]) == [None]


@pytest.mark.parametrize("seed", range(4))
async def test_deletions_and_rollbacks_at_any_moment_lose_nothing(world: World, seed: int) -> None:
    """With servers that have any version so far, and workers that crash anywhere."""
    chance = random.Random(seed)
    ids = [world.id_of("plays")]
    for _ in range(25):
        await world.write(chance.choice(COUNTERS[:3]), 1, namespace_id=chance.choice(ids))
        await world.write(chance.choice(COUNTERS[:3]), 1, namespace_id=ids[-1])
        if chance.random() < 0.5:
            await change_something(world, chance)
            ids += [each.id for each in world.snapshot.namespaces.values() if each.id not in ids]
        world.clock.advance_ms(chance.choice((100, 1_000, 7_000)))
        with suppress(Crash):
            await world.worker(CrashAt(chance.randrange(60)).wrap).pass_over_all()
    assert len(ids) > 2
    await world.fold_all()
    await world.check()


async def change_something(world: World, chance: random.Random) -> None:
    live = set(world.snapshot.namespaces)
    if chance.random() < 0.5:
        await world.apply(*live ^ {chance.choice(("plays", "likes"))})
        return
    for version in chance.sample(range(1, world.snapshot.version), world.snapshot.version - 1):
        earlier = await world.stores.namespace_store.get(version)
        assert earlier is not None
        if earlier.namespaces != world.snapshot.namespaces:
            await world.roll_back(version)
            return
