"""Several Cassandra nodes that form one ring, on 127.0.0.1, 127.0.0.2, and so on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cassandra import ConsistencyLevel, DriverException
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from tally.dev.cassandra_files import NodeSettings
from tally.dev.cassandra_node import READY_WITHIN_S, CassandraNode

NODES_MAX = 9
READY = "ready"
LOOK_EVERY_S = 0.2
_TOKENS = 2**64  # of Murmur3Partitioner: from -2**63 on


def ring_settings(home: Path, count: int, first: NodeSettings) -> list[NodeSettings]:
    """The settings of each node: `first` with addresses, homes and tokens that make one ring."""
    assert 1 <= count <= NODES_MAX
    addresses = [f"127.0.0.{number}" for number in range(1, count + 1)]
    return [
        replace(
            first,
            home=home / f"node{number}",
            address=address,
            # Seeds do not wait for others, so that all nodes can start at the same time.
            seeds=tuple(addresses),
            token=-(2**63) + _TOKENS // count * (number - 1),
        )
        for number, address in enumerate(addresses, start=1)
    ]


def wait_ring_ready(
    nodes: Sequence[CassandraNode],
    within_s: float = READY_WITHIN_S,
    progress: Callable[[CassandraNode, str], None] = lambda _node, _stage: None,
) -> None:
    """Returns when every node takes connections and sees all the others alive."""
    ends_s = time.monotonic() + within_s
    waiting = list(nodes)
    while waiting:
        for node in tuple(waiting):
            stage = node.unready() or _alone(node, len(nodes))
            if stage is None:
                waiting.remove(node)
                progress(node, READY)
                continue
            progress(node, stage)
            if time.monotonic() >= ends_s:
                raise node.too_late(stage)
        time.sleep(LOOK_EVERY_S)


def _alone(node: CassandraNode, count: int) -> str | None:
    """What the node lacks to be one of so many, or None."""
    if count == 1:
        return None
    # Two tables that every cluster has, with two and with three replicas: all of them must answer.
    table = "system_traces.sessions" if count == 2 else "system_distributed.repair_history"
    everybody = SimpleStatement(
        f"SELECT * FROM {table} LIMIT 1", consistency_level=ConsistencyLevel.ALL
    )
    try:
        with node.session() as session:
            mine = session.execute("SELECT schema_version FROM system.local").one()
            peers = list(session.execute("SELECT schema_version FROM system.peers_v2"))
            if len(peers) != count - 1:
                return f"looking for the others, {len(peers)} of {count - 1} found"
            if any(peer.schema_version != mine.schema_version for peer in peers):
                return "waiting for the others' schema"
            session.execute(everybody)
    except (NoHostAvailable, DriverException) as error:
        return f"waiting for the others to answer ({type(error).__name__})"
    return None
