"""Services that come after their server has started.

A process binds its port first and gets ready after that: a second one on the same port is refused
at once, and whoever asks meanwhile is told what is awaited instead of finding nobody.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
from grpc_status import rpc_status

from counter.errors import NotReady
from counter.rpc.status import status_of

_RETRY_AFTER_MS = 1_000


class LateServices:
    """Answers for services that are expected and not there yet."""

    def __init__(self, is_there: Callable[[str], bool]) -> None:
        self._is_there = is_there
        # What callers of the others are told.
        self.awaited = "the process is starting"
        self._expected: set[str] = set()
        # Reads and writes nothing, so it fits methods of every kind.
        self._refusal = grpc.stream_stream_rpc_method_handler(self._refuse)

    def expect(self, services: Iterable[str]) -> None:
        """From now on calls to these answer NOT_READY until they have come."""
        self._expected = set(services)

    def stand_in(self, path: str) -> "grpc.RpcMethodHandler[Any, Any] | None":
        service = path[1:].partition("/")[0]
        is_late = service in self._expected and not self._is_there(service)
        return self._refusal if is_late else None

    async def _refuse(self, requests: AsyncIterator[Any], context: Any) -> None:
        error = NotReady(f"not ready: {self.awaited}", retry_after_ms=_RETRY_AFTER_MS)
        await context.abort_with_status(rpc_status.to_status(status_of(error)))
