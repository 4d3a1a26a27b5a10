"""F13: programs that are cut off from Cassandra, alone: with a reset, and in silence.

A server that cannot reach its store acknowledges nothing and says so, and the other one serves on.
Shards of a worker that is cut off are folded by the other one. Nobody has to help afterwards.
"""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.calls import Calls, eventually, refusal, token
from tests.faults.ring_fleet import Member, RingFleet
from tests.fleet import CONVERGENCE_S, LATE_S
from tests.load import under_load

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
FOUND_OUT_WITHIN_S = 60.0


def assert_refuses(server: Member) -> None:
    """Nothing is acknowledged, and callers are told why, with a time to come back."""
    with Calls(server.address) as calls:
        said = eventually(
            lambda: refusal(lambda: calls.add("plays", "cut off", 1, token())),
            lambda said: said.reason == "STORE_UNAVAILABLE",
            within_s=FOUND_OUT_WITHIN_S,
        )
    assert said.code is grpc.StatusCode.UNAVAILABLE
    assert said.retry_after_s is not None
    server.wait_health("", NOT_SERVING, FOUND_OUT_WITHIN_S)


@pytest.mark.timeout(300)
async def test_a_server_that_is_cut_off(fleet: RingFleet) -> None:
    cut_off = fleet.servers[0]
    async with under_load(*fleet.addresses, late_s=LATE_S, name="f13", pause_s=0.05) as load:
        await load.acknowledged(200)
        cut_off.cassandra.cut()
        await asyncio.to_thread(assert_refuses, cut_off)
        assert cut_off.cassandra.seen["cut"] > 0
        await load.acknowledged(200)  # by the other one
        cut_off.cassandra.heal()
        await asyncio.to_thread(cut_off.wait_ready)
        cut_off.cassandra.drop()
        await asyncio.to_thread(assert_refuses, cut_off)
        assert cut_off.cassandra.seen["drop requests"] > 0
        cut_off.cassandra.heal()
        await asyncio.to_thread(cut_off.wait_ready)
        await load.finish(converges_s=CONVERGENCE_S, worker=fleet.workers[0].address)
