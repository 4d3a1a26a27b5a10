"""A gRPC server: where it listens, which handlers it has, and how it ends."""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import isasyncgenfunction
from typing import Any, NamedTuple

import grpc

from counter.rpc.http2.call import Method
from counter.rpc.http2.connection import LOOK_EVERY_S, Connection
from counter.rpc.http2.messages import CallRefused
from counter.rpc.http2.sockets import bound

_BACKLOG = 1_024
_AGE_SPREAD = 0.1
# For handlers that were cancelled at the end of the server.
_LAST_STEPS_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    message_bytes_max: int = 16 * 1024 * 1024
    header_bytes_max: int = 16 * 1024
    stream_window_bytes: int = 1024 * 1024
    connection_window_bytes: int = 16 * 1024 * 1024
    calls_max: int = 10_000  # under way in all
    streams_max: int = 10_000  # of one connection
    connections_max: int = 10_000
    # Of all calls: received and not yet taken by a handler, or answered and not yet sent.
    kept_bytes_max: int = 512 * 1024 * 1024
    # Of one peer, within a tenth of a second: frames that bring nothing, and calls that are made
    # and given up.
    idle_frames_max: int = 10_000
    resets_max: int = 2_000
    unread_bytes_max: int = 1024 * 1024  # sent to one peer, and not taken by it
    unread_s_max: float = 60.0  # and for how long, or an answer that waits for room
    handshake_s_max: float = 20.0
    grace_s: float = 90.0  # for calls under way when their connection has reached its age


class _Details(NamedTuple):
    """What generic handlers look at to find a method."""

    method: str
    invocation_metadata: tuple[Any, ...] = ()


class Http2Server:
    """Stands where a `grpc.aio.Server` could: generated code adds services to it, at any time."""

    def __init__(
        self,
        limits: Limits,
        *,
        connection_age_s: float | None = None,
    ) -> None:
        """`connection_age_s`: for how long a connection takes new calls; None: for ever."""
        self.limits = limits
        # Handlers for methods that are not there, by their path; asked for each call.
        self.stand_in: Callable[[str], Any] = lambda path: None
        self.loop = asyncio.get_running_loop()
        self.calls = 0  # under way: their caller waits, or their handler runs
        self.kept_bytes = 0
        # Of calls that have no handler.
        self.nothing = _method_of(grpc.stream_stream_rpc_method_handler(_no_answer))
        self._connection_age_s = connection_age_s
        self._connections: dict[Connection, None] = {}
        self._generic: list[Any] = []
        self._methods: dict[bytes, Method] = {}
        self._listening: list[asyncio.Server] = []
        self._looking: asyncio.TimerHandle | None = None
        self._all_left = asyncio.Event()
        self._is_stopping = False

    @property
    def connections(self) -> int:
        return len(self._connections)

    # Handlers.

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        self._generic += handlers

    def has_service(self, name: str) -> bool:
        return any(each.service_name() == name for each in self._generic)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """The same methods once more, which other servers look up faster: not needed."""

    def method(self, path: bytes) -> Method | None:
        known = self._methods.get(path)
        if known is not None:
            return known
        details = _Details(path.decode("latin-1"))
        for generic in self._generic:
            handler = generic.service(details)
            if handler is not None:
                known = self._methods[path] = _method_of(handler)
                return known
        handler = self.stand_in(details.method)
        return None if handler is None else _method_of(handler)

    # Listening.

    async def start(self, listen: str, *, share_port: bool) -> int:
        """Serves there; the port. Raises OSError if it cannot."""
        sockets = bound(listen, share_port=share_port)
        port: int = sockets[0].getsockname()[1]
        try:
            for sock in sockets:
                self._listening.append(
                    await self.loop.create_server(
                        lambda: Connection(self), sock=sock, backlog=_BACKLOG
                    )
                )
        except BaseException:
            self._stop_listening()
            for sock in sockets:
                sock.close()
            raise
        self._look()
        return port

    def joined(self, connection: Connection) -> bool:
        if self._is_stopping or len(self._connections) >= self.limits.connections_max:
            return False
        if self._connection_age_s is not None:
            # Not all at once.
            age_s = self._connection_age_s * random.uniform(1 - _AGE_SPREAD, 1 + _AGE_SPREAD)
            connection.ends_s = self.loop.time() + age_s
        self._connections[connection] = None
        return True

    def left(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_left.set()

    def keep(self, more: int) -> None:
        """So much more of the data of calls waits. Raises if that cannot be."""
        if more > 0 and self.kept_bytes + more > self.limits.kept_bytes_max:
            raise CallRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "too much data is waiting, of all calls together: call again later",
            )
        self.kept_bytes += more

    def _look(self) -> None:
        self._looking = self.loop.call_later(LOOK_EVERY_S, self._look)
        now_s = self.loop.time()
        for connection in list(self._connections):
            connection.look(now_s)

    # The end.

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, and gives calls under way `grace_s` to finish."""
        self._is_stopping = True
        self._stop_listening()
        self._all_left.clear()
        for connection in list(self._connections):
            connection.drain(self.loop.time() + grace_s)
        if grace_s > 0 and self._connections:
            try:
                async with asyncio.timeout(grace_s):
                    await self._all_left.wait()
            except TimeoutError:
                pass
        for connection in list(self._connections):
            connection.abort()
        if self._looking is not None:
            self._looking.cancel()
        ends_s = self.loop.time() + _LAST_STEPS_S
        while (self._connections or self.calls) and self.loop.time() < ends_s:  # noqa: ASYNC110
            await asyncio.sleep(_LAST_STEPS_S / 100)

    def _stop_listening(self) -> None:
        for listening in self._listening:
            listening.close()


async def _no_answer(requests: Any, context: Any) -> None:
    raise AssertionError("it never runs")


def _method_of(handler: Any) -> Method:
    behaviour = next(
        each
        for each in (
            handler.unary_unary,
            handler.unary_stream,
            handler.stream_unary,
            handler.stream_stream,
        )
        if each is not None
    )
    return Method(
        behaviour=behaviour,
        deserialize=handler.request_deserializer or bytes,
        serialize=handler.response_serializer or bytes,
        takes_stream=handler.request_streaming,
        answers_stream=handler.response_streaming,
        is_unary=not handler.request_streaming and not handler.response_streaming,
        is_generator=isasyncgenfunction(behaviour),
    )
