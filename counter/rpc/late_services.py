"""Services that may come after their server has started.

A process binds its port first and gets ready after that: a second one on the same port is refused
at once, and whoever asks meanwhile is told what is awaited instead of finding nobody. gRPC takes no
services after the start, but asks a generic handler for each call who answers it.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_status import rpc_status

from counter.errors import NotReady
from counter.rpc.status import status_of

_RETRY_AFTER_MS = 1_000


class LateServices(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # only the stubs have any
    """Stands in for a server in the generated `add_...Servicer_to_server(servicer, server)`."""

    def __init__(self) -> None:
        # What callers of a service that is not there yet are told.
        self.awaited = "the process is starting"
        self._missing: set[str] = set()
        self._handlers: list[grpc.ServiceRpcHandler[Any, Any]] = []
        # Reads and writes nothing, so it fits methods of every kind.
        self._refusal = grpc.stream_stream_rpc_method_handler(self._refuse)

    def expect(self, services: Iterable[str]) -> None:
        """From now on calls to these answer NOT_READY until they are added."""
        present = {each.service_name() for each in self._handlers}
        self._missing = set(services) - present

    def add_generic_rpc_handlers(
        self, handlers: "Iterable[grpc.ServiceRpcHandler[Any, Any]]"
    ) -> None:
        for handler in handlers:
            self._handlers.append(handler)
            self._missing.discard(handler.service_name())

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """The same methods once more, for servers that look them up in C: not needed."""

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        for handler in self._handlers:
            if (method := handler.service(details)) is not None:
                return method
        name = str(details.method)[1:].partition("/")[0]
        return self._refusal if name in self._missing else None

    async def _refuse(self, requests: AsyncIterator[Any], context: Any) -> None:
        error = NotReady(f"not ready: {self.awaited}", retry_after_ms=_RETRY_AFTER_MS)
        await context.abort_with_status(rpc_status.to_status(status_of(error)))
