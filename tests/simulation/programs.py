"""The programs of the fleet, composed on simulated stores as tally/fleet.py does on real ones."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import Any

from control_plane.app import ControlPlane
from counter.background import keep_running
from counter.namespace_follower import NamespaceFollower
from counter.namespaces import check_windows
from counter.settings import Platform
from counter.storage.cassandra import (
    CassandraEventLog,
    CassandraHistoryStore,
    CassandraLedger,
    CassandraMembership,
    CassandraNamespaceStore,
    CassandraRollupStore,
)
from counter.storage.memory import MemoryCountCache
from counter.storage.stepwise import StepwiseFoldCommit
from counter.windows import Layout
from counter_server import late as late_tokens
from counter_server import tail
from counter_server.app import CounterServer, Stores
from counter_server.commit import CommitLimits
from rollup_worker.app import RollupWorker
from rollup_worker.rollup import FoldStores
from tests.simulation.cache import SharedEntries, SimulatedCountCache
from tests.simulation.lag import LagWatch
from tests.simulation.machines import Machine
from tests.simulation.replicas import Replicas, patiently
from tests.simulation.served import SERVED, Served, noting
from tests.simulation.session import SimulatedSession
from tests.simulation.witness import Witness

# Calls and streams that are under way when a program stops have so long to end.
_GRACE_S = 0.3


class CapturedServices:
    """Takes the place of a gRPC server: keeps the methods that a program registers."""

    def __init__(self) -> None:
        self.methods: Mapping[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        pass

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        self.methods = handlers


class CapturedRpc:
    def __init__(self) -> None:
        self.services = CapturedServices()
        self.stopping = asyncio.Event()


class World:
    """What all programs share: the stores, and what all agree on."""

    def __init__(
        self,
        replicas: Replicas,
        cache: SharedEntries,
        witness: Witness,
        platform: Platform,
        limits: CommitLimits,
        seed: int,
        *,
        rivals: bool,
    ) -> None:
        """`rivals`: no worker knows of another, so that each folds every shard."""
        self.rivals = rivals
        self.replicas = replicas
        self.cache = cache
        self.witness = witness
        self.platform = platform
        self.limits = limits
        self.seed = seed

    def chance(self, machine: Machine) -> Random:
        """Of one life: others draw from others, so that one fault less changes little else."""
        return Random(f"{self.seed} {machine.name} {machine.lives}")


class Program:
    """One program on one machine, which can be started again and again."""

    def __init__(self, machine: Machine, world: World) -> None:
        self.machine = machine
        self.world = world
        self.is_ready = False
        self.stopped = False

    def start(self) -> None:
        self.is_ready = self.stopped = False
        self.machine.start(self._run)

    def crash(self) -> None:
        self.is_ready = False
        self.machine.crash()

    def stop(self) -> None:
        """As a signal would: what is under way is finished."""
        if self.machine.is_alive and self.is_ready:
            self.is_ready = False
            self.machine.run(self._stop())

    async def _stop(self) -> None:
        self._rpc.stopping.set()
        await asyncio.sleep(_GRACE_S)
        await self._stack.aclose()
        self.stopped = True
        self.machine.crash()

    async def _run(self) -> None:
        self._stack = AsyncExitStack()
        self._rpc: Any = CapturedRpc()
        machine, world = self.machine, self.world
        self._session = SimulatedSession(world.replicas, machine, world.witness)
        self._ledger = CassandraLedger(
            self._session, world.platform, monotonic_ns=self._monotonic_ns
        )
        wanted = world.platform.layout(machine.clock.now_ns())
        layout = await patiently(lambda: self._ledger.open_layout(wanted))
        await self._start(layout)
        self.is_ready = True

    async def _start(self, layout: Layout) -> None:
        raise NotImplementedError

    def _monotonic_ns(self) -> int:
        return int(self.machine.loop.time() * 1e9)

    def _monotonic_s(self) -> float:
        return self.machine.loop.time()

    def _event_log(self) -> CassandraEventLog:
        return CassandraEventLog(
            self._session, self._ledger, self.machine.clock, self.world.platform
        )


class Server(Program):
    server: CounterServer

    async def _start(self, layout: Layout) -> None:
        world, session = self.world, self._session
        self.server = server = CounterServer(
            Stores(
                event_log=self._event_log(),
                ledger=self._ledger,
                rollup_store=CassandraRollupStore(session, world.platform),
                history_store=CassandraHistoryStore(session, world.platform),
                local_cache=MemoryCountCache(monotonic_ns=self._monotonic_ns),
                shared_cache=SimulatedCountCache(world.cache),
                best_effort_counters=None,
            ),
            platform=world.platform,
            layout=layout,
            clock=self.machine.clock,
            limits=world.limits,
            monotonic_ns=self._monotonic_ns,
            chance=world.chance(self.machine),
        )
        registry = server._registry
        registry.named = noting(registry.named)  # type: ignore[method-assign]
        self.lag = LagWatch(server, world.platform, layout, self.machine.clock, world.witness)
        follower = NamespaceFollower(
            CassandraNamespaceStore(session), check=server.check, switch=server.switch
        )
        while follower.current is None:
            await patiently(follower.look)
            await asyncio.sleep(0.2)
        self._stack.callback(keep_running("follow the store", follower.run).cancel)
        await patiently(lambda: server.start(self._rpc, self._stack))

    async def call(self, method: str, request: Any, context: Any, served: Served) -> Any:
        SERVED.set(served)
        handler = self._rpc.services.methods[method].unary_unary
        return await self.lag.judged(method, handler(request, context))

    async def stream(self, context: Any) -> None:
        await self._rpc.services.methods["StreamAddCount"].stream_stream(None, context)

    def check(self) -> None:
        """What holds at any moment, whoever looks (I9, I10)."""
        witness, server, limits = self.world.witness, self.server, self.world.limits
        registry, reads = server._registry, server._questions.counts_at._reads
        late = next(iter(registry.strategies.values()))._late  # type: ignore[attr-defined]
        bounded = {
            "events that wait": (server._commit._events, limits.events_waiting_max),
            "commits under way": (len(server._commit._commits), limits.commits_in_flight),
            "events kept of the tail": (reads._tail._kept_events, tail.EVENTS_KEPT_MAX),
            "look-ups under way": (len(late._lookups), late_tokens.LOOKUPS_IN_FLIGHT_MAX),
        }
        for what, (number, most) in bounded.items():
            if not 0 <= number <= most:
                witness.violate("I9", f"{self.machine.name}: {number} {what}, at most {most} may")
        served = {name: each.namespace for name, each in registry.strategies.items()}
        if served != witness.snapshot(registry.version).namespaces:
            witness.violate(
                "I10", f"{self.machine.name}: version {registry.version} is not served as it is"
            )
        witness.counted["looks at what is served"] += 1


class Worker(Program):
    worker: RollupWorker

    async def _start(self, layout: Layout) -> None:
        world, session, ledger = self.world, self._session, self._ledger
        told = world.platform
        if world.rivals:
            told = replace(told, region=f"{told.region}-{self.machine.name}")
        rollup_store = CassandraRollupStore(session, world.platform)
        history_store = CassandraHistoryStore(session, world.platform)
        self.worker = RollupWorker(
            FoldStores(
                event_log=self._event_log(),
                ledger=ledger,
                rollup_store=rollup_store,
                history_store=history_store,
                fold_commit=StepwiseFoldCommit(ledger, history_store, rollup_store),
                shared_cache=SimulatedCountCache(world.cache),
                namespace_store=CassandraNamespaceStore(session),
            ),
            platform=world.platform,
            layout=layout,
            clock=self.machine.clock,
            passes_in_parallel=2,
            membership=CassandraMembership(session, told, group="workers"),
            member=f"{self.machine.name}-{self.machine.lives}",
            monotonic_s=self._monotonic_s,
            chance=world.chance(self.machine),
        )
        await self.worker.start(self._rpc, self._stack)


class ControlPlaneProgram(Program):
    control_plane: ControlPlane

    async def _start(self, layout: Layout) -> None:
        self.control_plane = ControlPlane(
            store=CassandraNamespaceStore(self._session),
            directory=None,
            clock=self.machine.clock,
            processes=_nobody_else,
        )
        self.control_plane.snapshots.subscribe(
            lambda snapshot: check_windows(snapshot, layout.window_ms)
        )
        await patiently(lambda: self.control_plane.start(self._rpc, self._stack))


async def _nobody_else() -> Mapping[str, Any]:
    return {}
