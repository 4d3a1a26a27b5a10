"""PostgreSQL with a table of tokens and a table of counts, changed in one transaction."""

import asyncio
import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.peers.children import HOST, folder, running, tree_cpu_s
from benchmarks.peers.loops import OneByOne, Perform, fastest, piece_by_piece
from benchmarks.peers.system import Driver, Extent, Load, Peer, Promises
from benchmarks.tools import find_program
from benchmarks.workloads import Operations, Stream
from counter.errors import SetupError
from tally.dev.ports import free_port

ONE_BY_ONE = "PostgreSQL, one transaction each"
BATCHED = "PostgreSQL, batched"

Connection = Any  # what a pool lends; its type has a parameter that says nothing here

_SQL = Path(__file__).parent / "sql"
_SYSTEM_USER = "postgres"  # when the run is root's: PostgreSQL refuses to be root
_CONNECTIONS = 32
_BATCHES = ((2, 100), (2, 1_000), (4, 1_000))
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    # So that the log's size alone brings no checkpoint during a run.
    "max_wal_size": "8GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
_PROMISES = Promises(
    durability="synchronous_commit on: an acknowledged add is in the log on disk (fsync)",
    dedupe="a token counts once while its row is kept; deleting old ones is not measured here",
    freshness="always the newest count, of one server",
)


def query(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text()


class PostgresPeer(Peer):
    name = "PostgreSQL"
    promises = _PROMISES

    def __init__(self, pid: int, reader: Connection, version: str) -> None:
        self.version = version
        self._pid = pid
        self._reader = reader

    def cpu_s(self) -> dict[str, float]:
        return {"server": tree_cpu_s(self._pid)}

    async def counts(self, counters: Sequence[str]) -> list[int]:
        found = dict(await self._reader.fetch(query("read"), list(counters)))
        return [found.get(each, 0) for each in counters]


class Transactions(OneByOne):
    """A service that awaits each add: its commit is one fsync, shared by those at the same time."""

    def __init__(self, peer: PostgresPeer, connections: Sequence[Connection]) -> None:
        idiom = f"one transaction of one statement each, on {len(connections)} connections"
        super().__init__(peer, ONE_BY_ONE, idiom, tasks=len(connections))
        self._connections = connections

    async def performer(self, stream: Stream) -> Perform:
        prefix = stream.prefix
        adds = [await each.prepare(query("add")) for each in self._connections]
        reads = [await each.prepare(query("read")) for each in self._connections]
        free = list(zip(adds, reads, strict=True))
        room = asyncio.Semaphore(len(free))

        async def perform(counter: str, token: int, read: bool) -> None:
            async with room:
                statements = free.pop()
                if read:
                    await statements[1].fetch([counter])
                else:
                    await statements[0].fetch(f"{prefix}{token}", counter, 1)
                free.append(statements)

        return perform


class Batches(Driver):
    """A service that has its adds together, and takes care that no two batches deadlock."""

    extent = Extent.DETAILS

    def __init__(self, peer: PostgresPeer, connections: Sequence[Connection]) -> None:
        super().__init__(peer, BATCHED, "")
        self._connections = connections
        self._size = _BATCHES[0]

    async def choose(self, stream: Stream) -> None:
        self._size = await fastest(_BATCHES, lambda size, s: self._run(stream, s, size))
        connections, adds = self._size
        self.idiom = (
            f"transactions of {adds:,} adds by arrays on {connections} connections, "
            f"the fastest of {len(_BATCHES)} sizes here"
        )

    async def run(self, stream: Stream, seconds: float) -> Load:
        return await self._run(stream, seconds, self._size)

    async def _run(self, stream: Stream, seconds: float, size: tuple[int, int]) -> Load:
        prefix = stream.prefix
        connections, adds = size
        statements = [
            await each.prepare(query("add_many")) for each in self._connections[:connections]
        ]

        async def perform(operations: Operations, connection: int) -> None:
            tokens = [f"{prefix}{token}" for token in operations.tokens]
            await statements[connection].fetch(tokens, operations.counters, [1] * len(tokens))

        return await piece_by_piece(stream, seconds, connections, adds, perform)


@asynccontextmanager
async def postgres(home: Path) -> AsyncIterator[list[Driver]]:
    program = find_program("postgres")
    home = folder(home)
    data, port = home / "data", free_port()
    as_user = _as_system_user(home)
    await asyncio.to_thread(_init, data, as_user)
    command = [*as_user, program, "-D", str(data), "-p", str(port)]
    for name, value in _SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    async with AsyncExitStack() as stack:
        pid = await stack.enter_async_context(
            running("postgres", home, command, marker=str(data), port=port)
        )
        connections = []
        for _ in range(_CONNECTIONS):
            connection = await _connected(port)
            stack.push_async_callback(connection.close)
            connections.append(connection)
        await connections[0].execute(query("schema"))
        version = await connections[0].fetchval("SHOW server_version")
        peer = PostgresPeer(pid, connections[0], str(version).split()[0])
        yield [Transactions(peer, connections), Batches(peer, connections)]


async def _connected(port: int) -> Connection:
    """It takes connections a moment before it is ready for them."""
    while True:
        try:
            return await asyncpg.connect(host=HOST, port=port, user="bench", database="postgres")
        except asyncpg.CannotConnectNowError:
            await asyncio.sleep(0.05)


def _init(data: Path, as_user: Sequence[str]) -> None:
    command = [find_program("initdb"), "-D", str(data), "-U", "bench", "--auth=trust", "--no-sync"]
    done = subprocess.run(
        [*as_user, *command, "--encoding=UTF8", "--no-locale"],
        capture_output=True,
        text=True,
        cwd=data.parent,
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(f"initdb in {data} failed: {done.stderr.strip() or done.stdout.strip()}")


def _as_system_user(home: Path) -> list[str]:
    """What to put in front of commands; as root the home is given to the system's user."""
    if os.geteuid() != 0:
        return []
    try:
        shutil.chown(home, _SYSTEM_USER, _SYSTEM_USER)
    except LookupError as error:
        raise SetupError(
            f"PostgreSQL refuses to run as root, and there is no user {_SYSTEM_USER}. Bring both "
            "with: make bench-tools. Or run the benchmarks as another user than root"
        ) from error
    for above in home.parents:
        if not above.stat().st_mode & stat.S_IXOTH:
            raise SetupError(
                f"user {_SYSTEM_USER} may not pass through {above}, where PostgreSQL's data would "
                f"be. Allow it with: chmod o+x {above}"
            )
    return ["setpriv", f"--reuid={_SYSTEM_USER}", f"--regid={_SYSTEM_USER}", "--init-groups", "--"]
