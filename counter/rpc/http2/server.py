"""A gRPC server: where it listens, which handlers it has, and how it ends."""

import asyncio
import errno
import random
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import isasyncgenfunction
from typing import Any, NamedTuple

import grpc

from counter.rpc.http2.call import Method
from counter.rpc.http2.connection import Connection
from counter.rpc.http2.messages import CallRefused
from counter.rpc.listening import addresses_of, host_and_port

_BACKLOG = 1_024
_LOOK_EVERY_S = 0.1
_AGE_SPREAD = 0.1


@dataclass(frozen=True, kw_only=True)
class Limits:
    message_bytes_max: int = 16 * 1024 * 1024
    header_bytes_max: int = 16 * 1024
    stream_window_bytes: int = 1024 * 1024
    connection_window_bytes: int = 16 * 1024 * 1024
    calls_max: int = 10_000  # under way in all
    streams_max: int = 10_000  # of one connection
    connections_max: int = 10_000
    kept_bytes_max: int = 512 * 1024 * 1024  # received in all, and not yet taken by a handler
    # Of one peer, within a tenth of a second: frames without a call, and calls given up.
    idle_frames_max: int = 10_000
    resets_max: int = 2_000
    unread_bytes_max: int = 1024 * 1024  # written, and not taken by the peer
    unread_s_max: float = 60.0
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
        self.calls = 0  # under way
        # Of calls that have no handler.
        self.nothing = _method_of(grpc.stream_stream_rpc_method_handler(_no_answer))
        self._kept_bytes = 0
        self._connection_age_s = connection_age_s
        self._connections: dict[Connection, None] = {}
        self._generic: list[Any] = []
        self._methods: dict[bytes, Method] = {}
        self._listening: list[asyncio.Server] = []
        self._looking: asyncio.TimerHandle | None = None
        self._all_left = asyncio.Event()
        self._is_stopping = False

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
        port = 0
        for family, address in addresses_of(*host_and_port(listen)):
            sock = _bound(family, address, port, share_port=share_port)
            if sock is None:
                continue
            port = sock.getsockname()[1]
            self._listening.append(
                await self.loop.create_server(lambda: Connection(self), sock=sock, backlog=_BACKLOG)
            )
        if not self._listening:
            raise OSError(errno.EADDRNOTAVAIL, f"no address of this machine is {listen}")
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
        """Of data that handlers did not take yet, there is so much more."""
        self._kept_bytes += more
        if more > 0 and self._kept_bytes > self.limits.kept_bytes_max:
            raise CallRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "too much data is waiting to be handled: send it again later",
            )

    def _look(self) -> None:
        now_s = self.loop.time()
        for connection in list(self._connections):
            connection.look(now_s)
        self._looking = self.loop.call_later(_LOOK_EVERY_S, self._look)

    # The end.

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, and gives calls under way `grace_s` to finish."""
        self._is_stopping = True
        for listening in self._listening:
            listening.close()
        tasks = [call.task for each in self._connections for call in each.calls.values()]
        ends_s = self.loop.time() + grace_s
        for connection in list(self._connections):
            if grace_s > 0:
                connection.drain(ends_s)
            else:
                connection.abort()
        if self._connections:
            self._all_left.clear()
            try:
                # A little more than the connections themselves, which give up then.
                async with asyncio.timeout(grace_s + 2 * _LOOK_EVERY_S):
                    await self._all_left.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
        if self._looking is not None:
            self._looking.cancel()
        running = [task for task in tasks if task is not None and not task.done()]
        if running:
            await asyncio.wait(running, timeout=1)


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
        is_generator=isasyncgenfunction(behaviour),
    )


def _bound(
    family: socket.AddressFamily, address: tuple[Any, ...], port: int, *, share_port: bool
) -> socket.socket | None:
    """None if this machine has no such address. `port`: where the addresses before it listen."""
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        sock.bind((address[0], address[1] or port, *address[2:]))
    except OSError as error:
        sock.close()
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise
    return sock
