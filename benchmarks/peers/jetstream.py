"""NATS JetStream: a stream of counters, which adds up messages by subject.

The stream is made with a raw request of its API: the Python client's own settings of a stream know
no counters. A message id dedupes a publish within the stream's window; the server refuses to count
a message again whose id it has seen, so counters and ids can be had together.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

from benchmarks.peers.children import HOST, folder, running, tree_cpu_s
from benchmarks.peers.loops import OneByOne, Perform
from benchmarks.peers.system import Driver, Peer, Promises
from benchmarks.tools import find_program
from benchmarks.workloads import Stream
from counter.errors import SetupError
from tally.dev.ports import free_port

NAME = "NATS JetStream counters"
_STREAM = "counts"
_TASKS = 256
_DUPLICATE_WINDOW_S = 120
_NS_PER_S = 1_000_000_000
_MADE_WITHIN_S = 10.0
# The client's own defaults are short for a machine that is busy with other things.
_ANSWERED_WITHIN_S = 30.0
_CONFIG = """\
listen: "{host}:{port}"
jetstream {{ store_dir: "{home}" }}
"""
_NO_MESSAGE = "404"


class JetStreamPeer(Peer):
    name = NAME
    promises = Promises(
        durability="in the file system's cache: survives a crash of the process; fsync every 2 "
        "minutes (the default sync_interval), so power loss takes those. `sync_interval: always` "
        "has an fsync for each message",
        dedupe=f"a message id counts once within {_DUPLICATE_WINDOW_S} s, and later again",
        freshness="always the newest count, of the stream's leader",
    )

    def __init__(self, pid: int, client: Client) -> None:
        self.version = str(client.connected_server_version)
        self._pid = pid
        self._client = client

    def cpu_s(self) -> dict[str, float]:
        return {"server": tree_cpu_s(self._pid)}

    async def counts(self, counters: Sequence[str]) -> list[int]:
        counts: list[int] = []
        for start in range(0, len(counters), _TASKS):
            counts += await asyncio.gather(*map(self.count, counters[start : start + _TASKS]))
        return counts

    async def count(self, counter: str) -> int:
        subject = f"$JS.API.DIRECT.GET.{_STREAM}.c.{counter}"
        answer = await self._client.request(subject, timeout=_ANSWERED_WITHIN_S)
        if answer.headers and answer.headers.get("Status", "").startswith(_NO_MESSAGE):
            return 0
        return int(json.loads(answer.data)["val"])


class Publishes(OneByOne):
    def __init__(self, peer: JetStreamPeer, context: JetStreamContext) -> None:
        idiom = f"await publish in {_TASKS} tasks, on one connection"
        super().__init__(peer, NAME, idiom, tasks=_TASKS)
        self._counters = peer
        self._context = context

    async def performer(self, stream: Stream) -> Perform:
        prefix = stream.prefix
        publish = self._context.publish

        def perform(counter: str, token: int, read: bool) -> Awaitable[object]:
            if read:
                return self._counters.count(counter)
            return publish(
                f"c.{counter}",
                timeout=_ANSWERED_WITHIN_S,
                headers={"Nats-Incr": "1", "Nats-Msg-Id": f"{prefix}{token}"},
            )

        return perform


@asynccontextmanager
async def jetstream(home: Path) -> AsyncIterator[list[Driver]]:
    program = find_program("nats-server")
    home = folder(home)
    config, port = home / "nats.conf", free_port()
    config.write_text(_CONFIG.format(host=HOST, port=port, home=home / "store"))
    async with AsyncExitStack() as stack:
        pid = await stack.enter_async_context(
            running("nats", home, [program, "-c", str(config)], marker=str(config), port=port)
        )
        client = await nats.connect(f"nats://{HOST}:{port}")
        stack.push_async_callback(client.close)
        await _make_stream(client)
        peer = JetStreamPeer(pid, client)
        yield [Publishes(peer, client.jetstream())]


async def _make_stream(client: Client) -> None:
    settings = {
        "name": _STREAM,
        "subjects": ["c.*"],
        "storage": "file",
        "retention": "limits",
        "num_replicas": 1,
        # The last message of a subject has its count.
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_msg_counter": True,
        "duplicate_window": _DUPLICATE_WINDOW_S * _NS_PER_S,
    }
    ends_s = time.monotonic() + _MADE_WITHIN_S
    while True:
        try:
            answer = await client.request(
                f"$JS.API.STREAM.CREATE.{_STREAM}", json.dumps(settings).encode(), timeout=5
            )
            break
        except nats.errors.NoRespondersError:  # JetStream starts after the port is open
            if time.monotonic() >= ends_s:
                raise
    made = json.loads(answer.data)
    if "error" in made or not made["config"].get("allow_msg_counter"):
        raise SetupError(
            f"nats-server {client.connected_server_version} makes no stream of counters "
            f"({made.get('error', 'it ignores allow_msg_counter')}). Counters came with 2.12: "
            "bring a newer one with: make bench-tools"
        )
