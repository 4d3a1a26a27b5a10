"""Cassandra's own counters, as a user would update them: the same driver, the same consistency.

Updates are not idempotent, so a time-out leaves a count that nobody knows; that is what Tally is
for. Here they are what Tally on Cassandra is compared with.
"""

import itertools
import socket
import threading
import time
from dataclasses import dataclass, field

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy

from benchmarks.requests import counter_name
from counter.storage.cassandra import ClusterSettings

_KEYSPACE = "native"
# A request need not wait until the one before is acknowledged: with several in flight that is what
# the driver's default comes to.
NO_DELAY = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
_IN_FLIGHT = 50


@dataclass
class NativeLoad:
    updates: int = 0
    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def updates_per_s(self) -> float:
        return self.updates / self.elapsed_s


class NativeCounters:
    """A table of counters, and a closed loop of updates with 50 of them in flight."""

    def __init__(self, settings: ClusterSettings, *, counters: int) -> None:
        self._cluster = Cluster(
            list(settings.contact_points),
            port=settings.port,
            protocol_version=5,
            sockopts=NO_DELAY,
            execution_profiles={
                EXEC_PROFILE_DEFAULT: ExecutionProfile(
                    load_balancing_policy=TokenAwarePolicy(
                        DCAwareRoundRobinPolicy(settings.data_center)
                    ),
                    consistency_level=ConsistencyLevel.LOCAL_QUORUM,
                )
            },
        )
        self._session: Session = self._cluster.connect()
        self._session.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {_KEYSPACE} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', '{settings.data_center}': 1}}"
        )
        self._session.execute(
            f"CREATE TABLE IF NOT EXISTS {_KEYSPACE}.counts (name text PRIMARY KEY, count counter)"
        )
        self._update = self._session.prepare(
            f"UPDATE {_KEYSPACE}.counts SET count = count + ? WHERE name = ?"
        )
        self._names = itertools.cycle(counter_name(number) for number in range(counters))

    def drive(self, seconds: float) -> NativeLoad:
        """Blocks for so long."""
        load = NativeLoad()
        room = threading.Semaphore(_IN_FLIGHT)
        errors: list[Exception] = []

        def done(_: object, began_s: float) -> None:
            load.latencies_s.append(time.perf_counter() - began_s)
            room.release()

        def failed(error: Exception, _: float) -> None:
            errors.append(error)
            room.release()

        start_s = time.perf_counter()
        while (began_s := time.perf_counter()) < start_s + seconds:
            room.acquire()
            sent = self._session.execute_async(self._update, (1, next(self._names)))
            sent.add_callbacks(done, failed, callback_args=(began_s,), errback_args=(began_s,))
        for _ in range(_IN_FLIGHT):
            room.acquire()
        if errors:
            raise RuntimeError(f"{len(errors)} updates failed, the first with: {errors[0]}")
        load.elapsed_s = time.perf_counter() - start_s
        load.updates = len(load.latencies_s)
        return load

    def close(self) -> None:
        self._cluster.shutdown()
