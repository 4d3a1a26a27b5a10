"""The all-in-one process: server, worker and control plane on the embedded store."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog

from control_plane.app import SERVICE_NAME as NAMESPACE_SERVICE
from control_plane.app import ControlPlane
from counter.background import keep_running
from counter.clock import SteadyClock, SystemClock
from counter.errors import SetupError
from counter.metrics_endpoint import MetricsEndpoint
from counter.presence import Presence, ProcessReport
from counter.rpc.server import RpcServer
from counter.settings import Platform
from counter.storage.memory import MemoryBestEffortCounters, MemoryCountCache, MemoryMembership
from counter.storage.sqlite import (
    Database,
    SqliteEventLog,
    SqliteFoldCommit,
    SqliteHistoryStore,
    SqliteLedger,
    SqliteNamespaceStore,
    SqliteRollupStore,
)
from counter.telemetry import LogFormat
from counter.windows import Layout
from counter_server.app import SERVICE as COUNTER_SERVICE
from counter_server.app import CounterServer, Stores
from counter_server.commit import CommitLimits
from rollup_worker.app import SERVICE as ROLLUP_SERVICE
from rollup_worker.app import RollupWorker
from rollup_worker.rollup import FoldStores
from tally import process
from tally.greeting import greeting

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    listen: str
    data: Path
    namespaces: Path
    platform: Platform
    log_format: LogFormat = "text"
    metrics: str | None = None  # where to serve metrics; None: nowhere


def serve(settings: ServeSettings) -> int:
    """Runs until a signal; the exit code. A second signal exits at once."""

    async def main(stop: asyncio.Event) -> None:
        await _serve(settings, stop)

    return process.run(main, settings.log_format)


async def _serve(settings: ServeSettings, stop: asyncio.Event) -> None:
    async with AsyncExitStack() as stack:
        endpoint: MetricsEndpoint | None = None
        if settings.metrics is not None:
            endpoint = stack.enter_context(MetricsEndpoint(settings.metrics, setting="--metrics"))
        embedded = await _Embedded.build(settings, stack)
        port = await embedded.start(settings.listen, endpoint, stack)
        process.tune_garbage_collection()
        names = embedded.namespace_names()
        print(greeting(settings.listen, port, settings.data, names), flush=True)
        await stop.wait()
        log.info("stopping: finishing what was accepted", action="stopping")
    log.info("stopped", action="stopped")


class _Embedded:
    def __init__(
        self,
        database: Database,
        server: CounterServer,
        worker: RollupWorker,
        control_plane: ControlPlane,
        presence: Presence,
    ) -> None:
        self._database = database
        self._server = server
        self._worker = worker
        self._control_plane = control_plane
        self._presence = presence
        self._rpc = RpcServer()

    @classmethod
    async def build(cls, settings: ServeSettings, stack: AsyncExitStack) -> "_Embedded":
        platform, clock, store_clock = settings.platform, SystemClock(), SteadyClock()
        database = Database(settings.data)
        stack.push_async_callback(database.close)
        ledger = SqliteLedger(database, store_clock, region=platform.region)
        event_log = SqliteEventLog(database, store_clock, region=platform.region)
        rollup_store = SqliteRollupStore(database, region=platform.region)
        history_store = SqliteHistoryStore(database, region=platform.region)
        namespace_store = SqliteNamespaceStore(database)
        shared_cache = MemoryCountCache()
        presence = Presence(MemoryMembership(), "embedded", lambda: embedded.report())
        layout = await _open_layout(ledger, platform, clock)
        server = CounterServer(
            Stores(
                event_log=event_log,
                ledger=ledger,
                rollup_store=rollup_store,
                history_store=history_store,
                local_cache=MemoryCountCache(),
                shared_cache=shared_cache,
                best_effort_counters=MemoryBestEffortCounters(),
            ),
            platform=platform,
            layout=layout,
            clock=clock,
            limits=CommitLimits(),
            servers_alive=lambda: presence.servers_alive,
        )
        worker = RollupWorker(
            FoldStores(
                event_log=event_log,
                ledger=ledger,
                rollup_store=rollup_store,
                history_store=history_store,
                fold_commit=SqliteFoldCommit(database, ledger, history_store, rollup_store),
                shared_cache=shared_cache,
                namespace_store=namespace_store,
            ),
            platform=platform,
            layout=layout,
            clock=clock,
            passes_in_parallel=1,  # with one loop and one writer, more would only get in the way
            membership=MemoryMembership(),
            member="embedded",
        )
        control_plane = ControlPlane(
            store=namespace_store,
            directory=settings.namespaces,
            clock=clock,
            processes=presence.processes,
        )
        control_plane.snapshots.subscribe(server.check, follow=server.switch)
        control_plane.snapshots.subscribe(follow=lambda _: presence.tell())
        embedded = cls(database, server, worker, control_plane, presence)
        return embedded

    async def start(
        self, listen: str, endpoint: MetricsEndpoint | None, stack: AsyncExitStack
    ) -> int:
        """What is started first is stopped last: calls, then commits, then folds, then the file."""
        await self._control_plane.start(self._rpc, stack)
        await self._worker.start(self._rpc, stack)
        await self._server.start(self._rpc, stack)
        port = await self._rpc.start(listen, (COUNTER_SERVICE, NAMESPACE_SERVICE, ROLLUP_SERVICE))
        stack.push_async_callback(self._rpc.stop, process.STOP_GRACE_S)
        await process.report_health(
            self._rpc, self._problems, stack, told=endpoint.tell if endpoint else None
        )
        stack.callback(keep_running("beat", self._presence.run).cancel)
        return port

    def report(self) -> ProcessReport:
        version = self._control_plane.snapshots.current.version
        return ProcessReport(program="serve", version=version, traffic=self._server.traffic())

    def namespace_names(self) -> list[str]:
        return sorted(self._control_plane.snapshots.current.namespaces)

    def _problems(self) -> Mapping[str, str | None]:
        store_problem = self._database.problem
        return {
            COUNTER_SERVICE: store_problem or self._server.problem(),
            ROLLUP_SERVICE: store_problem or self._worker.problem(),
            NAMESPACE_SERVICE: None,  # the last good namespaces are served whatever happens
        }


async def _open_layout(ledger: SqliteLedger, platform: Platform, clock: SystemClock) -> Layout:
    wanted = platform.layout(clock.now_ns())
    layout = await ledger.open_layout(wanted)
    for name in ("window_ms", "shards"):
        holds, asked = getattr(layout, name), getattr(wanted, name)
        if holds != asked:
            raise SetupError(
                f"the data directory was created with {name} {holds}, not {asked}: "
                "a live layout cannot be changed. Start with the same value, or with another --data"
            )
    return layout
