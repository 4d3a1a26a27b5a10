"""F12: nodes of Cassandra that are killed, restarted one after the other, or hang.

With one of three away callers of the SDK notice nothing. With two away nothing is acknowledged,
whoever calls is told so, and everything goes on by itself when they are back.
"""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tally.dev.ring import wait_ring_ready
from tests.calls import eventually
from tests.faults.ring_fleet import RingFleet
from tests.faults.waiting import FOUND_OUT_WITHIN_S, folded_anew, refused_for
from tests.sdk_callers import callers_who_must_not_notice

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_one_node_then_two_are_killed(fleet: RingFleet) -> None:
    ring = fleet.ring
    async with fleet.under_load("f12") as load:
        async with callers_who_must_not_notice(*fleet.addresses) as callers:
            ring[1].kill()
            await callers.everybody_adds()
            await load.acknowledged(100)
            await folded_anew(fleet.servers[0], load)
        assert not ring[1].is_running
        # Now a quorum is gone.
        ring[0].kill()
        said = await refused_for(fleet.servers[1], "STORE_UNAVAILABLE")
        assert said.code is grpc.StatusCode.UNAVAILABLE
        assert said.retry_after_s is not None
        for server in fleet.servers:
            await asyncio.to_thread(server.wait_health, "", NOT_SERVING, FOUND_OUT_WITHIN_S)
        for node in ring[:2]:
            node.start()
        await asyncio.to_thread(wait_ring_ready, ring)
        await load.acknowledged(100)  # nobody helped
    assert load.history.refusals["STORE_UNAVAILABLE"] > 0


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_nodes_are_restarted_one_after_the_other(fleet: RingFleet) -> None:
    async with (
        fleet.under_load("f12-rolling") as load,
        callers_who_must_not_notice(*fleet.addresses) as callers,
    ):
        for node in fleet.ring:
            pid = node.pid
            node.stop()
            await callers.everybody_adds()
            await load.acknowledged(50)
            node.start()
            await asyncio.to_thread(wait_ring_ready, fleet.ring)
            assert node.pid != pid
            await callers.everybody_adds()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_node_that_hangs(fleet: RingFleet) -> None:
    """It keeps its connections and answers nobody. Reads ask a second node; writes that it
    coordinates have an unknown outcome until the driver has given it up."""
    async with fleet.under_load("f12-hangs") as load:
        for node in fleet.ring[:2]:
            node.pause()
            assert not node.answers()
            await load.acknowledged(100, within_s=120)
            node.resume()
            await asyncio.to_thread(eventually, node.answers, bool)
        await load.acknowledged(50)
    errors = [each.total("tally_store_errors_total", store="cassandra") for each in fleet.servers]
    assert sum(errors) > 0


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_all_nodes_are_killed_at_once(fleet: RingFleet) -> None:
    """What was acknowledged is in their commit logs."""
    async with fleet.under_load("f12-all") as load:
        for node in fleet.ring:
            node.kill()
        await refused_for(fleet.servers[0], "STORE_UNAVAILABLE")
        for node in fleet.ring:
            node.start()
        await asyncio.to_thread(wait_ring_ready, fleet.ring)
        await load.acknowledged(100, within_s=120)
