"""The process is killed (kill -9) under load: at every step that has a name, and at any time.

F1: at the steps of a write. F6: at those of a close and of a fold pass. F15: at random.
"""

import asyncio
import random

import pytest

from tests.faults.deeds import kill_at
from tests.faults.injected import Faults
from tests.faults.marks import watched_marks
from tests.faults.steps import Step
from tests.load import under_load
from tests.processes import FAST_CONVERGENCE_S, TallyProcess

KILLS_AT_RANDOM = 25
ROUNDS = 4


@pytest.mark.timeout(600)
async def test_killed_at_each_step(tally: TallyProcess, faults: Faults) -> None:
    """F1, F6."""
    async with (
        watched_marks(tally.address),
        under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.2) as load,
    ):
        for step in Step:
            await kill_at(step, 1, load, tally, faults)
        # On into another minute, so that the history has the end of one.
        await load.into_another_minute()
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
    assert [hit.step for hit in faults.hits()] == list(Step)


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_killed_at_each_step_again_and_again(tally: TallyProcess, faults: Faults) -> None:
    """F1, F6: in any order, and not the first time that a step is reached."""
    chance = random.Random(6)
    steps = [step for step in Step for _ in range(ROUNDS)]
    chance.shuffle(steps)
    async with (
        watched_marks(tally.address),
        under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.2) as load,
    ):
        for step in steps:
            await kill_at(step, chance.randint(1, 5), load, tally, faults)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
    assert [hit.step for hit in faults.hits()] == steps


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_killed_at_any_time(tally: TallyProcess) -> None:
    """F15: every acknowledged event survives, as fast as the load can go."""
    chance = random.Random(15)
    async with (
        watched_marks(tally.address),
        under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.02) as load,
    ):
        for _ in range(KILLS_AT_RANDOM):
            await load.acknowledged(chance.randint(1, 200))
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            await asyncio.to_thread(tally.kill)
            await asyncio.to_thread(tally.start)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
