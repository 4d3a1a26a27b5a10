"""Tally on one Cassandra node as child processes: the stores, and the programs on them.

How the node writes its commit log decides what a kill of it may lose. With `batch` what is
acknowledged survives, as it must on one node without replicas. With `periodic`, Cassandra's
default, the last 100 ms do not.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import NAMESPACE, Server, program
from counter.settings import Platform
from counter.storage.cassandra import ClusterSettings
from counter.storage.cassandra.schema import apply
from tally.dev.cassandra_files import CommitlogSync, NodeSettings
from tally.dev.cassandra_node import CassandraNode
from tally.dev.memcached import Memcached
from tally.dev.ports import free_port

DATA_CENTER = "datacenter1"
PLATFORM = Platform(window_ms=5_000, shards=16)
_CONFIG = """\
platform:
  accept_limit: {accept_limit_ms}ms
cassandra:
  contact_points: [127.0.0.1]
  port: {port}
  data_center: {data_center}
  keyspace: {keyspace}
memcached:
  servers: ["{memcached}"]
control_plane:
  namespaces: namespaces
"""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    cluster: ClusterSettings
    home: Path
    config: Path
    server: Server
    worker: Server

    @asynccontextmanager
    async def another_server(self, name: str, *flags: str) -> AsyncIterator[Server]:
        """One more server on the same stores, with flags of its own."""
        async with program("server", self.home / name, self.config, *flags) as server:
            yield server


@asynccontextmanager
async def cassandra_node(home: Path, commitlog_sync: CommitlogSync) -> AsyncIterator[CassandraNode]:
    """A node that is ready, set up as a server's, with 2 GB of heap."""
    node = CassandraNode(
        NodeSettings(
            home=home,
            native_port=free_port(),
            storage_port=free_port(),
            commitlog_sync=commitlog_sync,
            like_a_server=True,
            heap_mb=2_048,
        )
    )
    node.start()
    try:
        await asyncio.to_thread(node.wait_ready)
        yield node
    finally:
        node.kill()


def cluster_of(node: CassandraNode) -> ClusterSettings:
    return ClusterSettings(
        contact_points=(node.settings.address,),
        port=node.settings.native_port,
        data_center=DATA_CENTER,
        request_timeout_ms=10_000,
    )


@asynccontextmanager
async def fleet_on_cassandra(
    home: Path, commitlog_sync: CommitlogSync, *, accept_limit_s: float = 5.0
) -> AsyncIterator[Fleet]:
    """A node, a memcached, a control plane, a worker and a server, with default settings but for
    how late an event may come."""
    async with AsyncExitStack() as stack:
        memcached = Memcached(home / "memcached", port=free_port())
        memcached.start()
        stack.callback(memcached.kill)
        node = await stack.enter_async_context(cassandra_node(home / "cassandra", commitlog_sync))
        cluster = cluster_of(node)
        await apply(cluster, {DATA_CENTER: 1}, lambda _: None)
        (home / "namespaces").mkdir()
        (home / "namespaces" / f"{NAMESPACE}.yaml").write_text(
            f"namespace: {NAMESPACE}\nstrategy: eventual\n"
        )
        config = home / "fleet.yaml"
        config.write_text(
            _CONFIG.format(
                accept_limit_ms=round(accept_limit_s * 1_000),
                port=cluster.port,
                data_center=DATA_CENTER,
                keyspace=cluster.keyspace,
                memcached=memcached.address,
            )
        )
        await stack.enter_async_context(program("control-plane", home, config))
        worker = await stack.enter_async_context(program("worker", home, config))
        server = await stack.enter_async_context(program("server", home, config))
        yield Fleet(cluster=cluster, home=home, config=config, server=server, worker=worker)
