"""The embedded product, as a soak disturbs it."""

import asyncio
import random
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from grpc_health.v1 import health_pb2

from tests.faults.deeds import kill_at, pause_at
from tests.faults.injected import Faults
from tests.faults.slow_store import slow_store
from tests.faults.steps import Step
from tests.faults.write_ahead_log import TEARS, tear
from tests.load import Load
from tests.processes import FAST, FAST_CONVERGENCE_S, TallyProcess

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
MEMORY_MIB_MAX = 1_000.0


class SoakedEmbedded:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._faults = Faults(home / "faults")
        self._tally = TallyProcess(home, *FAST, faults=self._faults)
        self.addresses = [self._tally.address]
        self.worker = self._tally.address
        self.late_s = (1.0, 4.0)
        self.pause_s = 0.05
        self.converges_s = FAST_CONVERGENCE_S
        self.faults = {
            "clock drifts": self._drift,
            "clock steps": self._step_clock,
            "kill at a step": self._kill_at_a_step,
            "kill at any time": self._kill,
            "pause at a step": self._pause_at_a_step,
            "restart": self._restart,
            "slow store": self._slow_store,
            "torn log": self._tear_log,
        }

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._tally.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Data and logs of a failure stay."""
        self._tally.end()
        if error is None:
            shutil.rmtree(self._home)

    def check(self) -> str:
        process = psutil.Process(self._tally.process.pid)
        memory_mib, files = process.memory_info().rss / (1 << 20), process.num_fds()
        assert memory_mib < MEMORY_MIB_MAX
        assert "action=call_failed" not in self._tally.log.read_text()
        return f"{memory_mib:.0f} MiB, {files} files open"

    async def _kill_at_a_step(self, load: Load, chance: random.Random) -> str:
        step, nth = chance.choice(list(Step)), chance.randint(1, 5)
        await kill_at(step, nth, load, self._tally, self._faults)
        return f"killed {step}, at the pass number {nth}"

    async def _kill(self, load: Load, chance: random.Random) -> str:
        after_s = chance.uniform(0.0, 2.0)
        await asyncio.sleep(after_s)
        await asyncio.to_thread(self._tally.kill)
        await asyncio.to_thread(self._tally.start)
        return f"killed after {after_s:.3f} s"

    async def _restart(self, load: Load, chance: random.Random) -> str:
        assert await asyncio.to_thread(self._tally.stop) == 0
        await asyncio.to_thread(self._tally.start)
        return "stopped and started"

    async def _pause_at_a_step(self, load: Load, chance: random.Random) -> str:
        step, pause_s = chance.choice(list(Step)), chance.uniform(0.1, 3 * FAST_CONVERGENCE_S)
        await pause_at(step, pause_s, load, self._tally, self._faults)
        return f"paused {step}, for {pause_s:.1f} s"

    async def _step_clock(self, load: Load, chance: random.Random) -> str:
        ahead_s = chance.choice([-1, 1]) * chance.choice([1.0, 30.0, 3_600.0, 100_000.0])
        self._faults.set_clock(ahead_s=ahead_s)
        await self._wait_health(NOT_SERVING)
        await asyncio.sleep(chance.uniform(0.0, 2.0))
        self._faults.set_clock()
        await self._wait_health(SERVING)
        return f"the clock stepped by {ahead_s:g} s, and back"

    async def _drift(self, load: Load, chance: random.Random) -> str:
        gains = chance.choice([-1, 1]) * chance.uniform(0.05, 0.5)
        self._faults.set_clock(gains_s_per_s=gains)
        await self._wait_health(NOT_SERVING)
        self._faults.set_clock()
        await self._wait_health(SERVING)
        return f"the clock gained {gains:.3f} s per second, and was set right"

    async def _slow_store(self, load: Load, chance: random.Random) -> str:
        slow_s = chance.uniform(2.0, 6.0)
        with slow_store(self._tally.data) as slow:
            await asyncio.sleep(slow_s)
        assert slow.turns > 0
        return f"the store was slow for {slow_s:.1f} s"

    async def _tear_log(self, load: Load, chance: random.Random) -> str:
        tail = chance.choice(sorted(TEARS))
        await asyncio.to_thread(self._tally.kill)
        assert tear(self._tally.data, tail) > 0
        await asyncio.to_thread(self._tally.start)
        return f"killed, and the log ended in {tail}"

    async def _wait_health(self, wanted: int) -> None:
        await asyncio.to_thread(self._tally.wait_health, "", wanted)
