"""F7: the process stands still (SIGSTOP) in the middle of a step, for longer than windows stay
open, and goes on (SIGCONT) as if nothing had been."""

import pytest

from tests.faults.deeds import pause_at
from tests.faults.injected import Faults
from tests.faults.marks import watched_marks
from tests.faults.steps import Step
from tests.load import under_load
from tests.processes import FAST_CONVERGENCE_S, TallyProcess

# Windows that were open when the process stopped are to be closed when it goes on.
PAUSE_S = 2 * FAST_CONVERGENCE_S
LONG_PAUSE_S = 60.0
# A server between its write and its answer; a worker that has read, or decided, or written.
TELLING_STEPS = (Step.BEFORE_WRITE, Step.WRITTEN, Step.LOG_READ, Step.RECORDED)


@pytest.mark.timeout(600)
async def test_paused_in_the_middle_of_a_step(tally: TallyProcess, faults: Faults) -> None:
    async with (
        watched_marks(tally.address),
        under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.2) as load,
    ):
        for step in TELLING_STEPS:
            await pause_at(step, PAUSE_S, load, tally, faults)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_paused_for_minutes(tally: TallyProcess, faults: Faults) -> None:
    """At every step; for a whole minute where it matters most."""
    async with (
        watched_marks(tally.address),
        under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.2) as load,
    ):
        for step in Step:
            pause_s = LONG_PAUSE_S if step in TELLING_STEPS else PAUSE_S
            await pause_at(step, pause_s, load, tally, faults)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
