"""What is done to a fleet under load, drawn by chance. Each deed asserts that it took place, and is
over when it ends: everybody serves again, or will soon."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from tally.dev.ring import wait_ring_ready
from tests.calls import eventually
from tests.faults.injected import Deed
from tests.faults.memcached_spoiler import Spoiler
from tests.faults.proxy import Way
from tests.faults.ring_fleet import Member, RingFleet
from tests.faults.steps import CLOSE_STEPS, FOLD_STEPS, WRITE_STEPS
from tests.load import Load

HIT_WITHIN_S = 120.0
# Longer than calls wait, and than a worker is taken for alive.
LASTS_S_MAX = 15.0
SKEWS_S = (0.3, -0.3, 2.0, -2.0, 60.0, -60.0, 3_600.0, -3_600.0)
ADDS_BETWEEN = 20

Doing = Callable[[Load], Awaitable[str]]


class FleetDeeds:
    def __init__(self, fleet: RingFleet, chance: Random) -> None:
        self._fleet = fleet
        self._chance = chance
        self._spoiler = Spoiler(fleet.memcached)
        self._deeds: list[Doing] = [
            self._kill,
            self._fail_at_a_step,
            self._pause,
            self._break_links,
            self._break_links,
            self._move_clock,
            self._lose_nodes,
            self._disturb_cache,
        ]

    async def do_one(self, load: Load) -> str:
        """Says what was done, when it is over and events are acknowledged again."""
        said = await self._chance.choice(self._deeds)(load)
        await load.acknowledged(ADDS_BETWEEN, within_s=HIT_WITHIN_S)
        return said

    # Processes.

    async def _kill(self, load: Load) -> str:
        killed = self._chance.sample(self._fleet.members, self._chance.randint(1, 3))
        for member in killed:
            member.kill()
        await self._wait()
        await self._fleet.start(*killed)
        return f"killed {self._names(killed)}"

    async def _fail_at_a_step(self, load: Load) -> str:
        if self._chance.random() < 0.5:
            member, steps = self._chance.choice(self._fleet.servers), WRITE_STEPS
        else:
            member, steps = self._chance.choice(self._fleet.workers), (*CLOSE_STEPS, *FOLD_STEPS)
        step, nth = self._chance.choice(steps), self._chance.randint(1, 4)
        hits = len(member.faults.hits())
        stops = self._chance.random() < 0.5
        arm = member.faults.stop_at if stops else member.faults.kill_at
        arm(step, nth=nth)
        hit = await asyncio.to_thread(member.faults.wait_hit, hits + 1, within_s=HIT_WITHIN_S)
        assert hit == (step, Deed.STOP if stops else Deed.KILL, member.process.pid)
        await self._go_on(member, stops=stops)
        return f"{'stopped' if stops else 'killed'} {member.name} {step}"

    async def _go_on(self, member: Member, *, stops: bool) -> None:
        if stops:
            await self._wait()
            member.resume()
        else:
            await asyncio.to_thread(member.wait_killed)
            await asyncio.to_thread(member.start)

    async def _pause(self, load: Load) -> str:
        paused = self._chance.sample(self._fleet.members, self._chance.randint(1, 3))
        for member in paused:
            member.pause()
        await self._wait()
        for member in paused:
            assert not member.has_ended
            member.resume()
        return f"paused {self._names(paused)}"

    async def _move_clock(self, load: Load) -> str:
        member = self._chance.choice(self._fleet.servers + self._fleet.workers)
        ahead_s = self._chance.choice(SKEWS_S)
        member.faults.set_clock(ahead_s=ahead_s)
        await self._wait()
        assert member.faults.clock_ahead_s() == ahead_s
        member.faults.set_clock()
        return f"moved the clock of {member.name} by {ahead_s} s"

    # What they talk to.

    async def _break_links(self, load: Load) -> str:
        broken = self._chance.sample(self._fleet.members, self._chance.randint(1, 2))
        how = self._chance.choice(["cut", "drop", "hold", "delay"])
        ways = self._chance.choice([(), (Way.REQUESTS,), (Way.RESPONSES,)])
        before = [member.cassandra.seen[how] for member in broken]
        for member in broken:
            if how == "cut":
                member.cassandra.cut()
            elif how == "delay":
                member.cassandra.delay(self._chance.uniform(0.05, 1.0), *ways)
            else:
                getattr(member.cassandra, how)(*ways)
        await self._wait()
        for member, seen in zip(broken, before, strict=True):
            await asyncio.to_thread(
                eventually,
                lambda member=member: member.cassandra.seen[how],
                lambda now, seen=seen: now > seen,
                within_s=HIT_WITHIN_S,
            )
            member.cassandra.heal()
        said = " and ".join(way.value for way in ways) or "all"
        return f"{how} ({said}) between Cassandra and {self._names(broken)}"

    async def _lose_nodes(self, load: Load) -> str:
        ring, count = self._fleet.ring, self._chance.randint(1, 2)
        lost = self._chance.sample(list(ring), count)
        how = self._chance.choice(["kill", "stop", "pause"])
        for node in lost:
            getattr(node, how)()
        await self._wait()
        for node in lost:
            assert node.is_running == (how == "pause")
            node.resume() if how == "pause" else node.start()
        await asyncio.to_thread(wait_ring_ready, ring)
        return f"{how} of {count} nodes"

    async def _disturb_cache(self, load: Load) -> str:
        how = self._chance.choice(["kill", "flush", "crowd_out", "spoil"])
        if how == "kill":
            self._fleet.memcached.kill()
            await self._wait()
            self._fleet.memcached.start()
        else:
            await asyncio.to_thread(getattr(self._spoiler, how))
        return f"{how} of memcached"

    async def _wait(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, LASTS_S_MAX))

    def _names(self, members: list[Member]) -> str:
        return ", ".join(member.name for member in members)
