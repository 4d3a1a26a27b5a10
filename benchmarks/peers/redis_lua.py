"""Redis with an append-only file, and a Lua script that lets a token count once."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, cast

from redis.asyncio import BlockingConnectionPool, Connection, Redis

from benchmarks.peers.children import HOST, folder, running, tree_cpu_s
from benchmarks.peers.loops import OneByOne, Perform, fastest, piece_by_piece
from benchmarks.peers.system import Driver, Extent, Load, Peer, Promises
from benchmarks.tools import find_program
from benchmarks.workloads import Operations, Stream
from tally.dev.ports import free_port

Fsync = Literal["everysec", "always"]

_SCRIPT = (Path(__file__).parent / "dedupe.lua").read_text()
# Long enough for retries, and so long that nothing expires during a run.
_TOKEN_TTL_S = 3_600
_PIPELINES = ((2, 100), (4, 100), (2, 300), (4, 300), (2, 1_000), (4, 1_000))
_TASKS = 50  # each with a connection of its own, as calls that do not share one need
_COUNTS_AT_ONCE = 10_000
# Its arguments stay as they are, because it is found by them.
# Snapshots and rewrites of the file are off: they would run while others are measured.
_CONFIG = """\
bind {host}
port {port}
dir {home}
daemonize no
set-proc-title no
save ""
appendonly yes
appendfsync {fsync}
auto-aof-rewrite-percentage 0
"""
_DURABILITY: dict[Fsync, str] = {
    "everysec": "fsync once a second: power loss takes the last second of acknowledged adds",
    "always": "fsync before the answer, shared by what came together: survives power loss",
}


def pipelined(fsync: Fsync) -> str:
    return f"Redis {fsync}, pipelined"


class RedisPeer(Peer):
    def __init__(self, fsync: Fsync, pid: int, client: Redis, version: str) -> None:
        self.name = f"Redis {fsync}"
        self.version = version
        self.promises = Promises(
            durability=_DURABILITY[fsync],
            dedupe=f"a token counts once within its TTL (here {_TOKEN_TTL_S:,} s), and later again",
            freshness="always the newest count, of one server",
        )
        self._pid = pid
        self._client = client

    def cpu_s(self) -> dict[str, float]:
        return {"server": tree_cpu_s(self._pid)}

    async def counts(self, counters: Sequence[str]) -> list[int]:
        counts: list[int] = []
        for start in range(0, len(counters), _COUNTS_AT_ONCE):
            keys = [f"c:{each}" for each in counters[start : start + _COUNTS_AT_ONCE]]
            counts += (int(value or 0) for value in await self._client.mget(keys))
        return counts


class Pipelines(Driver):
    """A service that has its adds together: a few connections, many commands in each write."""

    def __init__(self, peer: RedisPeer, name: str, clients: Sequence[Redis], sha: str) -> None:
        super().__init__(peer, name, "")
        self._clients = clients
        self._sha = sha
        self._size = _PIPELINES[0]

    async def choose(self, stream: Stream) -> None:
        self._size = await fastest(_PIPELINES, lambda size, s: self._run(stream, s, size))
        connections, commands = self._size
        self.idiom = (
            f"EVALSHA in pipelines of {commands:,} on {connections} connections, "
            f"the fastest of {len(_PIPELINES)} sizes here"
        )

    async def run(self, stream: Stream, seconds: float) -> Load:
        return await self._run(stream, seconds, self._size)

    async def _run(self, stream: Stream, seconds: float, size: tuple[int, int]) -> Load:
        connections, commands = size
        prefix = f"t:{stream.prefix}"

        async def perform(operations: Operations, connection: int) -> None:
            pipeline = self._clients[connection].pipeline(transaction=False)
            for counter, token, read in operations.each():
                if read:
                    pipeline.get(f"c:{counter}")
                else:
                    pipeline.evalsha(
                        self._sha, 2, f"{prefix}{token}", f"c:{counter}", 1, _TOKEN_TTL_S
                    )
            await pipeline.execute()

        return await piece_by_piece(stream, seconds, connections, commands, perform)


class SingleCalls(OneByOne):
    """A service that awaits each add."""

    extent = Extent.DETAILS

    def __init__(self, peer: RedisPeer, name: str, client: Redis, sha: str) -> None:
        idiom = f"await EVALSHA in {_TASKS} tasks, a connection each"
        super().__init__(peer, name, idiom, tasks=_TASKS)
        self._client = client
        self._sha = sha

    async def performer(self, stream: Stream) -> Perform:
        prefix = f"t:{stream.prefix}"

        def perform(counter: str, token: int, read: bool) -> Awaitable[object]:
            if read:
                return cast(Awaitable[object], self._client.get(f"c:{counter}"))
            return cast(
                Awaitable[object],
                self._client.evalsha(
                    self._sha, 2, f"{prefix}{token}", f"c:{counter}", 1, _TOKEN_TTL_S
                ),
            )

        return perform


@asynccontextmanager
async def redis_lua(home: Path, *, fsync: Fsync) -> AsyncIterator[list[Driver]]:
    program = find_program("redis-server")
    home = folder(home)
    config, port = home / "redis.conf", free_port()
    config.write_text(_CONFIG.format(host=HOST, port=port, home=home, fsync=fsync))
    async with AsyncExitStack() as stack:
        pid = await stack.enter_async_context(
            running("redis", home, [program, str(config)], marker=str(config), port=port)
        )
        connections = max(connections for connections, _ in _PIPELINES)
        clients = [
            await stack.enter_async_context(
                Redis(host=HOST, port=port, single_connection_client=True)
            )
            for _ in range(connections)
        ]
        pool: Any = BlockingConnectionPool(
            connection_class=Connection, host=HOST, port=port, max_connections=_TASKS, timeout=None
        )
        shared = await stack.enter_async_context(Redis(connection_pool=pool))
        stack.push_async_callback(pool.aclose)
        about = await shared.info("server")
        sha = await shared.script_load(_SCRIPT)
        peer = RedisPeer(fsync, pid, shared, str(about["redis_version"]))
        yield [
            Pipelines(peer, pipelined(fsync), clients, sha),
            SingleCalls(peer, f"Redis {fsync}, single calls", shared, sha),
        ]
