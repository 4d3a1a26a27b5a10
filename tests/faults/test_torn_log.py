"""F15: a crash leaves a torn end in the write-ahead log, after what was acknowledged."""

import asyncio

import pytest

from tests.faults.write_ahead_log import TEARS, tear
from tests.load import under_load
from tests.processes import FAST_CONVERGENCE_S, TallyProcess


@pytest.mark.timeout(600)
async def test_a_torn_end_takes_nothing_that_was_acknowledged(tally: TallyProcess) -> None:
    async with under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.2) as load:
        for tail in TEARS:
            await load.acknowledged(60)
            await asyncio.to_thread(tally.kill)
            assert tear(tally.data, tail) > 0
            await asyncio.to_thread(tally.start)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
