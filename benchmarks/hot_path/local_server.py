"""A server on SQLite in this process, and its parts: everything but the transport."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from benchmarks.folds import on_sqlite
from benchmarks.servers import NAMESPACE
from counter.clock import SystemClock
from counter.namespaces import EMPTY, Cardinality, Definition, Namespace, Strategy, next_snapshot
from counter.rpc.server import RpcServer
from counter.settings import Platform
from counter.storage.memory import MemoryBestEffortCounters, MemoryCountCache
from counter.windows import Layout
from counter_server.admission import Admission
from counter_server.app import CounterServer, Stores
from counter_server.commit import CommitLimits, GroupCommit
from counter_server.limits import Limits
from rollup_worker.rollup import FoldStores


class CallContext:
    """A call without a deadline."""

    def time_remaining(self) -> float | None:
        return None


class _Handlers:
    """Takes the handlers that a server registers, as gRPC would."""

    def __init__(self) -> None:
        self.by_method: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        return

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self.by_method |= handlers


class _Rpc:
    def __init__(self) -> None:
        self.services = _Handlers()
        self.stopping = asyncio.Event()


class LocalServer:
    """`methods` are the handlers by name; the parts beside them are of the same kind, and free."""

    def __init__(
        self, stores: FoldStores, layout: Layout, namespace: Namespace, methods: dict[str, Any]
    ) -> None:
        self.stores = stores
        self.layout = layout
        self.namespace = namespace
        self.methods = methods
        self.admission = Admission(Platform(), layout, SystemClock())
        self.commit = GroupCommit(stores.event_log, layout, CommitLimits(), self.admission.observe)
        self.limits = Limits(stores.rollup_store, servers_alive=lambda: 1)


@asynccontextmanager
async def local_server(home: Path) -> AsyncIterator[LocalServer]:
    platform, clock = Platform(), SystemClock()
    async with on_sqlite(home, platform, clock) as stores, AsyncExitStack() as stack:
        layout = await stores.ledger.open_layout(platform.layout(clock.now_ns()))
        server = CounterServer(
            Stores(
                event_log=stores.event_log,
                ledger=stores.ledger,
                rollup_store=stores.rollup_store,
                history_store=stores.history_store,
                local_cache=MemoryCountCache(),
                shared_cache=stores.shared_cache,
                best_effort_counters=MemoryBestEffortCounters(),
            ),
            platform=platform,
            layout=layout,
            clock=clock,
            limits=CommitLimits(),
        )
        definition = Definition(
            name=NAMESPACE, strategy=Strategy.EVENTUAL, cardinality=Cardinality.HIGH
        )
        snapshot = next_snapshot(EMPTY, [definition], applied_at_ns=0)
        await stores.namespace_store.put(snapshot)
        server.switch(snapshot)
        rpc = _Rpc()
        await server.start(cast(RpcServer, rpc), stack)
        local = LocalServer(stores, layout, snapshot.namespaces[NAMESPACE], rpc.services.by_method)
        local.limits.switch(snapshot)
        yield local
        await local.commit.drain()
        rpc.stopping.set()
