"""The promise, over real gRPC, with the process killed (kill -9) in the middle, several times."""

import asyncio
from pathlib import Path

import pytest

from tests.load import under_load
from tests.processes import FAST, FAST_CONVERGENCE_S, TallyProcess

KILLS = 4
SECONDS_BETWEEN_KILLS = 3.0


@pytest.mark.timeout(180)
async def test_every_acknowledged_event_is_counted_exactly_once_through_kills(
    tmp_path: Path,
) -> None:
    tally = TallyProcess(tmp_path, *FAST).start()
    try:
        async with under_load(tally.address, late_s=(1.0, 4.0)) as load:
            for _ in range(KILLS):
                await asyncio.sleep(SECONDS_BETWEEN_KILLS)
                await asyncio.to_thread(tally.kill)
                await asyncio.sleep(0.2)
                await asyncio.to_thread(tally.start)
            # On into another minute, so that the history has the end of one.
            await load.into_another_minute()
            await asyncio.sleep(SECONDS_BETWEEN_KILLS)
            await load.stop()
            await asyncio.sleep(FAST_CONVERGENCE_S)  # I2: nobody reads or writes meanwhile
            await load.check(worker=tally.address)
    finally:
        tally.end()
