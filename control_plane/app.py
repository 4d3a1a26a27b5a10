"""The control plane's composition root."""

import asyncio
import os
from contextlib import AsyncExitStack

from control_plane.folder import Folder
from control_plane.service import NamespaceService, Processes
from control_plane.snapshots import Snapshots
from counter.background import keep_running
from counter.clock import Clock
from counter.rpc.server import RpcServer
from counter.storage.ports import NamespaceStore
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import add_NamespaceServiceServicer_to_server

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["NamespaceService"].full_name


class ControlPlane:
    def __init__(
        self,
        *,
        store: NamespaceStore,
        directory: str | os.PathLike[str] | None,
        clock: Clock,
        processes: Processes,
    ) -> None:
        """Without a directory, namespaces change by calls only."""
        self.snapshots = Snapshots(store=store, clock=clock)
        self.folder: Folder | None = None
        if directory is not None:
            self.folder = Folder(directory, store=store, snapshots=self.snapshots)
        self._processes = processes

    async def start(self, rpc: RpcServer, stack: AsyncExitStack) -> None:
        """Makes the first snapshot current, registers the service, follows store and folder.

        May be called again if the store was unavailable.
        """
        if self.folder is None:
            await self.snapshots.follower.look()
        else:
            await self.folder.start()
        add_NamespaceServiceServicer_to_server(
            NamespaceService(self.snapshots, processes=self._processes, stopping=rpc.stopping),
            rpc.services,
        )
        following = keep_running("follow the store", self.snapshots.follower.run)
        stack.callback(following.cancel)
        if self.folder is not None:
            await _watch(self.folder, stack)


async def _watch(folder: Folder, stack: AsyncExitStack) -> None:
    stop = asyncio.Event()
    watching = keep_running("watch the folder", lambda: folder.watch(stop))
    settling = keep_running("settle the folder", folder.settle)

    async def end() -> None:
        settling.cancel()
        stop.set()
        await watching

    stack.push_async_callback(end)
