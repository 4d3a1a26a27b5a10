"""One durable write of each store, alone and raw: what no add on it can do without."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy

from benchmarks.figures import percentile_ms
from benchmarks.native import NO_DELAY
from counter.storage.cassandra import ClusterSettings

_WRITES = 200
_PAYLOAD = bytes(200)  # as large as a segment with a few events
_KEYSPACE = "raw_writes"


class StoreWrite:
    """How long one took, of 200 in a row while nobody else writes."""

    def __init__(self, latencies_s: list[float]) -> None:
        self.p50_ms = percentile_ms(latencies_s, 50)
        self.p99_ms = percentile_ms(latencies_s, 99)


async def sqlite_write(home: Path) -> StoreWrite:
    """A row and a commit, with the journal and the fsync of Tally's own file."""

    def measure() -> StoreWrite:
        home.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(home / "raw.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS raw (id INTEGER PRIMARY KEY, payload BLOB)"
            )
            insert = "INSERT INTO raw (payload) VALUES (?)"
            return StoreWrite(_timed(lambda: connection.execute(insert, (_PAYLOAD,))))

    return await asyncio.to_thread(measure)


async def cassandra_write(settings: ClusterSettings) -> StoreWrite:
    """An insert at LOCAL_QUORUM by the same driver."""

    def measure() -> StoreWrite:
        profile = ExecutionProfile(
            load_balancing_policy=DCAwareRoundRobinPolicy(settings.data_center),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        )
        cluster = Cluster(
            list(settings.contact_points),
            port=settings.port,
            protocol_version=5,
            sockopts=NO_DELAY,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        try:
            session = cluster.connect()
            session.execute(
                f"CREATE KEYSPACE IF NOT EXISTS {_KEYSPACE} WITH replication = "
                f"{{'class': 'NetworkTopologyStrategy', '{settings.data_center}': 1}}"
            )
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {_KEYSPACE}.raw (id bigint PRIMARY KEY, payload blob)"
            )
            insert = session.prepare(f"INSERT INTO {_KEYSPACE}.raw (id, payload) VALUES (?, ?)")
            return StoreWrite(_timed(lambda: session.execute(insert, (time.time_ns(), _PAYLOAD))))
        finally:
            cluster.shutdown()

    return await asyncio.to_thread(measure)


def _timed(write: Callable[[], object]) -> list[float]:
    latencies_s = []
    for _ in range(_WRITES):
        began_s = time.perf_counter()
        write()
        latencies_s.append(time.perf_counter() - began_s)
    return latencies_s
