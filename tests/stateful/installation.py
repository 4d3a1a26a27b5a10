"""An installation as its callers see it: two servers, a control plane and two workers on one store.

The first server is in one process with the control plane, as embedded, and serves a new version of
the namespaces at once. The second follows the store, as in a fleet, and does so when it is told to.
Nothing happens by itself: clock, closes, folds and all that runs in the background wait for the
test. Calls go over gRPC.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import Any
from unittest.mock import Mock

import grpc

from control_plane.app import SERVICE_NAME as NAMESPACE_SERVICE
from control_plane.app import ControlPlane
from counter.clock import ManualClock
from counter.errors import StoreUnavailable
from counter.namespace_follower import NamespaceFollower
from counter.rpc.server import RpcServer
from counter.segments import Segment
from counter.settings import Platform
from counter.storage.ports import Closed
from counter.v1.counter_service_pb2_grpc import CounterServiceStub
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceStub
from counter.windows import Layout
from counter_server.app import SERVICE as COUNTER_SERVICE
from counter_server.app import CounterServer
from counter_server.app import Stores as ServerStores
from counter_server.commit import CommitLimits
from rollup_worker.audit.audit import Audit, AuditStores
from rollup_worker.closer import Closer
from rollup_worker.retention import Retention
from rollup_worker.rollup import Rollup
from tests.stateful.quiet import nothing_in_the_background
from tests.stores import Stores, fold_stores, server_stores
from tests.tampered import Tampered

OpenStores = Callable[[], AbstractAsyncContextManager[Stores]]

SERVERS = 2
WORKERS = 2


class Stumble(StrEnum):
    """How a write of segments fails. Its caller learns that it did, and not how."""

    BEFORE = "before anything is written"
    AFTER = "after all is written"
    ADRIFT = "on its way, and lands later"


class StumblingLog:
    """Between the servers and the event log: fails the next write when it is told to."""

    def __init__(self) -> None:
        self.next: Stumble | None = None
        self.adrift: list[Sequence[Segment]] = []

    def before(self, log: Any) -> Any:
        return Tampered("event_log", log, self._around)

    async def _around(self, name: str, call: Any, *args: Any) -> Any:
        stumble = self.next
        if name != "event_log.append" or stumble is None:
            return await call(*args)
        self.next = None
        if stumble is Stumble.AFTER:
            await call(*args)
        elif stumble is Stumble.ADRIFT:
            self.adrift.append(*args)
        raise StoreUnavailable("the test has it fail")


class Server:
    """One that takes calls. It does in the background what it is told to, and nothing else."""

    def __init__(self, stores: ServerStores, platform: Platform, layout: Layout, **told: Any):
        clock: ManualClock = told["clock"]
        self.server = CounterServer(
            stores,
            platform=platform,
            layout=layout,
            limits=CommitLimits(),
            monotonic_ns=clock.now_ns,
            **told,
        )
        self.rpc = RpcServer()
        self.calls: CounterServiceStub
        self.channel: grpc.aio.Channel

    async def serve(self, services: Sequence[str], stack: AsyncExitStack) -> None:
        await self.server.start(self.rpc, stack)
        port = await self.rpc.start("127.0.0.1:0", services)
        stack.push_async_callback(self.rpc.stop, 0)
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        stack.push_async_callback(self.channel.close)
        self.calls = CounterServiceStub(self.channel)

    async def look(self) -> None:
        """At the ledger, and how many counters there are."""
        await self.server._watch.look()
        await self.server._limits.count_counters()


class Installation:
    def __init__(self, open_stores: OpenStores, platform: Platform, clock: ManualClock) -> None:
        self.clock = clock
        self.platform = platform
        self.layout: Layout
        self.servers: list[Server] = []
        self.workers: list[Rollup] = []
        self.namespaces: NamespaceServiceStub
        self.log = StumblingLog()
        self.closer: Closer
        self.retention: Retention
        self.audit: Audit
        self.stores: Stores
        self._follower: NamespaceFollower
        self._open_stores = open_stores
        self._starts = 0
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        self._starts += 1
        self.stores = stores = await self._stack.enter_async_context(self._open_stores())
        platform, clock = self.platform, self.clock
        wanted = platform.layout(clock.now_ns())
        self.layout = await stores.ledger.open_layout(wanted)
        self.servers = [self._server(number) for number in range(SERVERS)]
        first, second = self.servers
        control_plane = ControlPlane(
            store=stores.namespace_store, directory=None, clock=clock, processes=Mock()
        )
        control_plane.snapshots.subscribe(first.server.check, follow=first.server.switch)
        self._follower = NamespaceFollower(
            stores.namespace_store, check=second.server.check, switch=second.server.switch
        )
        with nothing_in_the_background():
            await control_plane.start(first.rpc, self._stack)
            await first.serve((COUNTER_SERVICE, NAMESPACE_SERVICE), self._stack)
            await self.follow()
            await second.serve((COUNTER_SERVICE,), self._stack)
        self.namespaces = NamespaceServiceStub(first.channel)
        self._compose_workers()

    async def stop(self) -> None:
        await self._stack.aclose()

    async def follow(self) -> None:
        """The second server takes the latest version of the namespaces."""
        await self._follower.look()

    async def land(self) -> None:
        """The writes that are adrift reach the log."""
        adrift, self.log.adrift = self.log.adrift, []
        for segments in adrift:
            landed: Closed = await self.stores.event_log.append(segments)
            assert landed.through >= self.layout.from_window - 1

    def _server(self, number: int) -> Server:
        stores = self.stores
        return Server(
            replace(server_stores(stores, self.clock), event_log=self.log.before(stores.event_log)),
            self.platform,
            self.layout,
            clock=self.clock,
            # Ids of segments decide which of two events with one token counts.
            chance=Random(f"{self._starts} {number}"),
        )

    def _compose_workers(self) -> None:
        stores, platform, clock, layout = self.stores, self.platform, self.clock, self.layout
        self.workers = [Rollup(fold_stores(stores), layout) for _ in range(WORKERS)]
        self.closer = Closer(stores.ledger, layout, platform, clock)
        self.retention = Retention(
            stores.event_log, stores.ledger, stores.history_store, layout, platform, clock
        )
        self.audit = Audit(
            AuditStores(
                event_log=stores.event_log,
                ledger=stores.ledger,
                rollup_store=stores.rollup_store,
                history_store=stores.history_store,
                namespace_store=stores.namespace_store,
            ),
            layout=layout,
            platform=platform,
            clock=clock,
        )
