"""F13: programs that are cut off from Cassandra, alone: with a reset, and in silence.

A server that cannot reach its store acknowledges nothing and says so, and the other one serves on.
Shards of a worker that is cut off are folded by the other one. Nobody has to help afterwards.
"""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.calls import Refusal
from tests.faults.proxy import Way
from tests.faults.ring_fleet import Member, RingFleet
from tests.faults.waiting import FOUND_OUT_WITHIN_S, folded_anew, refused_for

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def refusing(server: Member) -> Refusal:
    """What it says once it has found out that its store is away, and that its health says so."""
    said = await refused_for(server, "STORE_UNAVAILABLE")
    await asyncio.to_thread(server.wait_health, "", NOT_SERVING, FOUND_OUT_WITHIN_S)
    return said


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_server_that_is_cut_off(fleet: RingFleet) -> None:
    alone = fleet.servers[0]
    async with fleet.under_load("f13-server") as load:
        alone.cassandra.cut()
        said = await refusing(alone)
        assert said.code is grpc.StatusCode.UNAVAILABLE
        assert said.retry_after_s is not None
        assert alone.cassandra.seen["cut"] > 0
        await load.acknowledged(100)  # by the other one
        alone.cassandra.heal()
        await asyncio.to_thread(alone.wait_ready)
        alone.cassandra.drop()
        await refusing(alone)
        assert alone.cassandra.seen["drop requests"] > 0
        await load.acknowledged(100)
    assert load.history.refusals["STORE_UNAVAILABLE"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_worker_that_is_cut_off(fleet: RingFleet) -> None:
    alone = fleet.workers[0]
    async with fleet.under_load("f13-worker") as load:
        for how in ("cut", "drop"):
            getattr(alone.cassandra, how)()
            await asyncio.to_thread(alone.wait_health, "", NOT_SERVING, FOUND_OUT_WITHIN_S)
            assert alone.cassandra.seen[how] > 0
            await load.acknowledged(50)
            await folded_anew(fleet.servers[0], load)  # by the other worker
            alone.cassandra.heal()
            await asyncio.to_thread(alone.wait_ready)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_each_side_alone(fleet: RingFleet) -> None:
    """No worker reaches Cassandra: servers go on, and reads say how old they are. Then no server
    does: nothing is acknowledged, and workers finish what there is."""
    async with fleet.under_load("f13-sides") as load:
        for worker in fleet.workers:
            worker.cassandra.drop()
        await asyncio.to_thread(fleet.workers[0].wait_health, "", NOT_SERVING, FOUND_OUT_WITHIN_S)
        await load.acknowledged(100)
        for worker in fleet.workers:
            worker.cassandra.heal()
        for server in fleet.servers:
            server.cassandra.drop()
        for server in fleet.servers:
            await refusing(server)
        for server in fleet.servers:
            server.cassandra.heal()
        await load.acknowledged(100)
        await folded_anew(fleet.servers[0], load)
    for member in (*fleet.servers, *fleet.workers):
        assert member.cassandra.seen["drop requests"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", list(Way))
async def test_one_way_only(fleet: RingFleet, way: Way) -> None:
    """What a program says is heard and it hears nothing, or the other way round."""
    server, worker = fleet.servers[0], fleet.workers[0]
    async with fleet.under_load(f"f13-{way.value}") as load:
        server.cassandra.drop(way)
        worker.cassandra.drop(way)
        await refusing(server)
        await asyncio.to_thread(worker.wait_health, "", NOT_SERVING, FOUND_OUT_WITHIN_S)
        await load.acknowledged(50)
        await folded_anew(fleet.servers[1], load)
    for member in (server, worker):
        assert member.cassandra.seen[f"drop {way.value}"] > 0
