"""F24: callers that go away while their call is being worked on. The event is counted or not, its
token tells, and nothing of the call is left in the server."""

import asyncio

import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from tests.calls import Calls, eventually, fresh_counter, token
from tests.faults.ring_fleet import Member, RingFleet
from tests.load import open_channel

CALLS = 200


def left_behind(server: Member) -> tuple[float, float]:
    calls = server.total("tally_calls_in_flight", rpc="AddCount")
    return calls, server.total("tally_events_waiting")


async def nothing_is_left(fleet: RingFleet) -> None:
    for server in fleet.servers:
        await asyncio.to_thread(
            eventually,
            lambda server=server: left_behind(server),
            lambda left: left == (0, 0),
        )


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_calls_that_are_cancelled(fleet: RingFleet) -> None:
    async with fleet.under_load("f24", cancels=0.3) as load:
        while load.history.cancelled < 60:
            await load.acknowledged(20)
    await nothing_is_left(fleet)
    seen = sum(
        each.total("tally_call_seconds_count", rpc="AddCount", code="CANCELLED")
        for each in fleet.servers
    )
    assert seen > 0  # servers were at work on them


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_clients_that_are_gone(fleet: RingFleet) -> None:
    """Connections break with many calls on them, on a store so slow that they are all under way."""
    server, other = fleet.servers
    counter, adds = fresh_counter(), [token(age_s=-1.0) for _ in range(CALLS)]
    async with fleet.under_load("f24-gone"):
        server.cassandra.delay(0.3)
        sending = []
        for start in range(0, CALLS, 20):
            channel = open_channel(server.address)
            stub = pb_grpc.CounterServiceStub(channel)
            sending += [
                asyncio.ensure_future(
                    stub.AddCount(
                        pb.AddCountRequest(
                            namespace="quotas",
                            counter_name=counter,
                            delta=1,
                            idempotency_token=add,
                        )
                    )
                )
                for add in adds[start : start + 20]
            ]
            await asyncio.sleep(0.1)
            await channel.close()
        ends = await asyncio.gather(*sending, return_exceptions=True)
        assert sum(isinstance(each, BaseException) for each in ends) > CALLS / 4
        assert server.cassandra.seen["delay"] > 0
        server.cassandra.heal()

        def applied() -> int:
            with Calls(other.address) as calls:
                settled = [calls.folded_status("quotas", counter, add) for add in adds]
                found = settled.count(pb.TOKEN_STATUS_APPLIED)
                assert calls.accurate("quotas", counter) == found
                return found

        found = await asyncio.to_thread(applied)
        assert found >= sum(not isinstance(each, BaseException) for each in ends)
    await nothing_is_left(fleet)
