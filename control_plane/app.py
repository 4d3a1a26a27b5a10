"""The control plane's composition root."""

import asyncio
import os
from contextlib import AsyncExitStack

import grpc.aio

from control_plane.service import NamespaceService
from control_plane.snapshots import Snapshots
from counter.clock import Clock
from counter.rpc.server import RpcServer
from counter.storage.ports import NamespaceStore
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import add_NamespaceServiceServicer_to_server

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["NamespaceService"].full_name


class ControlPlane:
    def __init__(
        self, *, store: NamespaceStore, directory: str | os.PathLike[str], clock: Clock
    ) -> None:
        self.snapshots = Snapshots(store=store, directory=directory, clock=clock)

    async def start(self, rpc: RpcServer, stack: AsyncExitStack) -> None:
        """Makes the first snapshot current, registers the service and watches the directory.

        May be called again if the store was unavailable.
        """
        await self.snapshots.start()
        self.add_to(rpc.services)
        stop = asyncio.Event()
        watching = asyncio.create_task(self.snapshots.watch(stop))

        async def end() -> None:
            stop.set()
            await watching

        stack.push_async_callback(end)

    def add_to(self, server: grpc.aio.Server) -> None:
        add_NamespaceServiceServicer_to_server(NamespaceService(self.snapshots), server)
