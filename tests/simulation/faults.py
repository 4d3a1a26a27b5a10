"""The nemesis: does to a fleet what its scenario says, and puts everything right in the end."""

import asyncio
from collections.abc import Sequence

from counter.errors import TallyError
from tests.simulation.administration import Administration
from tests.simulation.calls import Network
from tests.simulation.programs import Program, World
from tests.simulation.scenario import Fault, Scenario


class Nemesis:
    def __init__(
        self,
        world: World,
        network: Network,
        programs: Sequence[Program],
        administration: Administration,
        scenario: Scenario,
    ) -> None:
        self._world = world
        self._network = network
        self._programs = {each.machine.name: each for each in programs}
        self._administration = administration
        self._scenario = scenario
        self._counted = world.witness.counted

    async def run(self) -> None:
        """All faults of the scenario, each at its time; some overlap."""
        began_s = asyncio.get_running_loop().time()

        async def at_its_time(fault: Fault) -> None:
            now_s = asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, began_s + fault.at_s - now_s))
            await self._do(fault)

        await asyncio.gather(*(at_its_time(each) for each in self._scenario.faults))

    async def heal(self) -> None:
        """The machines run, their clocks are right, and all messages arrive."""
        weather = self._world.replicas.weather
        weather.cut.clear()
        weather.slow_statements.clear()
        weather.lost_share = weather.slow_share = self._network.lost_share = 0.0
        cache = self._world.cache
        cache.lost_share = cache.older_share = 0.0
        for replica in self._world.replicas.replicas:
            replica.is_up, replica.clock_offset_s = True, 0.0
        for program in self._programs.values():
            if program.machine.life is not None:
                program.machine.life.after_steps = None
            program.machine.clock.set_right()
            program.machine.resume()
            if not program.machine.is_alive:
                program.start()

    async def _do(self, fault: Fault) -> None:
        program = self._programs.get(fault.target)
        if program is None:  # the scenario was made smaller
            return
        replicas, machine = self._world.replicas, program.machine
        weather, network, cache = replicas.weather, self._network, self._world.cache
        self._counted[f"fault: {fault.kind}"] += 1
        match fault.kind:
            case "crash":
                self._strike(fault, program, program.crash)
                await asyncio.sleep(fault.for_s)
                if not machine.is_alive:
                    program.start()
            case "stop":
                program.stop()
                await asyncio.sleep(fault.for_s)
                if not machine.is_alive:
                    program.start()
            case "pause":
                self._strike(fault, program, machine.pause)
                await asyncio.sleep(fault.for_s)
                if machine.life is not None and machine.life.paused:
                    self._counted["machines paused"] += 1
                machine.resume()
            case "cut" | "cut off":
                numbers = range(3) if fault.kind == "cut off" else [fault.replica]
                links = {(machine.name, number) for number in numbers}
                weather.cut |= links
                await asyncio.sleep(fault.for_s)
                weather.cut -= links
            case "replica down":
                replicas.replicas[fault.replica].is_up = False
                await asyncio.sleep(fault.for_s)
                replicas.replicas[fault.replica].is_up = True
            case "storm":
                weather.slow_share += fault.amount
                weather.lost_share += fault.amount / 3
                await asyncio.sleep(fault.for_s)
                weather.slow_share = max(0.0, weather.slow_share - fault.amount)
                weather.lost_share = max(0.0, weather.lost_share - fault.amount / 3)
            case "slow statements":
                slow = dict.fromkeys(fault.statements, fault.amount)
                weather.slow_statements |= slow
                await asyncio.sleep(fault.for_s)
                for statement in slow:
                    weather.slow_statements.pop(statement, None)
            case "lossy calls":
                network.lost_share = fault.amount
                await asyncio.sleep(fault.for_s)
                network.lost_share = 0.0
            case "step":
                machine.clock.step(fault.amount)
                await asyncio.sleep(fault.for_s)
                machine.clock.set_right()
            case "drift":
                machine.clock.drift(fault.amount)
                await asyncio.sleep(fault.for_s)
            case "store step":
                replicas.replicas[fault.replica].clock_offset_s = fault.amount
                await asyncio.sleep(fault.for_s)
                replicas.replicas[fault.replica].clock_offset_s = 0.0
            case "flush cache":
                cache.flush()
            case "lossy cache":
                cache.lost_share = fault.amount
                await asyncio.sleep(fault.for_s)
                cache.lost_share = 0.0
            case "older cache":
                cache.older_share = 0.5
                await asyncio.sleep(fault.for_s)
                cache.older_share = 0.0
            case "namespaces":
                try:
                    await self._administration.change()
                except TallyError:
                    self._counted["changes of namespaces failed"] += 1
            case _:
                raise AssertionError(fault)

    def _strike(self, fault: Fault, program: Program, strike: "object") -> None:
        """At once, or so many callbacks of the machine later."""
        life = program.machine.life
        assert callable(strike)
        if life is None or life.dead:
            return
        if fault.steps:
            life.strike_after(fault.steps, strike)
        else:
            strike()
