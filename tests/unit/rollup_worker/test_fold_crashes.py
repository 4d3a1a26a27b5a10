"""Crashes, pauses and rivals: whatever happens on the way, the same rollups come out (I3)."""

import asyncio
import random
from pathlib import Path

import pytest

from counter.clock import ManualClock
from rollup_worker.rollup import PASS_S_MAX
from tests.stores import BACKENDS, shard_of
from tests.tampered import Gate
from tests.unit.rollup_worker.world import (
    COUNTERS,
    Crash,
    CrashAt,
    World,
    yielding,
)


async def _write_some(world: World, chance: random.Random) -> None:
    for counter in COUNTERS:
        event = await world.write(counter, chance.choice((1, 5, -3, None)))
        if chance.random() < 0.4:
            await world.write(counter, event.delta, time_ns=event.time_ns, token=event.token)
    world.clock.advance_ms(chance.choice((100, 600, 1_300)))


async def test_a_crash_at_every_step_of_a_pass_is_recovered_from(world: World) -> None:
    chance = random.Random(5)
    points = set()
    for point in range(200):
        await _write_some(world, chance)
        await _write_some(world, chance)
        world.clock.advance_ms(8_000)
        crash = CrashAt(point)
        try:
            await world.worker(crash.wrap).pass_over_all()
        except Crash:
            points.add(crash.crashed_at)
        before = await world.stores.ledger.watermarks()
        await world.worker().pass_over_all()
        assert all(
            earlier <= later
            for earlier, later in zip(before, await world.stores.ledger.watermarks(), strict=True)
        )
        await world.check()
        if crash.crashed_at is None:
            break
    else:
        raise AssertionError("the pass never came to its end")
    for name in (
        "ledger.close",
        "ledger.watermarks",
        "ledger.folds",
        "event_log.refs",
        "event_log.bodies",
        "rollup_store.read",
        "fold_commit.commit",
        "count_cache.get",
    ):
        assert {f"before {name}", f"after {name}"} <= points


async def test_a_crash_at_every_step_of_a_stepwise_commit(
    clock: ManualClock, tmp_path: Path
) -> None:
    """The steps in between show only in a store without transactions."""
    async with BACKENDS["memory"](tmp_path, clock) as stores:
        world = await World.create(stores, clock)
        points = set()
        for point in range(200):
            await _write_some(world, random.Random(point))
            world.clock.advance_ms(8_000)
            crash = CrashAt(point)
            try:
                await world.worker(crash.wrap).pass_over_all()
            except Crash:
                points.add(crash.crashed_at)
            # Crashes again and again on the way to recovery, each time a step later.
            for again in range(0, 40, 3):
                try:
                    await world.worker(CrashAt(again).wrap).pass_over_all()
                except Crash:
                    continue
            await world.worker().pass_over_all()
            await world.check()
            if crash.crashed_at is None:
                break
        assert {
            "after ledger.propose",
            "before history_store.write",
            "in the middle of history_store.write",
            "after history_store.write",
            "before rollup_store.write",
            "in the middle of rollup_store.write",
            "after rollup_store.write",
            "before ledger.advance",
            "after ledger.advance",
        } <= points


@pytest.mark.parametrize("seed", range(12))
async def test_rival_workers_write_the_same(world: World, seed: int) -> None:
    """Three workers close and fold the same shards, while events keep coming in."""
    chance = random.Random(seed)

    async def work(number: int) -> None:
        parts = world.worker(yielding(seed * 10 + number))
        for _ in range(8):
            await parts.worker.round()
            assert [each.problem for each in parts.rollup.progress] == [None, None]
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)

    async def write() -> None:
        for _ in range(12):
            await _write_some(world, chance)
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
        world.clock.advance_ms(9_000)

    await asyncio.gather(write(), *(work(number) for number in range(3)))
    await world.fold_all()
    await world.check()


@pytest.mark.parametrize(
    "held",
    [
        "ledger.watermarks",
        "ledger.folds",
        "event_log.refs",
        "namespace_store.latest",
        "event_log.bodies",
        "rollup_store.read",
        "fold_commit.commit",
        "count_cache.get",
    ],
)
async def test_a_worker_that_was_paused_changes_nothing_when_it_goes_on(
    world: World, held: str
) -> None:
    for _ in range(2):
        await _write_some(world, random.Random(1))
    world.clock.advance_ms(8_000)
    gate = Gate(held)
    paused = world.worker(gate.wrap)
    passing = asyncio.create_task(paused.pass_over_all())
    await asyncio.wait_for(gate.reached.wait(), 10)
    # Another worker folds these windows and, with a later close, more of them; twice.
    for _ in range(2):
        await _write_some(world, random.Random(2))
        world.clock.advance_ms(8_000)
        await world.worker().pass_over_all()
    await world.check()
    gate.opened.set()
    await passing
    await world.check()
    await world.fold_all()
    await world.check()


async def test_a_worker_overtaken_by_a_shorter_record_takes_that_one(world: World) -> None:
    """The paused one is about to propose more windows than the record that won holds."""
    shard = shard_of(world.id_of("plays"), "views", world.layout.shards)
    await world.write("views", 1)
    first_close = world.layout.window_of(world.clock.now_ns())
    world.clock.advance_ms(2_000)
    await world.write("views", 2)
    world.clock.advance_ms(9_000)
    gate = Gate("rollup_store.read")
    paused = world.worker(gate.wrap)
    passing = asyncio.create_task(paused.pass_over_all())
    await asyncio.wait_for(gate.reached.wait(), 10)
    await world.worker().pass_over(shard, first_close)
    gate.opened.set()
    await passing
    await world.check()
    assert [record.event_count for record in await world.records(shard)] == [1, 1]


async def test_a_worker_that_knows_of_fewer_closes_than_are_folded(world: World) -> None:
    await world.write("views", 1)
    world.clock.advance_ms(9_000)
    behind = world.worker()
    closed_through = await behind.closer.close_due()
    world.clock.advance_ms(20_000)
    await world.worker().pass_over_all()
    assert await world.stores.ledger.watermarks() > [closed_through] * 2
    for shard in range(world.layout.shards):
        assert not (await behind.pass_over(shard, closed_through)).has_more
    await world.check()


async def test_a_pass_that_was_paused_for_longer_than_records_may_be_gone_starts_anew(
    world: World,
) -> None:
    """Meanwhile another record may have held and expired: this one must not take its place."""
    await world.write("views", 1)
    world.clock.advance_ms(10_000)
    parts = world.worker()
    closed_through = await parts.closer.close_due()
    shard = shard_of(world.id_of("plays"), "views", world.layout.shards)
    times_s = iter([0.0, PASS_S_MAX + 1.0])
    parts.rollup._monotonic_s = lambda: next(times_s, PASS_S_MAX + 1.0)
    assert (await parts.pass_over(shard, closed_through)).has_more
    assert await world.records(shard) == []
    # In time, from the start.
    assert not (await parts.pass_over(shard, closed_through)).has_more
    await world.fold_all()
    await world.check()
