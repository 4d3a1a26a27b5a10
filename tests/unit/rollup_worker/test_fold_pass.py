"""Fold passes: convergence without reads, in few records, and nothing but what was agreed."""

import asyncio
import itertools
from typing import Any

import pytest

import rollup_worker.rollup
from counter.clock import NS_PER_MS
from counter.events import Event
from counter.fold import FoldCounts
from counter.rollups import CachedCount, FoldRecord
from counter.segments import decode
from counter.storage.ports import Fold
from counter.windows import NS_PER_DAY
from tests.stores import KEEPING, segment, shard_of
from tests.tampered import Tampered
from tests.unit.rollup_worker.world import COUNTERS, PLATFORM, World


async def test_events_converge_within_the_bound_with_no_read_and_no_further_write(
    world: World,
) -> None:
    """I2: window + accept_limit + max_clock_skew + one fold pass."""
    for counter in COUNTERS:
        await world.write(counter, 3)
        await world.write(counter, -1)
    window = world.layout.window_of(world.clock.now_ns())
    bound_ms = PLATFORM.window_ms + PLATFORM.close_grace_ns // NS_PER_MS
    since_start_ms = (world.clock.now_ns() - world.layout.start_ns(window)) // NS_PER_MS
    parts = world.worker()
    world.clock.advance_ms(bound_ms - since_start_ms - 1)
    await parts.worker.round()
    assert (await world.stores.ledger.closed()).through == window - 1
    world.clock.advance_ms(1)
    await parts.worker.round()
    assert await world.rollups() == world.expected()
    assert world.expected()[world.id_of("plays"), COUNTERS[0]] == (2, 0, 0)
    await world.check()


async def test_duplicates_and_clears_over_many_windows(world: World) -> None:
    for number in range(40):
        counter = COUNTERS[number % 3]
        event = await world.write(counter, None if number % 11 == 10 else number + 1)
        if number % 4 == 0:  # a retry, through another server
            await world.write(counter, event.delta, time_ns=event.time_ns, token=event.token)
        world.clock.advance_ms(377)
        if number % 5 == 0:
            await world.worker().worker.round()
    await world.fold_all()
    await world.check()
    assert len(await world.records(0)) > 1


async def test_of_two_deltas_with_one_token_one_counts_and_it_is_counted_as_a_conflict(
    world: World,
) -> None:
    first = await world.write("views", 5)
    await world.write("views", 9, time_ns=first.time_ns, token=first.token)
    shard = shard_of(world.id_of("plays"), "views", world.layout.shards)
    world.clock.advance_ms(7_000)
    parts = world.worker()
    await parts.worker.round()
    progress = parts.rollup.progress[shard]
    assert (progress.events, progress.counts) == (2, FoldCounts(duplicates=1, conflicts=1))
    [record] = await world.records(shard)
    bodies = await world.stores.event_log.bodies(record.segments)
    [(count, _, _)] = (await world.rollups()).values()
    assert bodies[0] is not None
    assert count == decode(bodies[0])[0].delta  # of the segment whose id comes first


async def test_a_segment_that_lands_after_the_fold_is_not_counted(world: World) -> None:
    """Its server saw the window closed, so nobody was told that it counts."""
    event = await world.write("views", 5)
    await world.fold_all()
    before = dict(world.acknowledged)
    await world.write("views", 100, time_ns=event.time_ns, token="late")
    assert world.acknowledged == before
    await world.write("views", 1)
    await world.fold_all()
    assert await world.rollups() == world.expected()
    assert (await world.rollups())[world.id_of("plays"), "views"] == (6, 0, 0)


async def test_a_segment_that_lands_after_the_close_but_before_the_fold_may_count(
    world: World,
) -> None:
    """Then the record names it, and it counts for ever: the outcome is the record's."""
    event = await world.write("views", 5)
    window = world.layout.window_of(event.time_ns)
    await world.stores.ledger.close(window)
    late = await world.write("views", 100, time_ns=event.time_ns, token="late")
    assert (late.time_ns, "late") not in world.acknowledged[world.id_of("plays"), "views"]
    await world.fold_all()
    assert (await world.rollups())[world.id_of("plays"), "views"] == (105, 0, 0)


async def test_several_windows_are_one_pass_up_to_a_number_of_events(world: World) -> None:
    sizes = [2, 3, 1, 7, 1, 4, 1]
    for size in sizes:
        for _ in range(size):
            await world.write("views", 1)
        world.clock.advance_ms(PLATFORM.window_ms)
    world.clock.advance_ms(PLATFORM.close_grace_ns // NS_PER_MS)
    shard = shard_of(world.id_of("plays"), "views", world.layout.shards)
    parts = world.worker()
    closed_through = await parts.closer.close_due()
    while (result := await parts.pass_over(shard, closed_through, events_max=5)).has_more:
        assert result.is_full
    await world.fold_all()
    await world.check()
    counts = [record.event_count for record in await world.records(shard)]
    # A window is never cut, however large it is.
    assert [count for count in counts if count] == [5, 1, 7, 5, 1]
    for record in await world.records(shard):
        assert len(record.segments) == record.event_count
        assert all(record.from_window <= ref.window <= record.to_window for ref in record.segments)


async def test_a_record_never_crosses_a_day(world: World) -> None:
    to_midnight_ms = (NS_PER_DAY - world.clock.now_ns() % NS_PER_DAY) // NS_PER_MS
    world.clock.advance_ms(to_midnight_ms - 3_000)
    for _ in range(6):
        for counter in COUNTERS:
            await world.write(counter, 1)
        world.clock.advance_ms(1_000)
    await world.fold_all()
    await world.check()
    for shard in range(world.layout.shards):
        records = await world.records(shard)
        assert len(records) == 2
        days = [
            {
                world.layout.start_ns(window) // NS_PER_DAY
                for window in (record.from_window, record.to_window)
            }
            for record in records
        ]
        assert [len(each) for each in days] == [1, 1]
        assert days[0] != days[1]


@pytest.mark.parametrize("stores", KEEPING, indirect=True)
async def test_many_empty_windows_fold_into_few_records(world: World) -> None:
    await world.write("views", 1)
    world.clock.advance_ms(30 * 86_400_000)  # the worker was away for a month
    await world.write("views", 2)
    world.clock.advance_ms(10_000)
    passes = await world.worker().pass_over_all()
    await world.check()
    assert passes <= world.layout.shards * 33
    for shard in range(world.layout.shards):
        assert len(await world.records(shard)) <= 32


async def test_an_idle_shard_is_folded_rarely_and_a_busy_one_at_once(world: World) -> None:
    busy = shard_of(world.id_of("plays"), "views", world.layout.shards)
    idle = 1 - busy
    first = world.layout.window_of(world.clock.now_ns())
    idle_windows = rollup_worker.rollup._IDLE_FOLD_NS // world.layout.window_ns
    assert idle_windows > 1
    parts = world.worker()
    for _ in range(60):
        await world.write("views", 1)
        world.clock.advance_ms(PLATFORM.window_ms)
        await parts.worker.round()
        closed = (await world.stores.ledger.closed()).through
        watermarks = await world.stores.ledger.watermarks()
        assert closed - watermarks[idle] < idle_windows
        if closed >= first:
            assert watermarks[busy] == closed
    assert len(await world.records(busy)) >= 50
    assert len(await world.records(idle)) <= 60 // idle_windows + 1


@pytest.mark.parametrize("windows_before", [10, 11])
async def test_an_idle_shard_goes_on_after_midnight(world: World, windows_before: int) -> None:
    """With one of the two numbers the day ends with fewer windows than an idle shard waits for. No
    more can join them, because a record does not cross days."""
    to_midnight_ms = (NS_PER_DAY - world.clock.now_ns() % NS_PER_DAY) // NS_PER_MS
    grace_ms = PLATFORM.close_grace_ns // NS_PER_MS
    world.clock.advance_ms(to_midnight_ms + grace_ms - windows_before * PLATFORM.window_ms)
    parts = world.worker()
    for _ in range(30):
        await parts.worker.round()
        world.clock.advance_ms(PLATFORM.window_ms)
    closed = (await world.stores.ledger.closed()).through
    idle_windows = rollup_worker.rollup._IDLE_FOLD_NS // world.layout.window_ns
    assert world.layout.start_ns(closed) % NS_PER_DAY < NS_PER_DAY // 2, "midnight is over"
    assert closed - min(await world.stores.ledger.watermarks()) < idle_windows


async def test_folds_refresh_what_is_read_with_their_stamp(world: World) -> None:
    namespace_id = world.id_of("plays")
    read = ((namespace_id, "views"), CachedCount(0, 0, 0, 0))
    await world.stores.count_cache.put([read], ttl_ms=60_000)
    await world.write("views", 4)
    await world.write("nobody reads this", 5)
    await world.fold_all()
    shard = shard_of(namespace_id, "views", world.layout.shards)
    [record] = await world.records(shard)
    stamp_ns = world.layout.complete_through_ns(record.to_window)
    [cached] = await world.stores.count_cache.get([(namespace_id, "views")])
    assert cached == CachedCount(4, stamp_ns, 0, 0)
    assert await world.stores.count_cache.get([(namespace_id, "nobody reads this")]) == [None]


async def test_a_namespace_that_was_just_created_is_folded(world: World) -> None:
    await world.write("views", 4)
    await world.fold_all()
    await world.apply("plays", "likes")
    await world.write("views", 9, namespace="likes")
    await world.fold_all()
    await world.check()
    assert (await world.rollups())[world.id_of("likes"), "views"] == (9, 0, 0)


async def test_a_replay_uses_the_namespaces_of_its_record(world: World) -> None:
    """A record that was decided before a deletion gives the same rollups after it (I3)."""
    await world.write("views", 4)
    key = world.key(world.id_of("plays"), "views")
    shard = shard_of(world.id_of("plays"), "views", world.layout.shards)
    world.clock.advance_ms(10_000)
    parts = world.worker()
    closed_through = await parts.closer.close_due()
    refs = await world.stores.event_log.refs(shard, world.layout.from_window, closed_through)
    record = FoldRecord(
        shard=shard,
        from_window=world.layout.from_window,
        to_window=closed_through,
        segments=tuple(refs),
        event_count=1,
        namespaces_version=1,
    )
    await world.stores.ledger.propose(record)
    await world.apply()  # everything is deleted
    await parts.worker.round()
    [row] = await world.stores.rollup_store.read([key])
    assert row is not None
    assert row.count == 4


async def test_many_counters_in_one_pass(world: World) -> None:
    namespace_id, now_ns = world.id_of("plays"), world.clock.now_ns()
    window = world.layout.window_of(now_ns)
    by_shard: dict[int, list[Event]] = {}
    for number in range(3_000):
        event = Event(f"title/{number}", now_ns + number, "t", number + 1)
        by_shard.setdefault(shard_of(namespace_id, event.counter, 2), []).append(event)
        world.acknowledged[namespace_id, event.counter][event.time_ns, "t"] = event.delta
    for shard, events in by_shard.items():
        written = segment(events, window=window, shard=shard, namespace_id=namespace_id)
        await world.stores.event_log.append([written])
    folds: list[Fold] = []

    async def around(name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "fold_commit.commit":
            folds.append(args[0])
        return await call(*args, **kwargs)

    world.clock.advance_ms(10_000)
    await world.worker(lambda name, port: Tampered(name, port, around)).worker.round()
    await world.check()
    # The rows of a bucket are next to each other: they are written together.
    for fold in folds:
        buckets = [key.bucket for key, _ in fold.rollups]
        assert buckets == sorted(buckets)
    assert sum(len(fold.rollups) for fold in folds) == 3_000


@pytest.mark.parametrize("stores", ["memory"], indirect=True)  # it gives way to nobody by itself
async def test_a_pass_over_many_counters_gives_way_to_others_again_and_again(world: World) -> None:
    """In an embedded process those who add wait for the same event loop."""
    shards, counters, turns = world.layout.shards, 400, 0
    names = (f"counter {number}" for number in itertools.count())
    of_one_shard = (each for each in names if shard_of(world.id_of("plays"), each, shards) == 0)
    for name in itertools.islice(of_one_shard, counters):
        await world.write(name, 1)

    async def add() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    adding = asyncio.create_task(add())
    await world.fold_all()
    adding.cancel()
    assert await world.rollups() == world.expected()
    assert turns >= counters // 10
