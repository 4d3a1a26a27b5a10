"""One memcached server: its connections, and whether it is in use."""

import asyncio
from contextlib import suppress
from functools import partial

import structlog

from counter.storage.memcached.connection import Connection

# Of making a connection, which nobody waits for but the start of the process.
CONNECT_TIMEOUT_S = 1.0
# One that was lost sooner than this is not made again at once: a server that takes connections and
# then does not answer would slow down some calls each time.
_STEADY_S = 5.0

log = structlog.get_logger()


class Server:
    """In use while it has a connection on which it answered; ejected otherwise.

    The first call that it leaves without an answer costs it the connection, and a new one counts
    only after the server has answered on it. So a server that hangs slows down the calls of one
    time limit, and then none: calls to an ejected server fail at once, while one task per
    connection keeps trying to get it back.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        *,
        timeout_ms: int,
        connections: int,
        probe_interval_ms: int,
    ) -> None:
        self.name = name
        self.host = host
        self._port = port
        self._timeout_ms = timeout_ms
        self._connections_max = connections
        self._probe_interval_s = probe_interval_ms / 1_000
        self._live: list[Connection] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._tried = asyncio.Event()
        self._closing = False
        # Why it is ejected; None while it is in use, and before it was tried.
        self.problem: str | None = None
        # What it said, if it answers and is no memcached that we can use.
        self.foreign: str | None = None

    def connection(self) -> Connection | None:
        """The least busy one; None while the server is ejected."""
        live = self._live
        if len(live) > 1:
            return min(live, key=lambda each: each.pending)
        return live[0] if live else None

    async def start(self) -> None:
        """Returns when the first attempt to reach it has succeeded or failed."""
        self._tasks = [
            asyncio.create_task(self._keep_connected(), name=f"memcached {self.name}")
            for _ in range(self._connections_max)
        ]
        await self._tried.wait()

    async def close(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            lost = asyncio.Event()
            connection = Connection(
                loop, timeout_ms=self._timeout_ms, on_lost=partial(self._on_lost, lost)
            )
            try:
                problem = await self._connect(connection)
                if problem is None and not connection.lost:
                    self._take_back(connection)
                    await lost.wait()
                else:
                    self._eject(problem or connection.why_lost)
            finally:
                connection.give_up("this process is stopping")
            if loop.time() - began_s < _STEADY_S:
                await asyncio.sleep(self._probe_interval_s)

    async def _connect(self, connection: Connection) -> str | None:
        """Makes the connection and asks for a sign of life; answers why there is none."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.create_connection(lambda: connection, self.host, self._port)
        except TimeoutError:
            return "it does not take connections"
        except OSError as error:
            return error.strerror or str(error)
        replies = await connection.send(b"mn\r\n", 1)
        self.foreign = connection.foreign
        return None if replies is not None else connection.why_lost

    def _on_lost(self, lost: asyncio.Event, connection: Connection) -> None:
        lost.set()
        if connection in self._live:
            self._live.remove(connection)
            self._eject(connection.why_lost)

    def _take_back(self, connection: Connection) -> None:
        self._live.append(connection)
        if self.problem is not None:
            self.problem = None
            log.info("a memcached server is back", action="memcached_back", server=self.name)
        self._tried.set()

    def _eject(self, problem: str) -> None:
        if not self._live and self.problem is None and not self._closing:
            self.problem = problem
            log.warning(
                "a memcached server does not answer: doing without it",
                action="memcached_ejected",
                server=self.name,
                problem=problem,
            )
        self._tried.set()
