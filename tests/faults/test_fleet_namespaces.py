"""F16: namespaces change while programs are cut off from Cassandra. Whole versions, or nothing
(I10). Hundreds of changes under load are in tests/acceptance/test_control_plane.py."""

import asyncio

import grpc
import pytest

from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceStub
from tests.admins import all_run, apply, files_of
from tests.calls import Calls, eventually, fresh_counter, refusal, refusal_of, token
from tests.faults.proxy import Way
from tests.faults.ring_fleet import Member, RingFleet
from tests.faults.waiting import refused_for
from tests.load import open_channel
from tests.processes import NAMESPACES

PROGRAMS = 5


def limited_to(largest: int) -> dict[str, str]:
    """The namespaces of all tests, and one more."""
    own = f"namespace: changed\nstrategy: accurate\nmax_delta: {largest}\n"
    return NAMESPACES | {"changed": own}


def largest_delta(server: Member) -> int:
    """Which of the versions the server runs, as callers notice it."""
    with Calls(server.address) as calls:
        for delta in (30, 20, 10):
            try:
                calls.add("changed", fresh_counter(), delta, token())
            except grpc.RpcError:
                continue
            return delta
    return 0


@pytest.mark.timeout(600)
@pytest.mark.long
async def test_a_server_that_is_cut_off_while_namespaces_change(fleet: RingFleet) -> None:
    alone, other = fleet.servers
    async with (
        fleet.under_load("f16-server") as load,
        open_channel(fleet.control_plane.address) as channel,
    ):
        stub = NamespaceServiceStub(channel)
        await all_run(stub, (await apply(stub, limited_to(10))).version, PROGRAMS)
        alone.cassandra.cut()
        await refused_for(alone, "STORE_UNAVAILABLE")
        await apply(stub, limited_to(20))
        last = await apply(stub, limited_to(30))
        await asyncio.to_thread(
            eventually, lambda: largest_delta(other), lambda largest: largest == 30
        )
        with Calls(alone.address) as calls:  # it runs what it knew, and can count nothing with it
            said = refusal(lambda: calls.add("changed", fresh_counter(), 20, token()))
            assert said.reason == "DELTA_TOO_LARGE"
        assert alone.cassandra.seen["cut"] > 0
        alone.cassandra.heal()
        await all_run(stub, last.version, PROGRAMS)
        assert await asyncio.to_thread(largest_delta, alone) == 30
        await load.acknowledged(50)
        await apply(stub, NAMESPACES)


@pytest.mark.timeout(600)
@pytest.mark.long
async def test_a_change_whose_outcome_the_control_plane_does_not_know(fleet: RingFleet) -> None:
    """Its admin is told so. It happened or it did not, for everybody, and asking again tells."""
    plane = fleet.control_plane
    async with fleet.under_load("f16-plane") as load, open_channel(plane.address) as channel:
        stub = NamespaceServiceStub(channel)
        before = await apply(stub, limited_to(10))
        await all_run(stub, before.version, PROGRAMS)
        plane.cassandra.drop(Way.RESPONSES)
        request = pb.ApplyNamespacesRequest(
            files=files_of(limited_to(20)),
            expected_version=before.version,
            author="oncall",
            reason="a test",
            allow_data_loss=True,
        )
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ApplyNamespaces(request, timeout=60)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert plane.cassandra.seen["drop responses"] > 0
        await load.acknowledged(50)
        plane.cassandra.heal()
        await asyncio.to_thread(plane.wait_ready)

        async def applied_again() -> int:
            try:
                return int((await stub.ApplyNamespaces(request, timeout=30)).version.version)
            except grpc.aio.AioRpcError as error:
                said = refusal_of(error)
                assert said.reason in ("VERSION_CONFLICT", "STORE_UNAVAILABLE"), said
                if said.reason == "STORE_UNAVAILABLE":
                    return 0
            listed = await stub.ListNamespaces(pb.ListNamespacesRequest(), timeout=30)
            return int(listed.version)

        version = 0
        while version == 0:
            version = await applied_again()
        assert version == before.version + 1
        await all_run(stub, version, PROGRAMS)
        for server in fleet.servers:
            assert await asyncio.to_thread(largest_delta, server) == 20
        await apply(stub, NAMESPACES)
