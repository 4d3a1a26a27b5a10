"""Tally as a fleet on one Cassandra node: a server, a worker, a control plane and memcached."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.peers.children import folder, tree_cpu_s
from benchmarks.peers.system import Driver, Promises
from benchmarks.peers.tally_drivers import SingleAdds, client_of
from benchmarks.peers.tally_embedded import TallyPeer
from benchmarks.programs import Fleet, fleet_on_cassandra
from clients.client import CounterClient
from counter.storage.cassandra import ClusterSettings
from tally.dev.cassandra_files import CommitlogSync
from tally.dev.jars import CASSANDRA_VERSION

NAME = "Tally on Cassandra"
SINGLE = f"{NAME}, client.add"
# Beside the accept limit: the window, how far clocks may be off, and the pass itself.
_FILL_S = 5.0 + 0.5 + 1.5
DURABILITY = {
    "batch": "an acknowledged add is in the commit log on disk (fsync): it survives power loss",
    "periodic": "survives a crash of a process; a kill of the only node loses up to 100 ms, and "
    "power loss up to 10 s; with replicas neither does, unless a quorum fails together",
}


class _FleetPeer(TallyPeer):
    """Counts what the fleet's own processes and the stores use."""

    def __init__(self, fleet: Fleet, client: CounterClient, promises: Promises) -> None:
        super().__init__(NAME, fleet.server, fleet.worker, client, promises)
        self.version += f", Cassandra {CASSANDRA_VERSION}"
        self._stores = {
            "node": node_pid(fleet.home),
            "memcached": _pid(fleet.home / "memcached" / "memcached.pid"),
        }

    def cpu_s(self) -> dict[str, float]:
        return super().cpu_s() | {name: tree_cpu_s(pid) for name, pid in self._stores.items()}


def node_pid(home: Path) -> int:
    return _pid(home / "cassandra" / "cassandra.pid")


def _pid(file: Path) -> int:
    return int(file.read_text())


@asynccontextmanager
async def tally_cassandra(
    home: Path, *, commitlog_sync: CommitlogSync, accept_limit_s: float
) -> AsyncIterator[tuple[list[Driver], ClusterSettings]]:
    """And how to reach the node, for what else is measured on it."""
    promises = Promises(
        durability=DURABILITY[commitlog_sync],
        dedupe="exactly once, for ever: each token has one outcome, also days later",
        freshness="reads say how fresh they are; seconds behind, or exact on demand",
    )
    async with (
        fleet_on_cassandra(folder(home), commitlog_sync, accept_limit_s=accept_limit_s) as fleet,
        client_of(fleet.server.address) as client,
    ):
        peer = _FleetPeer(fleet, client, promises)
        fill_s = _FILL_S + accept_limit_s
        yield [SingleAdds(peer, SINGLE, client, fill_s=fill_s)], fleet.cluster
