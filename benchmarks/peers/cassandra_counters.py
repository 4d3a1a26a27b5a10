"""Cassandra's own counters: an update each, by the driver that Tally uses.

There is no batched way to compare with: a batch of counter updates is a round of reads and writes
for each of them too, and one that timed out cannot be repeated. Calls go out from one thread and
are answered on the driver's own, as many in flight as the rest of these benchmarks has.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from cassandra.cluster import ResponseFuture, Session
from cassandra.concurrent import execute_concurrent_with_args

from benchmarks.native import NativeCounters
from benchmarks.peers.children import tree_cpu_s
from benchmarks.peers.loops import OneByOne, Perform
from benchmarks.peers.system import Driver, Load, Peer, Promises
from benchmarks.peers.tally_cassandra import DURABILITY, node_pid
from benchmarks.workloads import Stream
from counter.storage.cassandra import ClusterSettings
from tally.dev.cassandra_files import CommitlogSync
from tally.dev.jars import CASSANDRA_VERSION

NAME = "Cassandra native counters"
_IN_FLIGHT = 50
_READS_AT_ONCE = 100


class Counters(NativeCounters):
    """The same table and the same statement, over the counters of a workload."""

    def __init__(self, settings: ClusterSettings) -> None:
        super().__init__(settings, counters=1)
        self._read = self._session.prepare("SELECT count FROM native.counts WHERE name = ?")

    @property
    def session(self) -> Session:
        return self._session

    def send(self, counter: str, read: bool) -> ResponseFuture:
        if read:
            return self._session.execute_async(self._read, (counter,))
        return self._session.execute_async(self._update, (1, counter))

    def sent(self, stream: Stream) -> Iterator[Callable[[], ResponseFuture]]:
        """Calls, for ever. The stream has moved by those that were taken from here."""
        while True:
            (counter,), (read,) = (operations := stream.take(1)).counters, operations.reads
            yield partial(self.send, counter, read)

    def counts(self, counters: Sequence[str]) -> list[int]:
        found = execute_concurrent_with_args(
            self._session, self._read, [(each,) for each in counters], concurrency=_READS_AT_ONCE
        )
        rows = [result.one() for _, result in found]
        return [0 if row is None else int(row.count) for row in rows]


def drive(
    calls: Iterator[Callable[[], ResponseFuture]], seconds: float, in_flight: int
) -> list[float]:
    """Blocks for so long, and until all are answered; how long each took. A failure is an error."""
    latencies_s: list[float] = []
    errors: list[Exception] = []
    room = threading.Semaphore(in_flight)

    def done(_: object, began_s: float) -> None:
        latencies_s.append(time.perf_counter() - began_s)
        room.release()

    def failed(error: Exception, _: float) -> None:
        errors.append(error)
        room.release()

    ends_s = time.perf_counter() + seconds
    while not errors:
        room.acquire()
        began_s = time.perf_counter()
        if began_s >= ends_s:
            room.release()
            break
        next(calls)().add_callbacks(done, failed, callback_args=(began_s,), errback_args=(began_s,))
    for _ in range(in_flight):
        room.acquire()
    if errors:
        raise RuntimeError(f"{len(errors)} calls of Cassandra failed, the first with: {errors[0]}")
    return latencies_s


class CountersPeer(Peer):
    name = NAME

    def __init__(self, node: int, counters: Counters, commitlog_sync: CommitlogSync) -> None:
        self.version = CASSANDRA_VERSION
        self.promises = Promises(
            durability=DURABILITY[commitlog_sync],
            dedupe="none: a repeated update counts again, and one that timed out is a guess",
            freshness="the newest count of a quorum",
            dedupes=False,
        )
        self._node = node
        self._counters = counters

    def cpu_s(self) -> dict[str, float]:
        return {"node": tree_cpu_s(self._node)}

    async def counts(self, counters: Sequence[str]) -> list[int]:
        return await asyncio.to_thread(self._counters.counts, counters)


class Updates(OneByOne):
    def __init__(self, peer: CountersPeer, counters: Counters) -> None:
        idiom = f"UPDATE ... SET count = count + 1, {_IN_FLIGHT} in flight"
        super().__init__(peer, NAME, idiom, tasks=_IN_FLIGHT)
        self._counters = counters

    async def run(self, stream: Stream, seconds: float) -> Load:
        sent = self._counters.sent(stream)
        latencies_s = await asyncio.to_thread(drive, sent, seconds, _IN_FLIGHT)
        return Load(operations=len(latencies_s), latencies_s=latencies_s)

    async def performer(self, stream: Stream) -> Perform:
        """For an event loop. A closed loop does without one, which takes less of the machine."""
        loop = asyncio.get_running_loop()

        def perform(counter: str, token: int, read: bool) -> Awaitable[object]:
            answered: asyncio.Future[object] = loop.create_future()

            def done(rows: object) -> None:
                loop.call_soon_threadsafe(answered.set_result, rows)

            def failed(error: Exception) -> None:
                loop.call_soon_threadsafe(answered.set_exception, error)

            self._counters.send(counter, read).add_callbacks(done, failed)
            return answered

        return perform


@asynccontextmanager
async def cassandra_counters(
    cluster: ClusterSettings, home: Path, *, commitlog_sync: CommitlogSync
) -> AsyncIterator[tuple[list[Driver], Session]]:
    """On a node that runs, whose home this is; and a session of it."""
    counters = await asyncio.to_thread(Counters, cluster)
    try:
        peer = CountersPeer(node_pid(home), counters, commitlog_sync)
        yield [Updates(peer, counters)], counters.session
    finally:
        await asyncio.to_thread(counters.close)
