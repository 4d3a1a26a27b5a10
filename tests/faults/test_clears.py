"""F18: clears race adds and folds, and are retried. They split the events of a counter in the same
place for everybody (I6)."""

import pytest

from tests.calls import fresh_counter
from tests.faults.deeds import kill_at
from tests.faults.injected import Faults
from tests.faults.steps import FOLD_STEPS
from tests.load import Load, under_load
from tests.processes import FAST_CONVERGENCE_S, TallyProcess

CLEARS = 0.3  # of all events
COUNTERS = 6


def cleared(load: Load) -> int:
    """How many clears count."""
    counters = load.history.counters()
    return sum(load.history.expected(*counter)[1] for counter in counters)


@pytest.mark.timeout(600)
async def test_clears_among_adds(steady: TallyProcess) -> None:
    name = fresh_counter("f18")
    async with under_load(
        steady.address, late_s=(0.1, 3.0), counters=COUNTERS, clears=CLEARS, name=name
    ) as load:
        await load.acknowledged(1_500)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=steady.address)
    assert cleared(load) > 200


@pytest.mark.long
@pytest.mark.timeout(1_200)
async def test_clears_among_adds_while_folds_are_killed(
    tally: TallyProcess, faults: Faults
) -> None:
    async with under_load(
        tally.address, late_s=(0.1, 3.0), counters=COUNTERS, clears=CLEARS, pause_s=0.05
    ) as load:
        for step in FOLD_STEPS:
            await kill_at(step, 2, load, tally, faults)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
    assert [hit.step for hit in faults.hits()] == list(FOLD_STEPS)
    assert cleared(load) > 200
