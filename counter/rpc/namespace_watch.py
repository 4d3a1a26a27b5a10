"""Listens to a control plane for new versions of the namespaces.

What it says is only a wake-up: the version itself is read from the store, which is the truth. So a
control plane that is slow, cut off or gone costs nothing but the second until the store is asked
anyway.
"""

import asyncio
from collections.abc import Callable, Sequence

import grpc
import structlog

from counter.rpc.server import MESSAGE_BYTES_MAX
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceStub

RETRY_S = 1.0
# A control plane that vanished without a word is noticed after this long.
_OPTIONS = (
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
)

log = structlog.get_logger()


class NamespaceWatch:
    def __init__(
        self,
        addresses: Sequence[str],
        *,
        version: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """`version` says which one is known already; `wake` is called for each later one."""
        self._addresses = addresses
        self._version = version
        self._wake = wake
        self._told = False

    async def run(self) -> None:
        """Listens for ever, to one control plane after the other; not at all without any."""
        while self._addresses:
            for address in self._addresses:
                await self._listen(address)
                await asyncio.sleep(RETRY_S)

    async def _listen(self, address: str) -> None:
        async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
            stub = NamespaceServiceStub(channel)
            request = pb.WatchNamespacesRequest(known_version=self._version())
            try:
                async for _ in stub.WatchNamespaces(request):
                    if self._told:
                        self._told = False
                        log.info("a control plane is there again", action="watch_resumed")
                    self._wake()
            except grpc.aio.AioRpcError as error:
                if not self._told:
                    self._told = True
                    log.info(
                        "no control plane to listen to: the store is asked every second anyway",
                        action="watch_broken",
                        where=address,
                        problem=error.details(),
                    )
