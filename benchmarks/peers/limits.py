"""Limits: what the transport and the stores can do, if nothing else is done.

They keep no counts and are no peers; they show how much of what is there is used.
"""

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from cassandra.cluster import ResponseFuture, Session

from benchmarks.folds import Shape, packed_segments
from benchmarks.peers import parsing_server
from benchmarks.peers.cassandra_counters import drive
from benchmarks.peers.children import HOST, running, tree_cpu_s
from benchmarks.peers.system import Driver, Extent, Load, Peer, Promises
from benchmarks.peers.tally_drivers import (
    BatchAdds,
    PreparedBatches,
    SingleAdds,
    channel_to,
    client_of,
)
from benchmarks.workloads import ZIPF, Stream
from counter.clock import SystemClock
from counter.segments import Segment
from counter.settings import Platform
from tally.dev.ports import free_port

PARSER = "Handler that only parses"
PARSER_SINGLE = f"{PARSER}, client.add"
PARSER_BATCHED = f"{PARSER}, client.batch_add"
PARSER_PREPARED = f"{PARSER}, prepared batches"
SQLITE = "SQLite, packed segments"
CASSANDRA = "Cassandra, packed segments"

# As many adds as the SDK's tasks have under way are what one group commit holds at the most.
_COMMIT_ADDS = 2_000
_SEGMENTS_IN_FLIGHT = 8
_NOTHING_KEPT = "nothing is kept"


CpuTime = Callable[[], dict[str, float]]


class Limit(Peer):
    def __init__(self, name: str, version: str, durability: str, cpu_s: CpuTime) -> None:
        self.name = name
        self.version = version
        self.promises = Promises(
            durability=durability, dedupe="none", freshness="no counts, no reads", keeps=False
        )
        self._cpu_s = cpu_s

    def cpu_s(self) -> dict[str, float]:
        return self._cpu_s()


@asynccontextmanager
async def parsing(home: Path) -> AsyncIterator[tuple[str, int]]:
    """The handler that only parses, as a process: its address and its number."""
    address = f"{HOST}:{(port := free_port())}"
    command = [sys.executable, str(Path(parsing_server.__file__)), "--listen", address]
    async with running("parser", home, command, marker=address, port=port) as pid:
        yield address, pid


@asynccontextmanager
async def parser(home: Path) -> AsyncIterator[list[Driver]]:
    """The SDK and prepared bytes against a handler that only parses."""
    async with (
        parsing(home) as (address, pid),
        client_of(address) as client,
        channel_to(address) as channel,
    ):
        peer = Limit(
            PARSER,
            f"Python {sys.version.split()[0]}",
            _NOTHING_KEPT,
            lambda: {"server": tree_cpu_s(pid)},
        )
        single = SingleAdds(peer, PARSER_SINGLE, client, fill_s=0.0)
        single.extent = Extent.RATIOS
        yield [
            single,
            BatchAdds(peer, PARSER_BATCHED, client, fill_s=0.0),
            PreparedBatches(peer, PARSER_PREPARED, channel, fill_s=0.0),
        ]


class SegmentsIntoSqlite(Driver):
    """One thread, one transaction for what one group commit holds."""

    extent = Extent.RATIOS
    warms_up_with = ZIPF

    def __init__(self, home: Path) -> None:
        peer = Limit(
            SQLITE,
            sqlite3.sqlite_version,
            "each commit is in the log on disk (WAL, synchronous = FULL)",
            dict,  # it runs in this process: its time is the client's
        )
        shards = Platform().shards
        super().__init__(peer, SQLITE, f"commits of {_COMMIT_ADDS:,} adds in {shards} segments")
        self._segments = _commit(Platform())
        self._file = home / "segments.db"
        home.mkdir(parents=True)

    async def run(self, stream: Stream, seconds: float) -> Load:
        return await asyncio.to_thread(self._run, seconds)

    def _run(self, seconds: float) -> Load:
        connection = sqlite3.connect(self._file, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS segments (window INTEGER, shard INTEGER, "
                "segment_id BLOB, event_count INTEGER, body BLOB, "
                "PRIMARY KEY (shard, window, segment_id)) WITHOUT ROWID"
            )
            return self._commits(connection, seconds)
        finally:
            connection.close()

    def _commits(self, connection: sqlite3.Connection, seconds: float) -> Load:
        latencies_s: list[float] = []
        ends_s = time.perf_counter() + seconds
        while (began_s := time.perf_counter()) < ends_s:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO segments VALUES (?, ?, ?, ?, ?)",
                [
                    (ref.window, ref.shard, os.urandom(16), ref.event_count, body)
                    for ref, body in self._segments
                ],
            )
            connection.execute("COMMIT")
            latencies_s.append(time.perf_counter() - began_s)
        return Load(operations=len(latencies_s) * _COMMIT_ADDS, latencies_s=latencies_s)


class SegmentsIntoCassandra(Driver):
    """As many inserts in flight as one server has, each of one shard's part of a group commit."""

    extent = Extent.RATIOS
    warms_up_with = ZIPF

    def __init__(self, node: Peer, session: Session, platform: Platform) -> None:
        self._segments = _commit(platform)
        super().__init__(
            Limit(CASSANDRA, node.version, node.promises.durability, node.cpu_s),
            CASSANDRA,
            f"{_COMMIT_ADDS:,} adds in {len(self._segments)} inserts, "
            f"{_SEGMENTS_IN_FLIGHT} in flight",
        )
        self._session = session
        session.execute(
            "CREATE TABLE IF NOT EXISTS native.segments (window bigint, shard int, "
            "segment_id blob, event_count bigint, body blob, "
            "PRIMARY KEY ((window, shard), segment_id))"
        )
        self._insert = session.prepare(
            "INSERT INTO native.segments (window, shard, segment_id, event_count, body) "
            "VALUES (?, ?, ?, ?, ?)"
        )

    async def run(self, stream: Stream, seconds: float) -> Load:
        latencies_s = await asyncio.to_thread(drive, self._calls(), seconds, _SEGMENTS_IN_FLIGHT)
        adds = _COMMIT_ADDS * len(latencies_s) // len(self._segments)
        return Load(operations=adds, latencies_s=latencies_s)

    def _calls(self) -> Iterator[Callable[[], ResponseFuture]]:
        window_ms = Platform().window_ms
        while True:
            # A partition for each window, as in the log, so that none grows without end.
            window = time.time_ns() // (window_ms * 1_000_000)
            for ref, body in self._segments:
                row = (window, ref.shard, os.urandom(16), ref.event_count, body)
                yield partial(self._session.execute_async, self._insert, row)


def _commit(platform: Platform) -> list[Segment]:
    """The segments of one group commit."""
    shape = Shape(name="commit", events=_COMMIT_ADDS, counters=_COMMIT_ADDS)
    segments, _ = packed_segments(shape, platform.layout(SystemClock().now_ns()))
    return segments
