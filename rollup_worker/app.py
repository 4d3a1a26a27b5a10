"""The composition root of the worker."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random

from counter.clock import Clock
from counter.rpc.server import RpcServer
from counter.settings import Platform
from counter.storage.ports import Membership
from counter.v1 import rollup_service_pb2_grpc as pb_grpc
from counter.windows import Layout
from rollup_worker.audit.audit import Audit, AuditStores
from rollup_worker.audit.sampler import Sampler
from rollup_worker.closer import Closer
from rollup_worker.ownership import Ownership
from rollup_worker.quarantine import Quarantine
from rollup_worker.retention import Retention
from rollup_worker.rollup import FoldStores, Rollup
from rollup_worker.service import RollupService
from rollup_worker.worker import Worker

SERVICE = "counter.v1.RollupService"

_AUDIT_EVERY_S = 5.0


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
        monotonic_s: Callable[[], float] = time.monotonic,
        chance: Random | None = None,
    ) -> None:
        """`member`: this process among the workers; no other has the same."""
        ledger = stores.ledger
        rollup = Rollup(stores, layout, monotonic_s=monotonic_s)
        ownership = Ownership(membership, member, shards=layout.shards)
        self._worker = Worker(
            Closer(ledger, layout, platform, clock),
            rollup,
            Retention(
                stores.event_log,
                ledger,
                stores.history_store,
                layout,
                platform,
                clock,
            ),
            ownership,
            ledger,
            layout,
            passes_in_parallel=passes_in_parallel,
            chance=chance or Random(),
            monotonic_s=monotonic_s,
        )
        audit = Audit(
            AuditStores(
                event_log=stores.event_log,
                ledger=ledger,
                rollup_store=stores.rollup_store,
                history_store=stores.history_store,
                namespace_store=stores.namespace_store,
            ),
            layout=layout,
            platform=platform,
            clock=clock,
        )
        self._sampler = Sampler(audit, lambda: ownership.shards, monotonic_s=monotonic_s)
        self._worker.add_job("audit", _AUDIT_EVERY_S, self._sampler.tick)
        quarantine = Quarantine(stores.event_log, ledger, layout, clock)
        self._service = RollupService(
            self._worker, ownership, audit, quarantine, ledger, layout, platform, clock
        )

    async def start(self, rpc: RpcServer, stack: AsyncExitStack) -> None:
        """Registers the service and begins to close and fold."""
        pb_grpc.add_RollupServiceServicer_to_server(self._service, rpc.services)
        running = asyncio.create_task(self._worker.run())

        async def stop() -> None:
            self._sampler.stop()
            self._worker.stop()
            await running

        stack.push_async_callback(stop)

    def problem(self) -> str | None:
        return self._worker.problem()
