"""One run: a fleet, its clients and its nemesis, from the first version of the namespaces until all
is healed and counted; then the checks."""

import asyncio
import gc
import random
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from random import Random
from typing import Any

import apscheduler.schedulers.base
import structlog

import rollup_worker.schedule
from counter.clock import NS_PER_S
from counter.errors import TallyError
from counter.settings import Platform
from counter.windows import Layout
from counter_server.commit import CommitLimits
from tally.verify.history import Call, Outcome
from tests.simulation.administration import Administration
from tests.simulation.cache import SharedEntries
from tests.simulation.caller import Caller, CounterName
from tests.simulation.calls import Network
from tests.simulation.checks import calls_of, check_run
from tests.simulation.clients import Client
from tests.simulation.faults import Nemesis
from tests.simulation.loop import BEGIN_S, VirtualLoop
from tests.simulation.machines import Machine, MachineClock, wall_clock_ns
from tests.simulation.programs import ControlPlaneProgram, Program, Server, Worker, World
from tests.simulation.questions import Questions
from tests.simulation.replicas import Replicas
from tests.simulation.scenario import Scenario
from tests.simulation.served import Noted
from tests.simulation.small_limits import limits_as
from tests.simulation.witness import Witness

# After all is healed: a dead worker is forgotten after 10 s, a shard that failed rests for as long.
_CONVERGED_S_MAX = 60.0
# Longer than any count stays in a cache.
_CACHES_S = 3.2
_FINAL_ATTEMPTS = 5
_PATIENCE_S = 10.0
_PARTS_OF_THE_PAST = (0.15, 0.3, 0.45, 0.6)
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Result:
    scenario: Scenario
    violations: tuple[tuple[str, str], ...]
    counted: Counter[str]
    trace_hash: str
    steps: int
    history: tuple[Call, ...]


def run(scenario: Scenario) -> Result:
    witness = Witness()
    loop = VirtualLoop()
    witness.now_s = loop.time
    with _in_simulation(scenario.seed, witness), limits_as(tiny=scenario.tiny_limits):
        simulation = _Simulation(scenario, loop, witness)
        try:
            loop.run(simulation.main())
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-3:])
            witness.violate("run", f"the run failed: {error!r}\n{where}")
        for context in loop.uncaught:
            error = context.get("exception")
            if not isinstance(error, TallyError | asyncio.CancelledError):
                where = "".join(traceback.format_exception(error)[-3:]) if error else ""
                witness.violate("unexpected", f"{context.get('message')}: {error!r}\n{where}")
        loop.bury()
        return Result(
            scenario=scenario,
            violations=tuple(witness.violations),
            counted=witness.counted,
            trace_hash=witness.trace_hash,
            steps=loop.steps,
            history=tuple(calls_of(simulation.history)),
        )


class _Simulation:
    def __init__(self, scenario: Scenario, loop: VirtualLoop, witness: Witness) -> None:
        self._scenario = scenario
        self._loop = loop
        self._witness = witness
        self.history: list[Noted] = []
        seed = scenario.seed
        platform = Platform(
            window_ms=scenario.window_ms,
            shards=scenario.shards,
            lanes=scenario.lanes,
            accept_limit_ms=scenario.accept_limit_ms,
            max_clock_skew_ms=scenario.max_clock_skew_ms,
            log_retention_s=scenario.log_retention_s,
        )
        self._replicas = Replicas(
            loop, Random(f"{seed} store"), witness, timeout_s=scenario.store_timeout_s
        )
        limits = CommitLimits(
            commits_in_flight=scenario.commits_in_flight,
            segments_per_commit=64,
            events_waiting_max=scenario.events_waiting_max,
            gather_ms_per_further_call=0.4,
            overlap_after_ms=scenario.overlap_after_ms,
        )
        cache = SharedEntries(loop, Random(f"{seed} cache"), witness)
        world = World(
            self._replicas, cache, witness, platform, limits, seed, rivals=scenario.rivals
        )
        self._world = world
        self._network = Network(loop, Random(f"{seed} calls"), witness)
        epoch_ns = scenario.epoch_s * NS_PER_S

        def machine(name: str) -> Machine:
            return Machine(name, loop, epoch_ns)

        self._control_plane = ControlPlaneProgram(machine("control-plane"), world)
        self._servers = [
            Server(machine(f"server-{number}"), world) for number in range(scenario.servers)
        ]
        workers = [Worker(machine(f"worker-{number}"), world) for number in range(scenario.workers)]
        self._programs: list[Program] = [self._control_plane, *self._servers, *workers]
        self._administration = Administration(self._control_plane, Random(f"{seed} admin"))
        self._nemesis = Nemesis(
            world, self._network, self._programs, self._administration, scenario
        )

        def caller(name: str, patience_s: float | None = None) -> Caller:
            return Caller(
                name,
                scenario,
                self._servers,
                self._network,
                witness,
                self.history,
                patience_s=patience_s,
            )

        self._clients = [
            Client(caller(f"client-{number}"), MachineClock(loop, epoch_ns))
            for number in range(scenario.clients)
        ]
        self._judge = Questions(caller("judge", _PATIENCE_S))

    async def main(self) -> None:
        weather = self._replicas.weather
        weather.lost_share = self._scenario.lost_share
        weather.slow_share = self._scenario.slow_share
        for program in self._programs:
            program.start()
        await asyncio.sleep(self._scenario.namespaces_after_s)
        await self._administration.begin()
        await self._until_ready()
        self._watch_retention()
        looking = asyncio.create_task(self._look_on())
        clients = [asyncio.create_task(each.run()) for each in self._clients]
        await asyncio.gather(self._nemesis.run(), *clients)
        await self._nemesis.heal()
        await self._until_ready()
        for _ in range(_FINAL_ATTEMPTS):
            try:
                await self._administration.bring_back()
                break
            except TallyError:
                await asyncio.sleep(1)
        await self._until_converged()
        await asyncio.sleep(_CACHES_S)
        if not self._witness.retention.is_exceeded:
            await self._ask_everybody()
            check_run(self._witness, self._layout(), self.history, self._watermarks())
        looking.cancel()

    def _watch_retention(self) -> None:
        scenario = self._scenario
        skew_s = scenario.max_clock_skew_ms / 1_000
        off_s = [abs(each.amount) for each in scenario.faults if "step" in each.kind]
        self._witness.retention.begin(
            self._layout(),
            scenario.epoch_s * NS_PER_S,
            retention_s=scenario.log_retention_s,
            slack_s=scenario.accept_limit_ms / 1_000 + skew_s + sum(off_s),
        )

    async def _until_ready(self) -> None:
        for _ in range(200):
            for program in self._programs:
                if not program.machine.is_alive:  # it was stopping until now
                    program.start()
            if all(each.is_ready for each in self._programs):
                return
            await asyncio.sleep(0.3)
        waiting = [each.machine.name for each in self._programs if not each.is_ready]
        self._witness.violate("run", f"not ready after a minute: {waiting}")

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            for server in self._servers:
                if server.is_ready and server.machine.is_alive:
                    server.check()

    async def _until_converged(self) -> None:
        """I2: every event that was written is folded in time, or never will be."""
        healed_s = self._loop.time()
        while True:
            last = max((window for _, window, _, _ in self._witness.segments.values()), default=0)
            if all(watermark >= last for watermark in self._watermarks().values()):
                return
            if self._witness.retention.is_exceeded:
                return  # what expired cannot be folded, and nothing is promised any more
            if self._loop.time() > healed_s + _CONVERGED_S_MAX:
                if self._witness.retention.is_stuck(self._watermarks(), healed_s):
                    return
                self._witness.violate(
                    "I2", f"watermarks {self._watermarks()}, with events in window {last}"
                )
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _ask_everybody(self) -> None:
        """Every counter on each server, on the cheap way and on the accurate one, and its history;
        and what became of each token of which nobody was told."""
        counters = sorted({(each.namespace, each.counter) for each, _ in self.history})
        last_ns = self._layout().complete_through_ns(
            max((window for _, window, _, _ in self._witness.segments.values()), default=0)
        )
        for server in self._servers:
            for counter in counters:
                for staleness_s in (None, 0):
                    await self._insist(
                        lambda server=server, counter=counter, staleness_s=staleness_s: (
                            self._judge.read([counter], staleness_s=staleness_s, server=server)
                        ),
                        f"{counter} on {server.machine.name}",
                    )
                    read = self.history[-1].call
                    if (read.complete_through_ns or 0) < last_ns:
                        self._witness.violate("I2", f"{read} is not complete through {last_ns}")
        for counter in counters:
            await self._ask_for_the_past(counter)
        for namespace in {namespace: None for namespace, _ in counters}:
            names = [name for of, name in counters if of == namespace]
            await self._judge.list(namespace, names, 0)
            await self._judge.top(namespace, names, None)
        await self._settle()

    async def _ask_for_the_past(self, counter: CounterName) -> None:
        epoch_ns = self._scenario.epoch_s * NS_PER_S
        began_ns = epoch_ns + int(BEGIN_S * NS_PER_S)
        ended_ns = epoch_ns + int(self._loop.time() * NS_PER_S)
        await self._judge.history(counter, began_ns)
        for part in _PARTS_OF_THE_PAST:
            await self._judge.count_at(counter, began_ns + int((ended_ns - began_ns) * part))

    async def _settle(self) -> None:
        """Asks for every token that was not acknowledged, in namespaces that are still there."""
        latest = self._witness.snapshot(max(self._witness.versions)).namespaces
        live = {each.id for each in latest.values()}
        settled = {
            (served.namespace_id, call.counter, call.token)
            for call, served in self.history
            if call.outcome is Outcome.OK
        }
        for write, served in [each for each in self.history if each.call.is_write]:
            key = (served.namespace_id, write.counter, write.token)
            if write.outcome is Outcome.UNKNOWN and key not in settled and key[0] in live:
                settled.add(key)
                server = self._servers[len(settled) % len(self._servers)]
                await self._insist(
                    lambda write=write, server=server: self._judge.status(write, server),
                    f"the outcome of {write}",
                )

    async def _insist(self, ask: Any, what: str) -> None:
        for _ in range(_FINAL_ATTEMPTS):
            if await ask():
                return
            await asyncio.sleep(1)
        self._witness.violate("I7", f"nobody can tell {what}, and nothing is broken any more")

    def _layout(self) -> Layout:
        [(from_window, window_ms, shards, lanes)] = self._replicas.merged("layouts").values()
        return Layout(from_window=from_window, window_ms=window_ms, shards=shards, lanes=lanes)

    def _watermarks(self) -> dict[int, int]:
        return {row[0]: window for (_, row), window in self._replicas.merged("watermarks").items()}


class _MachineTime(datetime):
    """For APScheduler, which asks the system for the time: that of the machine it runs on."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.fromtimestamp(wall_clock_ns() / NS_PER_S, tz or UTC)


@contextmanager
def _in_simulation(seed: int, witness: Witness) -> Iterator[None]:
    """Takes the place of what the product takes from its process, and puts it back."""
    places: list[Any] = [apscheduler.schedulers.base, rollup_worker.schedule]
    state, config = random.getstate(), structlog.get_config()
    random.seed(seed)
    for place in places:
        place.datetime = _MachineTime

    def look(logger: Any, method: str, event: Any) -> Any:
        """Mistakes of ours go to the log with where they were made, and the process goes on."""
        error = event.get("exc_info")
        if error:
            witness.violate("unexpected", f"{event.get('event')}: {error!r}")
        if event.get("action") == "audit_difference":
            witness.audit_differences.append(dict(event))
        witness.counted[f"logged: {event.get('action')}"] += 1
        raise structlog.DropEvent

    structlog.configure(processors=[look], cache_logger_on_first_use=False)
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()
        for place in places:
            place.datetime = datetime
        random.setstate(state)
        structlog.configure(**config)
