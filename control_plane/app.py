"""The control plane's composition root."""

import os

import grpc.aio

from control_plane.service import NamespaceService
from control_plane.snapshots import Snapshots
from counter.clock import Clock
from counter.storage.ports import NamespaceStore
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import add_NamespaceServiceServicer_to_server

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["NamespaceService"].full_name


class ControlPlane:
    """`snapshots.start()` comes first, then `add_to(server)`, then `snapshots.watch(stop)`."""

    def __init__(
        self, *, store: NamespaceStore, directory: str | os.PathLike[str], clock: Clock
    ) -> None:
        self.snapshots = Snapshots(store=store, directory=directory, clock=clock)

    def add_to(self, server: grpc.aio.Server) -> None:
        add_NamespaceServiceServicer_to_server(NamespaceService(self.snapshots), server)
