"""What is done to a process under load, one at a time; each asserts that it took place."""

import asyncio
import time

import psutil

from tests.calls import eventually
from tests.faults.injected import Deed, Faults
from tests.faults.steps import Step
from tests.load import Load
from tests.processes import ProgramProcess

# Between deeds: how many events are acknowledged, at least.
ACKNOWLEDGED_BETWEEN = 30
# A worker has shards only when those of its former lives are free again.
HIT_WITHIN_S = 120.0


async def kill_at(
    step: Step, nth: int, load: Load, process: ProgramProcess, faults: Faults
) -> None:
    """Kills it when it reaches the step for the nth time, and starts it again."""
    await load.acknowledged(ACKNOWLEDGED_BETWEEN)
    before = len(faults.hits())
    faults.kill_at(step, nth=nth)
    hit = await asyncio.to_thread(faults.wait_hit, before + 1, within_s=HIT_WITHIN_S)
    assert hit == (step, Deed.KILL, process.process.pid)
    await asyncio.to_thread(process.wait_killed)
    await asyncio.to_thread(process.start)


async def pause_at(
    step: Step, pause_s: float, load: Load, process: ProgramProcess, faults: Faults
) -> None:
    """Stops it at the step (SIGSTOP), and has it go on later (SIGCONT)."""
    await load.acknowledged(ACKNOWLEDGED_BETWEEN)
    before = len(faults.hits())
    faults.stop_at(step)
    hit = await asyncio.to_thread(faults.wait_hit, before + 1, within_s=HIT_WITHIN_S)
    assert hit == (step, Deed.STOP, process.process.pid)
    seen = psutil.Process(process.process.pid)
    await asyncio.to_thread(eventually, seen.status, lambda each: each == psutil.STATUS_STOPPED)
    began_s = time.monotonic()
    while time.monotonic() < began_s + pause_s:
        await asyncio.sleep(0.1)
        assert seen.status() == psutil.STATUS_STOPPED
    process.resume()
