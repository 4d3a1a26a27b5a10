"""The composition root of the worker."""

import asyncio
from contextlib import AsyncExitStack

from counter.clock import Clock
from counter.rpc.server import RpcServer
from counter.settings import Platform
from counter.storage.ports import Membership
from counter.v1 import rollup_service_pb2_grpc as pb_grpc
from counter.windows import Layout
from rollup_worker.closer import Closer
from rollup_worker.ownership import Ownership
from rollup_worker.retention import Retention
from rollup_worker.rollup import FoldStores, Rollup
from rollup_worker.service import RollupService
from rollup_worker.worker import Worker

SERVICE = "counter.v1.RollupService"


class RollupWorker:
    def __init__(
        self,
        stores: FoldStores,
        *,
        platform: Platform,
        layout: Layout,
        clock: Clock,
        passes_in_parallel: int,
        membership: Membership,
        member: str,
    ) -> None:
        """`member`: this process among the workers; no other has the same."""
        ledger = stores.ledger
        rollup = Rollup(stores, layout)
        self._worker = Worker(
            Closer(ledger, layout, platform, clock),
            rollup,
            Retention(stores.event_log, ledger, layout, platform, clock),
            Ownership(membership, member, shards=layout.shards),
            window_ms=layout.window_ms,
            passes_in_parallel=passes_in_parallel,
        )
        self._service = RollupService(self._worker, rollup, ledger, layout, platform, clock)

    async def start(self, rpc: RpcServer, stack: AsyncExitStack) -> None:
        """Registers the service and begins to close and fold."""
        pb_grpc.add_RollupServiceServicer_to_server(self._service, rpc.services)
        running = asyncio.create_task(self._worker.run())

        async def stop() -> None:
            self._worker.stop()
            await running

        stack.push_async_callback(stop)

    def problem(self) -> str | None:
        return self._worker.problem()
