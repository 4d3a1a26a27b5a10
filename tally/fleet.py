"""The programs of a fleet, each composed on Cassandra and memcached.

They share nothing but these stores, so there may be any number of each, started in any order.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Literal, TypeVar

import structlog

from control_plane.app import SERVICE_NAME as NAMESPACE_SERVICE
from control_plane.app import ControlPlane
from control_plane.files.durations import format_ms
from counter.background import keep_running
from counter.clock import SystemClock
from counter.errors import SetupError
from counter.namespace_follower import POLL_S, NamespaceFollower
from counter.namespaces import Snapshot, Strategy, check_windows
from counter.presence import NamespaceTraffic, Presence, ProcessReport
from counter.rpc.namespace_watch import NamespaceWatch
from counter.rpc.server import RpcServer
from counter.storage.cassandra import (
    CassandraEventLog,
    CassandraHistoryStore,
    CassandraLedger,
    CassandraMembership,
    CassandraNamespaceStore,
    CassandraRollupStore,
    CassandraSession,
)
from counter.storage.memcached import (
    MemcachedBestEffortCounters,
    MemcachedCountCache,
    MemcachedServers,
)
from counter.storage.memory import MemoryCountCache
from counter.storage.stepwise import StepwiseFoldCommit
from counter.telemetry import LogFormat
from counter.windows import Layout
from counter_server.app import SERVICE as COUNTER_SERVICE
from counter_server.app import CounterServer, Stores
from counter_server.commit import CommitLimits
from rollup_worker.app import SERVICE as ROLLUP_SERVICE
from rollup_worker.app import RollupWorker
from rollup_worker.rollup import FoldStores
from tally import process
from tally.config import Config, ProgramConfig, ServerConfig
from tally.program import Program, Readiness, log_warnings, run_program
from tally.supervision import run as supervision

ProgramName = Literal["server", "worker", "control-plane"]

# A commit is two round trips to a quorum and costs much the same whatever it carries. So calls that
# come in numbers go out together, and a second commit starts only beside one that is slow.
LIMITS = CommitLimits(
    commits_in_flight=8,
    segments_per_commit=64,
    gather_ms_per_further_call=0.8,
    gather_ms_max=16.0,
    overlap_after_ms=50.0,
)

Answer = TypeVar("Answer")

log = structlog.get_logger()


def run(
    name: ProgramName,
    config: Config,
    *,
    listen: str | None = None,
    metrics: str | None = None,
    processes: int | None = None,
    log_format: LogFormat = "text",
) -> int:
    """Runs a program until a signal; the exit code. What is given goes before the file."""
    program, settings = _programs(config)[name]
    listen, metrics = listen or settings.listen, metrics or settings.metrics
    age_ms: int | None = None
    if isinstance(settings, ServerConfig):
        age_ms, processes = settings.connection_age_ms, processes or settings.processes
        if processes > 1:
            return supervision.run(
                config,
                processes,
                listen=listen,
                metrics=metrics,
                log_format=log_format,
            )

    async def main(stop: asyncio.Event) -> None:
        log_warnings(config)
        rpc = RpcServer(connection_age_ms=age_ms)
        await run_program(program, rpc, listen=listen, metrics=metrics, stop=stop)

    return process.run(main, log_format)


def _programs(config: Config) -> dict[ProgramName, tuple[Program, ProgramConfig]]:
    return {
        "server": (ServerProgram(config), config.server),
        "worker": (WorkerProgram(config), config.worker),
        "control-plane": (ControlPlaneProgram(config), config.control_plane),
    }


def _process_name() -> str:
    """Whatever identifies a process to the others: another one after each start."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


class ServerProgram:
    """Takes calls. Its namespaces come from the store, so it needs no control plane to go on."""

    name = "server"
    service = COUNTER_SERVICE

    def __init__(self, config: Config) -> None:
        self._config = config
        self._process = _process_name()

    async def start(self, readiness: Readiness, stack: AsyncExitStack) -> None:
        config, platform, clock = self._config, self._config.platform, SystemClock()
        self._session = session = await _open_session(config, readiness, stack)
        ledger = CassandraLedger(session, platform)
        layout = await _open_layout(config, ledger, readiness)
        memcached = await _open_memcached(config, stack)
        presence = Presence(
            CassandraMembership(session, platform, group="processes"), self._process, self._report
        )
        self._server = server = CounterServer(
            Stores(
                event_log=CassandraEventLog(session, ledger, clock, platform),
                ledger=ledger,
                rollup_store=CassandraRollupStore(session, platform),
                history_store=CassandraHistoryStore(session, platform),
                local_cache=MemoryCountCache(),
                shared_cache=None if memcached is None else MemcachedCountCache(memcached),
                best_effort_counters=(
                    None if memcached is None else MemcachedBestEffortCounters(memcached)
                ),
            ),
            platform=platform,
            layout=layout,
            clock=clock,
            limits=LIMITS,
            servers_alive=lambda: presence.servers_alive,
        )

        def switch(snapshot: Snapshot) -> None:
            server.switch(snapshot)
            presence.tell()

        self._follower = NamespaceFollower(
            CassandraNamespaceStore(session), check=server.check, switch=switch
        )
        _be_present(presence, stack)  # also while it waits, so that others see it wait
        await self._first_namespaces(readiness)
        _follow(self._follower, config, stack)
        await _answered(config, readiness, lambda: server.start(readiness.rpc, stack))

    def _report(self) -> ProcessReport:
        return _report(self.name, self._follower, self._server.traffic())

    async def _first_namespaces(self, readiness: Readiness) -> None:
        """Waits until a control plane has applied namespaces at all."""
        while True:
            try:
                await _answered(self._config, readiness, self._follower.look)
            except SetupError as error:
                if self._config.memcached is not None:
                    raise
                hint = "add the section memcached, or apply namespaces that do without"
                raise self._config.refusal("memcached", error.message, hint) from error
            if self._follower.current is not None:
                return
            awaited = "no namespaces are applied yet: start a tally control-plane, tally apply"
            readiness.awaits(awaited)
            if readiness.is_due("namespaces_awaited"):
                log.warning(awaited, action="namespaces_awaited")
            await asyncio.sleep(POLL_S)

    def problem(self) -> str | None:
        return self._session.problem() or self._server.problem()

    def details(self) -> list[str]:
        assert self._follower.current is not None
        names = ", ".join(sorted(self._follower.current.namespaces))
        return [*_stores_in_words(self._config), f"namespaces: {names}"]


class WorkerProgram:
    """Closes windows and folds.

    What it needs to know of namespaces it reads with each fold, because a fold must know every
    namespace that its segments have. It follows them as well, to tell which version it has.
    """

    name = "worker"
    service = ROLLUP_SERVICE

    def __init__(self, config: Config) -> None:
        self._config = config
        self._member = _process_name()

    async def start(self, readiness: Readiness, stack: AsyncExitStack) -> None:
        config, platform, clock = self._config, self._config.platform, SystemClock()
        self._session = session = await _open_session(config, readiness, stack)
        ledger = CassandraLedger(session, platform)
        layout = await _open_layout(config, ledger, readiness)
        memcached = await _open_memcached(config, stack)
        rollup_store = CassandraRollupStore(session, platform)
        history_store = CassandraHistoryStore(session, platform)
        namespace_store = CassandraNamespaceStore(session)
        presence = Presence(
            CassandraMembership(session, platform, group="processes"),
            self._member,
            lambda: _report(self.name, self._follower),
        )
        self._follower = NamespaceFollower(
            namespace_store,
            check=lambda snapshot: check_windows(snapshot, layout.window_ms),
            switch=lambda _: presence.tell(),
        )
        self._worker = RollupWorker(
            FoldStores(
                event_log=CassandraEventLog(session, ledger, clock, platform),
                ledger=ledger,
                rollup_store=rollup_store,
                history_store=history_store,
                fold_commit=StepwiseFoldCommit(ledger, history_store, rollup_store),
                # Folds refresh what is in the cache and put nothing in: an empty one stays so.
                shared_cache=(
                    MemoryCountCache() if memcached is None else MemcachedCountCache(memcached)
                ),
                namespace_store=namespace_store,
            ),
            platform=platform,
            layout=layout,
            clock=clock,
            passes_in_parallel=config.passes_in_parallel,
            membership=CassandraMembership(session, platform, group="workers"),
            member=self._member,
        )
        await self._worker.start(readiness.rpc, stack)
        _follow(self._follower, config, stack)
        _be_present(presence, stack)

    def problem(self) -> str | None:
        return self._session.problem() or self._worker.problem()

    def details(self) -> list[str]:
        return [*_stores_in_words(self._config), f"member {self._member}"]


class ControlPlaneProgram:
    """Changes namespaces. Several at once are safe: no two of them store the same version."""

    name = "control-plane"
    service = NAMESPACE_SERVICE

    def __init__(self, config: Config) -> None:
        self._config = config

    async def start(self, readiness: Readiness, stack: AsyncExitStack) -> None:
        config = self._config
        session = await _open_session(config, readiness, stack)
        # So that what the servers would refuse is refused here, before it is stored.
        self._layout = await _open_layout(
            config, CassandraLedger(session, config.platform), readiness
        )
        presence = Presence(
            CassandraMembership(session, config.platform, group="processes"),
            _process_name(),
            lambda: _report(self.name, self._control_plane.snapshots.follower),
        )
        self._control_plane = ControlPlane(
            store=CassandraNamespaceStore(session),
            directory=config.namespaces,
            clock=SystemClock(),
            processes=presence.processes,
        )
        self._control_plane.snapshots.subscribe(self._check, follow=lambda _: presence.tell())
        await _answered(config, readiness, lambda: self._control_plane.start(readiness.rpc, stack))
        _be_present(presence, stack)

    def _check(self, snapshot: Snapshot) -> None:
        """Refuses what the servers of this config file would refuse, before it is stored."""
        check_windows(snapshot, self._layout.window_ms)
        for namespace in snapshot.namespaces.values():
            if namespace.strategy is Strategy.BEST_EFFORT and self._config.memcached is None:
                raise SetupError(
                    f"namespace {namespace.name}: strategy {namespace.strategy} needs memcached, "
                    f"and {self._config.path} has no section memcached"
                )

    def problem(self) -> str | None:
        return None  # the last good namespaces are served whatever happens

    def details(self) -> list[str]:
        current, folder = self._control_plane.snapshots.current, self._config.namespaces
        names = ", ".join(sorted(current.namespaces)) or "none yet"
        watched = "no folder is watched" if folder is None else f"watching {folder}"
        return [
            *_stores_in_words(self._config),
            f"namespaces of version {current.version}, {watched}: {names}",
        ]


def _report(
    program: str, follower: NamespaceFollower, traffic: tuple[NamespaceTraffic, ...] = ()
) -> ProcessReport:
    return ProcessReport(
        program=program,
        version=follower.version,
        refused_version=follower.refused_version,
        problem=follower.problem,
        traffic=traffic,
    )


def _follow(follower: NamespaceFollower, config: Config, stack: AsyncExitStack) -> None:
    stack.callback(keep_running("follow the store", follower.run).cancel)
    watch = NamespaceWatch(
        config.control_planes, version=lambda: follower.version, wake=follower.wake
    )
    stack.callback(keep_running("listen to a control plane", watch.run).cancel)


def _be_present(presence: Presence, stack: AsyncExitStack) -> None:
    stack.push_async_callback(presence.leave)
    stack.callback(keep_running("beat", presence.run).cancel)


async def _answered(
    config: Config, readiness: Readiness, ask: Callable[[], Awaitable[Answer]]
) -> Answer:
    return await readiness.answer_of("cassandra", config.cassandra.where, ask)


async def _open_session(
    config: Config, readiness: Readiness, stack: AsyncExitStack
) -> CassandraSession:
    try:
        session = await _answered(
            config, readiness, lambda: CassandraSession.connect(config.cassandra)
        )
    except SetupError as error:
        raise config.refusal_of(error, "cassandra") from error
    stack.push_async_callback(session.close)
    return session


async def _open_memcached(config: Config, stack: AsyncExitStack) -> MemcachedServers | None:
    """Servers that do not answer are not awaited: no call fails because a cache is away."""
    if config.memcached is None:
        return None
    servers = MemcachedServers(config.memcached)
    try:
        await servers.start()
    except SetupError as error:
        raise config.refusal_of(error, "memcached.servers") from error
    stack.push_async_callback(servers.close)
    return servers


async def _open_layout(config: Config, ledger: CassandraLedger, readiness: Readiness) -> Layout:
    wanted = config.platform.layout(SystemClock().now_ns())
    layout = await _answered(config, readiness, lambda: ledger.open_layout(wanted))
    for setting, holds, asked in (
        ("window", format_ms(layout.window_ms), format_ms(wanted.window_ms)),
        ("shards", str(layout.shards), str(wanted.shards)),
        ("lanes", str(layout.lanes), str(wanted.lanes)),
    ):
        if holds != asked:
            raise config.refusal(
                f"platform.{setting}",
                f"keyspace {config.cassandra.keyspace} was created with {holds}, not {asked}",
                f"write '{setting}: {holds}': it cannot be changed, or use another keyspace",
            )
    return layout


def _stores_in_words(config: Config) -> list[str]:
    where, keyspace = config.cassandra.where, config.cassandra.keyspace
    stores = f"region {config.platform.region}, {where}, keyspace {keyspace}"
    if config.memcached is None:
        return [stores, "no memcached"]
    return [stores, f"memcached at {', '.join(config.memcached.servers)}"]
