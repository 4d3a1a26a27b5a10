"""The promise on a fleet: two servers, two workers and a control plane on three Cassandra nodes.

Everything that can be lost is lost in the middle of the load: a node, a server, a worker and the
whole cache. A worker stands still for a while. Then two of three nodes, and the fleet recovers
without help.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from rollup_worker.ownership import MEMBER_TTL_S
from tally.dev.cassandra_node import CassandraNode
from tally.dev.ring import wait_ring_ready
from tests import backends
from tests.backends import start_memcached
from tests.calls import Calls, eventually, refusal, token
from tests.fleet import CONVERGENCE_S, LATE_S, Fleet
from tests.load import under_load

NODES = 3
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[CassandraNode]]:
    nodes = backends.start_ring(tmp_path_factory.mktemp("ring"), NODES)
    try:
        yield nodes
    finally:
        for node in nodes:
            node.kill()


@asynccontextmanager
async def running(home: Path, ring: list[CassandraNode]) -> AsyncIterator[Fleet]:
    memcached = start_memcached()
    fleet = Fleet(
        home,
        contact_points=[node.settings.address for node in ring],
        port=ring[0].settings.native_port,
        copies=NODES,
        memcached=memcached.address,
    )
    fleet.memcached = memcached
    try:
        await fleet.apply_schema()
        yield fleet
    finally:
        fleet.end()
        memcached.kill()


@pytest.mark.timeout(600)
async def test_exactly_once_through_the_loss_of_a_node_a_server_a_worker_and_the_cache(
    tmp_path: Path, ring: list[CassandraNode]
) -> None:
    async with running(tmp_path, ring) as fleet:
        servers = [fleet.add("server"), fleet.add("server")]
        workers = [fleet.add("worker"), fleet.add("worker")]
        control_plane = fleet.add("control-plane")
        await fleet.start(*servers, *workers, control_plane)
        async with under_load(*(each.address for each in servers), late_s=LATE_S) as load:
            await load.acknowledged(500)
            ring[1].kill()
            await load.acknowledged(300)
            workers[0].kill()
            servers[0].kill()
            await load.acknowledged(300)
            fleet.memcached.kill()
            await load.acknowledged(200)
            fleet.memcached.start()
            ring[1].start()
            await fleet.start(servers[0], workers[0])
            await asyncio.to_thread(wait_ring_ready, ring)
            await load.acknowledged(500)
            # One stands still until it is taken for dead, and goes on where it was.
            workers[0].pause()
            await asyncio.sleep(MEMBER_TTL_S + 2)
            await load.acknowledged(200)
            workers[0].resume()
            await load.acknowledged(300)
            # Now a quorum is gone: nothing can be acknowledged, and whoever calls is told so.
            ring[0].kill()
            ring[2].kill()
            with Calls(servers[1].address) as calls:
                said = eventually(
                    lambda: refusal(lambda: calls.add("plays", "during the outage", 1, token())),
                    lambda said: said.reason == "STORE_UNAVAILABLE",
                    within_s=60,
                )
                assert said.code is grpc.StatusCode.UNAVAILABLE
                assert said.retry_after_s is not None
            await asyncio.to_thread(servers[1].wait_health, "", NOT_SERVING, 60)
            ring[0].start()
            ring[2].start()
            await asyncio.to_thread(wait_ring_ready, ring)
            await load.acknowledged(500)
            await load.stop()
            await asyncio.to_thread(lambda: [each.wait_ready() for each in (*servers, *workers)])
            await asyncio.sleep(CONVERGENCE_S)  # I2: nobody reads or writes meanwhile
            await load.check(worker=workers[1].address)
