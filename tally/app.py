"""The all-in-one process: server, worker and control plane on the embedded store.

The only place that names concrete stores, and the only one that knows all three programs.
"""

import asyncio
import gc
import os
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvloop

from control_plane.app import SERVICE_NAME as NAMESPACE_SERVICE
from control_plane.app import ControlPlane
from counter.clock import SteadyClock, SystemClock
from counter.errors import SetupError, TallyError
from counter.rpc.server import RpcServer
from counter.settings import Platform
from counter.storage.memory import MemoryBestEffortCounters, MemoryCountCache
from counter.storage.sqlite import (
    Database,
    SqliteEventLog,
    SqliteFoldCommit,
    SqliteLedger,
    SqliteNamespaceStore,
    SqliteRollupStore,
)
from counter.telemetry import LogFormat, configure_logs
from counter.windows import Layout
from counter_server.app import SERVICE as COUNTER_SERVICE
from counter_server.app import CounterServer, Stores
from counter_server.commit import CommitLimits
from rollup_worker.app import SERVICE as ROLLUP_SERVICE
from rollup_worker.app import RollupWorker
from rollup_worker.rollup import FoldStores
from tally.greeting import greeting

STOP_GRACE_S = 10.0
# One Ctrl-C can arrive twice: from the terminal, and passed on by `make` or `uv run`.
_SAME_SIGNAL_S = 0.5
_HEALTH_EVERY_S = 0.25
# Short turns of the interpreter lock: the writer thread hands its results over sooner.
_SWITCH_INTERVAL_S = 0.001
_GARBAGE_THRESHOLDS = (100_000, 20, 50)

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    listen: str
    data: Path
    namespaces: Path
    platform: Platform
    log_format: LogFormat = "text"


def serve(settings: ServeSettings) -> int:
    """Runs until a signal; the exit code. A second signal exits at once."""
    configure_logs(settings.log_format)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        uvloop.run(_serve(settings))
    except TallyError as error:
        print(f"tally: {error.message}", file=sys.stderr)
        return 1
    return 0


async def _serve(settings: ServeSettings) -> None:
    stop = _stop_on_signals()
    async with AsyncExitStack() as stack:
        process = await _Process.build(settings, stack)
        port = await process.start(settings.listen, stack)
        tune_garbage_collection()
        print(greeting(settings.listen, port, settings.data, process.namespace_names()), flush=True)
        await stop.wait()
        log.info("stopping: finishing what was accepted", action="stopping")
    log.info("stopped", action="stopped")


def tune_garbage_collection() -> None:
    """Adds make millions of objects and hardly any cycles: look for those less often, and never
    in what has been there since the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first_s = 0.0

    def on_signal(number: int) -> None:
        nonlocal first_s
        if not stop.is_set():
            first_s = loop.time()
            stop.set()
        elif loop.time() - first_s > _SAME_SIGNAL_S:
            print("tally: second signal, exiting at once", file=sys.stderr, flush=True)
            os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return stop


class _Process:
    def __init__(
        self,
        database: Database,
        server: CounterServer,
        worker: RollupWorker,
        control_plane: ControlPlane,
    ) -> None:
        self._database = database
        self._server = server
        self._worker = worker
        self._control_plane = control_plane
        self._rpc = RpcServer()

    @classmethod
    async def build(cls, settings: ServeSettings, stack: AsyncExitStack) -> "_Process":
        platform, clock, store_clock = settings.platform, SystemClock(), SteadyClock()
        database = Database(settings.data)
        stack.push_async_callback(database.close)
        ledger = SqliteLedger(database, store_clock, region=platform.region)
        event_log = SqliteEventLog(database, store_clock, region=platform.region)
        rollup_store = SqliteRollupStore(database, region=platform.region)
        namespace_store = SqliteNamespaceStore(database)
        shared_cache = MemoryCountCache()
        layout = await _open_layout(ledger, platform, clock)
        server = CounterServer(
            Stores(
                event_log=event_log,
                ledger=ledger,
                rollup_store=rollup_store,
                local_cache=MemoryCountCache(),
                shared_cache=shared_cache,
                best_effort_counters=MemoryBestEffortCounters(),
            ),
            platform=platform,
            layout=layout,
            clock=clock,
            limits=CommitLimits(),
        )
        worker = RollupWorker(
            FoldStores(
                event_log=event_log,
                ledger=ledger,
                rollup_store=rollup_store,
                fold_commit=SqliteFoldCommit(database, ledger, rollup_store),
                shared_cache=shared_cache,
                namespace_store=namespace_store,
            ),
            platform=platform,
            layout=layout,
            clock=clock,
            passes_in_parallel=1,  # with one loop and one writer, more would only get in the way
        )
        control_plane = ControlPlane(
            store=namespace_store, directory=settings.namespaces, clock=clock
        )
        control_plane.snapshots.subscribe(server.check, follow=server.switch)
        return cls(database, server, worker, control_plane)

    async def start(self, listen: str, stack: AsyncExitStack) -> int:
        """What is started first is stopped last: calls, then commits, then folds, then the file."""
        await self._control_plane.snapshots.start()
        self._control_plane.add_to(self._rpc.grpc)
        await self._watch_namespaces(stack)
        await self._worker.start(self._rpc, stack)
        await self._server.start(self._rpc, stack)
        port = await self._rpc.start(listen, (COUNTER_SERVICE, NAMESPACE_SERVICE, ROLLUP_SERVICE))
        stack.push_async_callback(self._rpc.stop, STOP_GRACE_S)
        await self._report_health()
        reporting = asyncio.create_task(self._report_health_for_ever())
        stack.callback(reporting.cancel)
        return port

    async def _watch_namespaces(self, stack: AsyncExitStack) -> None:
        stop = asyncio.Event()
        watching = asyncio.create_task(self._control_plane.snapshots.watch(stop))

        async def end() -> None:
            stop.set()
            await watching

        stack.push_async_callback(end)

    def namespace_names(self) -> list[str]:
        return sorted(self._control_plane.snapshots.current.namespaces)

    async def _report_health_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_HEALTH_EVERY_S)
            await self._report_health()

    async def _report_health(self) -> None:
        store_problem = self._database.problem
        counting = store_problem or self._server.problem()
        folding = store_problem or self._worker.problem()
        await self._rpc.set_serving(COUNTER_SERVICE, serving=counting is None)
        await self._rpc.set_serving(ROLLUP_SERVICE, serving=folding is None)
        await self._rpc.set_serving(NAMESPACE_SERVICE, serving=True)
        await self._rpc.set_serving("", serving=counting is None and folding is None)


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
