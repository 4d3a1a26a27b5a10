"""F15: a crash leaves a torn end in the write-ahead log, after what was acknowledged."""

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.faults.write_ahead_log import FRAME_HEADER_BYTES, valid_part
from tests.load import under_load
from tests.processes import FAST_CONVERGENCE_S, TallyProcess

# From the last frame of the log and a source of chance: what stands where the next one would be.
TEARS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "nothing": lambda frame, chance: b"",
    "half a frame": lambda frame, chance: frame[: len(frame) // 2],
    "zeros": lambda frame, chance: bytes(3 * len(frame)),
    "garbage": lambda frame, chance: chance.randbytes(5 * len(frame) + 7),
    "a frame with a page that was not written": lambda frame, chance: (
        frame[:FRAME_HEADER_BYTES] + bytes(len(frame) - FRAME_HEADER_BYTES)
    ),
    "a frame that was written before": lambda frame, chance: frame,
}


def tear(tally: TallyProcess, tail: Callable[[bytes, random.Random], bytes]) -> int:
    """Cuts the log after its last transaction and puts something there instead; answers how many
    transactions are left in it."""
    log = tally.data / "tally.db-wal"
    part = valid_part(log)
    with log.open("r+b") as file:
        file.seek(part.end - part.frame_bytes)
        frame = file.read(part.frame_bytes)
        file.truncate(part.end)
        file.seek(part.end)
        file.write(tail(frame, random.Random(15)))
    return part.transactions


@pytest.mark.timeout(600)
async def test_a_torn_end_takes_nothing_that_was_acknowledged(tally: TallyProcess) -> None:
    async with under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.2) as load:
        for tail in TEARS.values():
            await load.acknowledged(60)
            await asyncio.to_thread(tally.kill)
            assert tear(tally, tail) > 0
            await asyncio.to_thread(tally.start)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
