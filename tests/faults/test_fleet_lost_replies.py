"""Answers that get lost: what was asked for is done, and whoever asked does not know.

F2: between a server and Cassandra. The caller is told UNAVAILABLE, never OK. F3: between a client
and a server. In both a retry with the same token, on another server, tells.
"""

import asyncio

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Calls, fresh_counter, refusal, token
from tests.faults.proxy import Proxy, Way, where
from tests.faults.ring_fleet import RingFleet

AHEAD_S = 1.0
ADDS = 3


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_lost_between_server_and_store(fleet: RingFleet) -> None:
    """F2: the write is applied although its outcome is unknown."""
    deaf, other = fleet.servers
    counter = fresh_counter()

    def add_without_answers() -> None:
        adds = [token(age_s=-AHEAD_S) for _ in range(ADDS)]
        with Calls(deaf.address) as calls, Calls(other.address) as elsewhere:
            deaf.cassandra.drop(Way.RESPONSES)
            for add in adds:
                said = refusal(lambda add=add: calls.add("quotas", counter, 1, add))
                assert (said.code, said.reason) == (
                    grpc.StatusCode.UNAVAILABLE,
                    "STORE_UNAVAILABLE",
                )
            assert deaf.cassandra.seen["drop responses"] > 0
            # The first one went out before the server could know that nobody answers.
            status = elsewhere.folded_status("quotas", counter, adds[0])
            assert status == pb.TOKEN_STATUS_APPLIED
            assert elsewhere.add("quotas", counter, 1, adds[0]).duplicate
            deaf.cassandra.heal()
            settled = [elsewhere.folded_status("quotas", counter, add) for add in adds]
            applied = settled.count(pb.TOKEN_STATUS_APPLIED)
            assert elsewhere.accurate("quotas", counter) == applied

    async with fleet.under_load("f2") as load:
        await asyncio.to_thread(add_without_answers)
    assert load.history.refusals["STORE_UNAVAILABLE"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_lost_between_worker_and_store(fleet: RingFleet) -> None:
    """F2: closes, fold records, rollups and watermarks whose writes had an unknown outcome."""
    async with fleet.under_load("f2-worker") as load:
        for worker in (*fleet.workers, *fleet.workers):
            worker.cassandra.drop(Way.RESPONSES)
            await load.acknowledged(50)
            worker.cassandra.heal()
            await load.acknowledged(20)
    for worker in fleet.workers:
        assert worker.cassandra.seen["drop responses"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_lost_between_client_and_server(fleet: RingFleet) -> None:
    """F3."""
    one, other = fleet.servers
    network = Proxy(where(one.address))
    counter = fresh_counter()

    def add_without_answers() -> None:
        with Calls(network.address) as calls, Calls(other.address) as elsewhere:
            calls.add("quotas", counter, 1, token())
            network.drop(Way.RESPONSES)
            adds = [token(age_s=-AHEAD_S) for _ in range(ADDS)]
            unanswered = [
                calls.counters.AddCount.future(
                    pb.AddCountRequest(
                        namespace="quotas", counter_name=counter, delta=1, idempotency_token=add
                    ),
                    timeout=1,
                )
                for add in adds
            ]
            for each in unanswered:
                assert each.exception().code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert network.seen["drop responses"] > 0
            for add in adds:
                elsewhere.add("quotas", counter, 1, add)
            assert elsewhere.accurate("quotas", counter) == 1 + ADDS
            network.heal()
            calls.add("quotas", counter, 1, adds[0])
            assert elsewhere.accurate("quotas", counter) == 1 + ADDS

    try:
        async with fleet.under_load("f3", servers=[network.address, other.address]) as load:
            await asyncio.to_thread(add_without_answers)
            for _ in range(2):
                network.drop(Way.RESPONSES)
                await load.acknowledged(50)
                network.heal()
                await load.acknowledged(50)
        assert load.history.refusals[""] > 0  # nobody said why: no answer came
    finally:
        network.close()
