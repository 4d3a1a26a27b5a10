"""The closer: clocks decide when a window closes, and a clock that is wrong closes nothing."""

import re

import pytest

from counter.clock import NS_PER_MS, ManualClock
from tests.unit.rollup_worker.world import PLATFORM, World


async def test_windows_close_when_their_grace_is_over(world: World) -> None:
    closer = world.worker().closer
    start_ns = world.clock.now_ns()
    for _ in range(100):
        world.clock.advance_ms(137)
        through = await closer.close_due()
        assert through == (await world.stores.ledger.closed()).through
        now_ns = world.clock.now_ns()
        if now_ns - start_ns > PLATFORM.close_grace_ns + world.layout.window_ns:
            assert world.layout.end_ns(through) + PLATFORM.close_grace_ns <= now_ns
            assert world.layout.end_ns(through + 1) + PLATFORM.close_grace_ns > now_ns
    assert closer.problem is None


@pytest.mark.parametrize(("skew_ms", "side"), [(5_000, "ahead of"), (-501, "behind")])
async def test_a_skewed_clock_closes_nothing_and_says_so(
    world: World, skew_ms: int, side: str
) -> None:
    world.clock.advance_ms(60_000)
    own = ManualClock(world.clock.now_ns() + skew_ms * NS_PER_MS)
    parts = world.worker(clock=own)
    before = (await world.stores.ledger.closed()).through
    assert await parts.closer.close_due() == before
    assert (await world.stores.ledger.closed()).through == before
    problem = parts.worker.problem()
    assert problem is not None
    # A store that takes its time to answer makes it look like a little less.
    assert re.search(rf"(0\.5|[45]\.\d) s {side} the store's", problem)
    # Set right, it closes again and the problem is gone.
    own.advance_ms(-skew_ms)
    assert await parts.closer.close_due() > before
    assert parts.worker.problem() is None


async def test_a_skew_within_the_limit_closes(world: World) -> None:
    world.clock.advance_ms(60_000)
    own = ManualClock(world.clock.now_ns() + 500 * NS_PER_MS)
    assert await world.worker(clock=own).closer.close_due() > world.layout.from_window


async def test_a_skewed_worker_still_folds_what_others_closed(world: World) -> None:
    await world.write("views", 5)
    world.clock.advance_ms(10_000)
    await world.worker().closer.close_due()
    own = ManualClock(world.clock.now_ns() + 3_600_000 * NS_PER_MS)
    await world.worker(clock=own).worker.round()
    assert await world.rollups() == world.expected()


async def test_a_clock_that_steps_back_reopens_nothing(world: World) -> None:
    world.clock.advance_ms(60_000)
    through = await world.worker().closer.close_due()
    world.clock.advance_ms(-30_000)
    assert await world.worker().closer.close_due() == through
    assert (await world.stores.ledger.closed()).through == through
