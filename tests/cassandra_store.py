"""One keyspace on one real node for all tests of a run, and a session on each test's event loop."""

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from counter.storage.cassandra import CassandraSession, ClusterSettings
from counter.storage.cassandra.cluster import open_cluster
from counter.storage.cassandra.schema import apply
from tests import backends

DATA_CENTER = "datacenter1"


@cache
def settings() -> ClusterSettings:
    """Of the run's node, with the schema applied."""
    node = backends.cassandra_node().settings
    made = ClusterSettings(
        contact_points=(node.address,),
        port=node.native_port,
        data_center=DATA_CENTER,
        keyspace=f"test_{secrets.token_hex(6)}",
        request_timeout_ms=10_000,
    )
    with ThreadPoolExecutor(1) as thread:  # whether or not a loop runs in this one
        thread.submit(asyncio.run, apply(made, {DATA_CENTER: 1}, lambda _: None)).result()
    return made


@cache
def _cluster() -> tuple[Any, Any]:
    cluster, session = open_cluster(settings())
    return cluster, session


async def shared_session(limits: ClusterSettings | None = None) -> CassandraSession:
    """Connected once; each test's loop has its own bridge to it."""
    cluster, session = await asyncio.to_thread(_cluster)
    bridge = CassandraSession(cluster, session, limits or settings())
    await asyncio.to_thread(bridge._prepare)
    return bridge
