"""A fleet on three Cassandra nodes, as a soak disturbs it."""

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tally.dev.ring import wait_ring_ready
from tests import backends
from tests.calls import eventually
from tests.faults.deeds import kill_at, pause_at
from tests.faults.memcached_spoiler import Spoiler
from tests.faults.proxy import Way
from tests.faults.ring_fleet import CONVERGENCE_S, Member, RingFleet
from tests.faults.steps import CLOSE_STEPS, FOLD_STEPS, WRITE_STEPS, Step
from tests.fleet import LATE_S
from tests.load import Load

# Longer than calls wait, and than a worker is taken for alive.
LASTS_S_MAX = 15.0
SKEWS_S = (0.3, 2.0, 60.0, 3_600.0)
MEMORY_MIB_MAX = 1_000.0


class SoakedFleet:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._fleet = RingFleet(home, backends.cassandra_ring())
        self.late_s = LATE_S
        self.pause_s = 0.2
        self.converges_s = CONVERGENCE_S
        self.faults = {
            "broken network": self._break_links,
            "cache disturbed": self._disturb_cache,
            "clock steps": self._step_clock,
            "kill at a step": self._kill_at_a_step,
            "kill at any time": self._kill,
            "nodes lost": self._lose_nodes,
            "pause at a step": self._pause_at_a_step,
            "pause at any time": self._pause,
            "restart": self._restart,
        }

    @property
    def addresses(self) -> Sequence[str]:
        return self._fleet.addresses

    @property
    def worker(self) -> str:
        return self._fleet.workers[0].address

    async def __aenter__(self) -> Self:
        try:
            await self._fleet.start_all()
        except BaseException:
            self._fleet.end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Logs of a failure stay; the data of the nodes does not."""
        self._fleet.end()
        backends.end_ring()
        if error is None:
            shutil.rmtree(self._home)

    def check(self) -> str:
        self._fleet.assert_no_bug_shows()
        sizes_mib = [member.memory_mib for member in self._fleet.members]
        assert max(sizes_mib) < MEMORY_MIB_MAX
        return f"{min(sizes_mib):.0f} to {max(sizes_mib):.0f} MiB"

    # Programs.

    async def _kill_at_a_step(self, load: Load, chance: random.Random) -> str:
        member, step = self._member_and_step(chance)
        await kill_at(step, chance.randint(1, 4), load, member, member.faults)
        return f"{member.name} killed {step}"

    async def _pause_at_a_step(self, load: Load, chance: random.Random) -> str:
        member, step = self._member_and_step(chance)
        await pause_at(step, chance.uniform(0.0, LASTS_S_MAX), load, member, member.faults)
        return f"{member.name} paused {step}"

    async def _kill(self, load: Load, chance: random.Random) -> str:
        killed = self._some(chance)
        for member in killed:
            member.kill()
        await self._wait(chance)
        await self._fleet.start(*killed)
        return f"killed {_names(killed)}"

    async def _restart(self, load: Load, chance: random.Random) -> str:
        restarted = self._some(chance)
        for member in restarted:
            assert await asyncio.to_thread(member.stop) == 0
            await self._fleet.start(member)
        return f"stopped and started {_names(restarted)}"

    async def _pause(self, load: Load, chance: random.Random) -> str:
        paused = self._some(chance)
        for member in paused:
            member.pause()
        await self._wait(chance)
        for member in paused:
            assert psutil.Process(member.process.pid).status() == psutil.STATUS_STOPPED
            member.resume()
        return f"paused {_names(paused)}"

    async def _step_clock(self, load: Load, chance: random.Random) -> str:
        member = chance.choice([*self._fleet.servers, *self._fleet.workers])
        ahead_s = chance.choice(SKEWS_S) * chance.choice([-1, 1])
        member.faults.set_clock(ahead_s=ahead_s)
        await self._wait(chance)
        assert member.faults.clock_ahead_s() == ahead_s
        member.faults.set_clock()
        return f"the clock of {member.name} stepped by {ahead_s:g} s, and back"

    # What they talk to.

    async def _break_links(self, load: Load, chance: random.Random) -> str:
        broken, how = self._some(chance), chance.choice(["cut", "drop", "hold", "delay"])
        ways = chance.choice([(), (Way.REQUESTS,), (Way.RESPONSES,)]) if how != "cut" else ()
        slow_s = chance.uniform(0.05, 1.0)
        before = [member.cassandra.seen[how] for member in broken]
        for member in broken:
            given = (slow_s, *ways) if how == "delay" else ways
            getattr(member.cassandra, how)(*given)
        await self._wait(chance)
        for member, seen in zip(broken, before, strict=True):
            await asyncio.to_thread(
                eventually,
                lambda member=member: member.cassandra.seen[how],
                lambda now, seen=seen: now > seen,
            )
            member.cassandra.heal()
        which = " and ".join(way.value for way in ways) or "everything"
        return f"{how} of {which} between Cassandra and {_names(broken)}"

    async def _lose_nodes(self, load: Load, chance: random.Random) -> str:
        lost = chance.sample(list(self._fleet.ring), chance.randint(1, 2))
        how = chance.choice(["kill", "stop", "pause"])
        for node in lost:
            await asyncio.to_thread(getattr(node, how))
        await self._wait(chance)
        for node in lost:
            assert node.is_running == (how == "pause")
            node.resume() if how == "pause" else node.start()
        await asyncio.to_thread(wait_ring_ready, self._fleet.ring)
        return f"{how} of {len(lost)} nodes"

    async def _disturb_cache(self, load: Load, chance: random.Random) -> str:
        how = chance.choice(["kill", "flush", "crowd_out", "spoil"])
        if how == "kill":
            self._fleet.memcached.kill()
            await self._wait(chance)
            self._fleet.memcached.start()
        else:
            spoiler = Spoiler(self._fleet.memcached)
            await asyncio.to_thread(getattr(spoiler, how))
            assert how == "spoil" or spoiler.done.total() == 1
        return f"{how} of memcached"

    # Chance.

    def _some(self, chance: random.Random) -> list[Member]:
        return chance.sample(self._fleet.members, chance.randint(1, 3))

    def _member_and_step(self, chance: random.Random) -> tuple[Member, Step]:
        if chance.random() < 0.5:
            return chance.choice(self._fleet.servers), chance.choice(WRITE_STEPS)
        steps = (*CLOSE_STEPS, *FOLD_STEPS)
        return chance.choice(self._fleet.workers), chance.choice(steps)

    async def _wait(self, chance: random.Random) -> None:
        await asyncio.sleep(chance.uniform(0.0, LASTS_S_MAX))


def _names(members: Sequence[Member]) -> str:
    return ", ".join(member.name for member in members)
