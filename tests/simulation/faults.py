"""The nemesis: does to a fleet what its scenario says, and puts everything right in the end."""

import asyncio
from collections.abc import Callable, Sequence

from counter.errors import TallyError
from tests.simulation.administration import CHANGES, Administration
from tests.simulation.calls import Network
from tests.simulation.fault_kinds import AMBUSHES, WAYS_TO_BE_AWAY, WORKERS_AWAY, Fault
from tests.simulation.machines import Machine
from tests.simulation.programs import Program, Worker, World
from tests.simulation.scenario import Scenario

# How long an ambush waits for its statement.
_AMBUSH_S = 8.0
# A clock that is off by so much closes no windows.
_FAR_OFF_S = 30.0


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
            program = self._programs.get(fault.target)
            if program is not None:  # else the scenario was made smaller
                self._counted[f"fault: {fault.kind}"] += 1
                await self._do(fault, program)

        await asyncio.gather(*(at_its_time(each) for each in self._scenario.faults))

    async def heal(self) -> None:
        """The machines run, their clocks are right, and all messages arrive."""
        weather = self._world.replicas.weather
        weather.cut.clear()
        weather.slow_statements.clear()
        weather.slow_answers.clear()
        weather.lost_share = weather.slow_share = self._network.lost_share = 0.0
        weather.late_share = weather.lost_agreements_share = 0.0
        cache = self._world.cache
        cache.lost_share = cache.older_share = 0.0
        for replica in self._world.replicas.replicas:
            replica.is_up, replica.clock_offset_s = True, 0.0
        for program in self._programs.values():
            machine = program.machine
            machine.ambushes.clear()
            if machine.life is not None:
                machine.life.after_steps = None
            machine.clock.set_right()
            machine.resume()
            if not machine.is_alive:
                program.start()

    async def _do(self, fault: Fault, program: Program) -> None:
        kind = fault.kind
        if kind in AMBUSHES:
            await self._ambush(fault, program)
        elif kind in ("crash", "stop", "pause", "restart", "step", "drift", WORKERS_AWAY):
            await self._to_machines(fault, program)
        elif kind in ("namespaces", "flush cache"):
            await self._at_once(fault)
        else:
            undo = self._make(fault, program.machine)
            await asyncio.sleep(fault.for_s)
            undo()

    async def _to_machines(self, fault: Fault, program: Program) -> None:
        machine = program.machine
        match fault.kind:
            case "crash":
                self._strike(fault, machine, program.crash)
                await self._start_after(fault.for_s, program)
            case "stop":
                program.stop()
                await self._start_after(fault.for_s, program)
            case "pause":
                self._strike(fault, machine, machine.pause)
                await self._resume_after(fault.for_s, machine)
            case "restart":
                for each in self._programs.values():
                    each.crash()
                for each in self._programs.values():
                    await self._start_after(fault.for_s / len(self._programs), each)
            case "step":
                machine.clock.step(fault.amount)
                await asyncio.sleep(fault.for_s)
                machine.clock.set_right()
            case "drift":
                machine.clock.drift(fault.amount)
                await asyncio.sleep(fault.for_s)
            case _:
                workers = [each for each in self._programs.values() if isinstance(each, Worker)]
                await asyncio.gather(*(self._away(fault, each) for each in workers))

    async def _away(self, fault: Fault, worker: Program) -> None:
        machine, weather = worker.machine, self._world.replicas.weather
        match WAYS_TO_BE_AWAY[int(fault.amount)]:
            case "crash":
                worker.crash()
                await self._start_after(fault.for_s, worker)
            case "pause":
                machine.pause()
                await self._resume_after(fault.for_s, machine)
            case "clock":
                machine.clock.step(-_FAR_OFF_S)
                await asyncio.sleep(fault.for_s)
                machine.clock.set_right()
            case _:
                links = {(machine.name, number) for number in range(3)}
                weather.cut |= links
                await asyncio.sleep(fault.for_s)
                weather.cut -= links

    async def _ambush(self, fault: Fault, program: Program) -> None:
        """Strikes when the machine is about to send its next statement of a kind."""
        machine, [statement] = program.machine, fault.statements
        struck = asyncio.Event()

        def strike() -> None:
            self._counted[f"ambushes: {fault.kind.removesuffix(' at')} before {statement}"] += 1
            struck.set()
            match fault.kind:
                case "crash at":
                    program.crash()
                case "step at":
                    machine.clock.step(fault.amount)
                case _:
                    machine.pause()

        machine.ambushes[statement] = strike
        try:
            await asyncio.wait_for(struck.wait(), _AMBUSH_S)
        except TimeoutError:
            machine.ambushes.pop(statement, None)
            return
        match fault.kind:
            case "crash at":
                await self._start_after(fault.for_s, program)
            case "step at":
                await asyncio.sleep(fault.for_s)
                machine.clock.set_right()
            case "pause at":
                await self._resume_after(fault.for_s, machine)
            case _:
                change = await self._change_namespaces(fault)
                machine.resume()
                await self._undo(change, fault)

    def _make(self, fault: Fault, machine: Machine) -> Callable[[], None]:
        """Weather, and what undoes it."""
        replicas, network, cache = self._world.replicas, self._network, self._world.cache
        weather, amount = replicas.weather, fault.amount
        match fault.kind:
            case "cut" | "cut off":
                numbers = range(3) if fault.kind == "cut off" else [fault.replica]
                links = {(machine.name, number) for number in numbers}
                weather.cut |= links
                return lambda: weather.cut.difference_update(links)
            case "replica down" | "replicas down":
                # With two of them down there is no quorum.
                number = 1 if fault.kind == "replica down" else 2
                down = [replicas.replicas[(fault.replica + each) % 3] for each in range(number)]
                return _set_while(down, "is_up", False, True)
            case "storm":
                weather.slow_share += amount
                weather.lost_share += amount / 3

                def calm() -> None:
                    weather.slow_share = max(0.0, weather.slow_share - amount)
                    weather.lost_share = max(0.0, weather.lost_share - amount / 3)

                return calm
            case "slow statements" | "slow answers":
                slow = weather.slow_statements
                if fault.kind == "slow answers":
                    slow = weather.slow_answers
                slow |= dict.fromkeys(fault.statements, amount)

                def quicken() -> None:
                    for each in fault.statements:
                        slow.pop(each, None)

                return quicken
            case "late writes":
                return _set_while([weather], "late_share", amount, 0.0)
            case "lost agreements":
                return _set_while([weather], "lost_agreements_share", amount, 0.0)
            case "lossy calls":
                return _set_while([network], "lost_share", amount, 0.0)
            case "store step":
                replica = replicas.replicas[fault.replica]
                return _set_while([replica], "clock_offset_s", amount, 0.0)
            case "lossy cache":
                return _set_while([cache], "lost_share", amount, 0.0)
            case "older cache":
                return _set_while([cache], "older_share", 0.8, 0.0)
            case _:
                raise AssertionError(fault)

    async def _at_once(self, fault: Fault) -> None:
        if fault.kind == "flush cache":
            self._world.cache.flush()
        else:
            await self._undo(await self._change_namespaces(fault), fault)

    async def _change_namespaces(self, fault: Fault) -> str:
        wanted = next((each for each in fault.statements if each in CHANGES), None)
        try:
            change = await self._administration.change(wanted)
        except TallyError:
            change = "failed"
        self._counted[f"namespaces changed: {change}"] += 1
        return change

    async def _undo(self, change: str, fault: Fault) -> None:
        """What was deleted comes back some time later, with its counts or without."""
        if change == "delete":
            await asyncio.sleep(fault.for_s)
            await self._change_namespaces(fault)

    async def _start_after(self, seconds: float, program: Program) -> None:
        await asyncio.sleep(seconds)
        if not program.machine.is_alive:
            program.start()

    async def _resume_after(self, seconds: float, machine: Machine) -> None:
        await asyncio.sleep(seconds)
        if machine.life is not None and machine.life.paused:
            self._counted["machines paused"] += 1
        machine.resume()

    def _strike(self, fault: Fault, machine: Machine, strike: Callable[[], None]) -> None:
        """At once, or so many callbacks of the machine later."""
        life = machine.life
        if life is None or life.dead:
            return
        if fault.steps:
            life.strike_after(fault.steps, strike)
        else:
            strike()


def _set_while(
    places: Sequence[object], name: str, value: object, calm: object
) -> Callable[[], None]:
    def undo() -> None:
        for each in places:
            setattr(each, name, calm)

    for each in places:
        setattr(each, name, value)
    return undo
