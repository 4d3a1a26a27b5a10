"""Retention: what is folded and old is forgotten; what is not folded never is (I8)."""

import pytest

from counter.clock import NS_PER_MS, NS_PER_S
from counter.storage.ports import FOREVER, HistoryKey
from tests.stores import KEEPING, shard_of
from tests.unit.rollup_worker.world import COUNTERS, HISTORY, PLATFORM, World

RETENTION_MS = PLATFORM.log_retention_s * 1_000
DAY_MS = 86_400_000

pytestmark = pytest.mark.parametrize("stores", KEEPING, indirect=True)


async def segments(world: World) -> int:
    found = 0
    for shard in range(world.layout.shards):
        found += len(await world.stores.event_log.refs(shard, 0, FOREVER))
    return found


async def records(world: World) -> int:
    return sum([len(await world.records(shard)) for shard in range(world.layout.shards)])


async def test_nothing_unfolded_is_ever_forgotten(world: World) -> None:
    for counter in COUNTERS:
        await world.write(counter, 1)
    world.clock.advance_ms(30 * DAY_MS)  # nobody folds
    retention = world.worker().retention
    await retention.forget()
    assert await segments(world) == len(COUNTERS)
    await world.worker().closer.close_due()  # closed, but not folded
    await retention.forget()
    assert await segments(world) == len(COUNTERS)
    await world.fold_all()
    await world.check()


async def test_one_shard_that_is_behind_keeps_its_events(world: World) -> None:
    """Also when the others are folded."""
    await world.write("views", 1)
    behind = shard_of(world.id_of("plays"), "views", world.layout.shards)
    world.clock.advance_ms(10 * DAY_MS)
    parts = world.worker()
    closed_through = await parts.closer.close_due()
    while (await parts.pass_over(1 - behind, closed_through)).has_more:
        pass
    await parts.retention.forget()
    assert await segments(world) == 1
    await world.fold_all()
    await world.check()


async def test_folded_events_are_forgotten_after_log_retention_and_records_a_day_later(
    world: World,
) -> None:
    for counter in COUNTERS:
        await world.write(counter, 1)
    written_ns = world.clock.now_ns()
    await world.fold_all()
    parts = world.worker()
    elapsed_ms = (world.clock.now_ns() - written_ns) // 1_000_000
    world.clock.advance_ms(RETENTION_MS - elapsed_ms)
    await parts.retention.forget()
    assert await segments(world) == len(COUNTERS)
    of_events = await records(world)
    world.clock.advance_ms(PLATFORM.window_ms)
    await parts.retention.forget()
    assert await segments(world) == 0
    assert await records(world) == of_events
    world.clock.advance_ms(DAY_MS - PLATFORM.window_ms)
    await parts.retention.forget()
    assert await records(world) == of_events
    world.clock.advance_ms(60_000)
    await parts.retention.forget()
    assert await records(world) == 0
    # Counts stay, and folding goes on where it was.
    assert await world.rollups() == world.expected()
    await world.write("views", 1)
    await world.fold_all()
    assert await world.rollups() == world.expected()


async def test_more_segments_than_one_call_forgets(world: World) -> None:
    for number in range(620):
        await world.write(COUNTERS[number % 8], 1)
    await world.fold_all()
    await world.write("views", 1)
    world.clock.advance_ms(RETENTION_MS + 1_000)
    await world.worker().retention.forget()
    assert await segments(world) == 1  # the one that is not folded


async def history(world: World, step_ms: int) -> list[int]:
    """The steps of which a state is kept."""
    key = HistoryKey(world.id_of("plays"), "views", step_ms)
    return [row.step for row in await world.stores.history_store.between(key, 0, FOREVER, limit=99)]


async def test_history_is_forgotten_step_by_step_and_the_coarser_is_kept(world: World) -> None:
    """A state goes when the step that ended it is older than the retention, and not before."""
    fine, coarse = HISTORY
    start_ns = world.clock.now_ns()
    for _ in range(3):  # 60 s apart: each in other steps than the one before
        await world.write("views", 1)
        world.clock.advance_ms(60_000)
    await world.fold_all()
    retention = world.worker().retention
    kept_fine, kept_coarse = (
        await history(world, fine.step_ms),
        await history(world, coarse.step_ms),
    )
    assert len(kept_fine) == len(kept_coarse) == 2  # the third is the rollup

    async def forget_when_ended_for(seconds: float, retention_ms: int) -> None:
        """So long after the second write, which ended the state of the first."""
        due_ns = start_ns + 60 * NS_PER_S + retention_ms * NS_PER_MS + round(seconds * NS_PER_S)
        world.clock.advance_ms((due_ns - world.clock.now_ns()) // NS_PER_MS)
        await retention.forget_history()

    await forget_when_ended_for(-2, fine.retention_ms)
    assert await history(world, fine.step_ms) == kept_fine
    await forget_when_ended_for(4, fine.retention_ms)
    assert await history(world, fine.step_ms) == kept_fine[1:]
    assert await history(world, coarse.step_ms) == kept_coarse
    await forget_when_ended_for(-10, coarse.retention_ms)
    assert await history(world, fine.step_ms) == []
    assert await history(world, coarse.step_ms) == kept_coarse
    await forget_when_ended_for(20, coarse.retention_ms)
    assert await history(world, coarse.step_ms) == kept_coarse[1:]
    assert await world.rollups() == world.expected()
