"""A network that a test can break: a TCP proxy between a program and what it talks to.

Bytes go through unchanged until a rule says otherwise, for each way apart:

- `cut`: connections are reset, and each new one as soon as it is made
- `drop`: bytes are swallowed and nobody is told. With the responses alone: what was asked for is
  done, and whoever asked never hears of it
- `hold`: bytes wait here, and go on when the rule ends, also those of a caller who has gone
- `delay`: bytes arrive some time later

`heal` ends all of them. What was swallowed is missing in its connection, so that is reset then. The
proxy counts what it did: a test asserts that its fault took place.
"""

import asyncio
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Coroutine
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, cast

import uvloop

from tests.processes import free_port

ANSWERS_WITHIN_S = 10.0
Where = tuple[str, int]
Rule = Literal["pass", "drop", "hold", "delay"]
Answer = TypeVar("Answer")


class Way(Enum):
    REQUESTS = "requests"  # from whoever connected
    RESPONSES = "responses"


BOTH = (Way.REQUESTS, Way.RESPONSES)


def where(address: str) -> Where:
    """HOST:PORT, taken apart."""
    host, _, port = address.rpartition(":")
    return host, int(port)


class Proxy:
    """Listens from the start until `close`. Its methods return when what they say holds."""

    def __init__(self, target: Where, *, listen: Where | None = None) -> None:
        self.target = target
        self._listen = listen or ("127.0.0.1", free_port())
        # What was done: "connections" that came, that were "cut", and by rule the bytes.
        self.seen: Counter[str] = Counter()
        self._rules: dict[Way, Rule] = dict.fromkeys(Way, "pass")
        self._delay_s = 0.0
        self._is_cut = False
        self._connections: set[_Connection] = set()
        self._server = self._run(self._start())

    @property
    def address(self) -> str:
        """HOST:PORT, for whoever is to go through it."""
        return f"{self._listen[0]}:{self._listen[1]}"

    @property
    def is_cut(self) -> bool:
        return self._is_cut

    def cut(self) -> None:
        self._run(self._change(is_cut=True))

    def drop(self, *ways: Way) -> None:
        self._run(self._change("drop", ways))

    def hold(self, *ways: Way) -> None:
        self._run(self._change("hold", ways))

    def delay(self, seconds: float, *ways: Way) -> None:
        self._run(self._change("delay", ways, delay_s=seconds))

    def heal(self) -> None:
        self._run(self._change())

    def close(self) -> None:
        self._run(self._stop())

    # On the thread of the proxies.

    def rule(self, way: Way) -> Rule:
        return self._rules[way]

    @property
    def delay_s(self) -> float:
        return self._delay_s

    def forget(self, connection: "_Connection") -> None:
        self._connections.discard(connection)

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, _loop()).result(ANSWERS_WITHIN_S)

    async def _start(self) -> asyncio.Server:
        host, port = self._listen
        return cast(
            asyncio.Server, await _loop().create_server(self._accept, host, port, backlog=512)
        )

    def _accept(self) -> asyncio.BaseProtocol:
        connection = _Connection(self)
        self.seen["connections"] += 1
        self._connections.add(connection)
        return connection.near

    async def _change(
        self,
        rule: Rule = "pass",
        ways: tuple[Way, ...] = (),
        *,
        delay_s: float = 0.0,
        is_cut: bool = False,
    ) -> None:
        """One rule at a time: each begins where everything passes."""
        self._is_cut, self._delay_s = is_cut, delay_s
        self._rules = dict.fromkeys(Way, "pass")
        for connection in tuple(self._connections):
            if is_cut or connection.has_lost:
                connection.reset()
            else:
                connection.go_on()
        self._rules |= dict.fromkeys(ways or (BOTH if rule != "pass" else ()), rule)

    async def _stop(self) -> None:
        self._server.close()
        for connection in tuple(self._connections):
            connection.reset()


class _Connection:
    """Two ends, and what is on its way between them."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.near = _End(self, Way.REQUESTS)
        self.far = _End(self, Way.RESPONSES)
        self.has_lost = False
        # What waits, with the time when it may go on: b"" is the end of what was said.
        self._waiting: dict[Way, deque[tuple[float, bytes]]] = {way: deque() for way in Way}
        self._ended: set[Way] = set()
        self._is_over = False

    def opened(self) -> None:
        """Somebody has connected: now the target is called."""
        if self.proxy.is_cut:
            self.reset()
        else:
            # Kept, because the loop alone does not.
            self._calling = asyncio.ensure_future(self._call())

    def take(self, way: Way, data: bytes) -> None:
        """Bytes of one end, or b"" for its end."""
        rule = self.proxy.rule(way)
        if rule != "pass" and data:
            self.proxy.seen[rule] += len(data)
            self.proxy.seen[f"{rule} {way.value}"] += len(data)
        if rule == "drop":
            self.has_lost = True
            return
        loop = asyncio.get_running_loop()
        due_s = loop.time() + (self.proxy.delay_s if rule == "delay" else 0.0)
        self._waiting[way].append((due_s, data))
        if rule == "delay":
            loop.call_at(due_s, self._pass_on, way)
        else:
            self._pass_on(way)

    def go_on(self) -> None:
        """All that waits is due now."""
        for way, waiting in self._waiting.items():
            self._waiting[way] = deque((0.0, data) for _, data in waiting)
            self._pass_on(way)

    def gone(self, way: Way) -> None:
        """The end that spoke this way is gone. What it has said still arrives."""
        if self._waiting[way]:
            self.take(way, b"")
        else:
            self._end()

    def reset(self) -> None:
        """Both ends are told that the connection is gone."""
        if not self._is_over:
            self.proxy.seen["cut"] += 1
        self._end()

    async def _call(self) -> None:
        try:
            await _loop().create_connection(lambda: self.far, *self.proxy.target)
        except OSError:
            self._end()
            return
        if self._is_over:
            self.far.reset()
        self.go_on()

    def _pass_on(self, way: Way) -> None:
        to = self.far if way is Way.REQUESTS else self.near
        waiting, now_s = self._waiting[way], asyncio.get_running_loop().time()
        while waiting and to.is_open and self.proxy.rule(way) != "hold" and waiting[0][0] <= now_s:
            data = waiting.popleft()[1]
            to.send(data)
            if not data:
                self._ended.add(way)
        if len(self._ended) == len(Way):
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self.proxy.forget(self)
        for end in (self.near, self.far):
            end.close() if len(self._ended) == len(Way) else end.reset()


class _End(asyncio.Protocol):
    def __init__(self, connection: _Connection, says: Way) -> None:
        self._connection = connection
        self._says = says
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        if data:
            self._transport.write(data)
        else:
            self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Without lingering, so that the other side sees a reset and no end."""
        if self._transport is not None and self.is_open:
            connection = self._transport.get_extra_info("socket")
            now = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            self._transport.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._says is Way.REQUESTS:
            self._connection.opened()

    def data_received(self, data: bytes) -> None:
        self._connection.take(self._says, data)

    def eof_received(self) -> bool:
        self._connection.take(self._says, b"")
        return True  # the other way stays open

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._connection.gone(self._says)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One thread for all proxies of a run."""
    loop = uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="proxies", daemon=True).start()
    return loop
