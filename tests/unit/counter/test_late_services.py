"""A server that is bound before its services are there."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from counter.rpc.server import RpcServer
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter.v1 import rollup_service_pb2 as rollup_pb
from counter.v1 import rollup_service_pb2_grpc as rollup_grpc
from tests.calls import refusal_of

COUNTERS = "counter.v1.CounterService"


class Counters(pb_grpc.CounterServiceServicer):
    async def GetCount(self, request: pb.GetCountRequest, context: Any) -> pb.GetCountResponse:
        return pb.GetCountResponse(value=pb.CountValue(count=7))


@pytest.fixture
async def rpc() -> AsyncIterator[RpcServer]:
    server = RpcServer()
    yield server
    await server.stop(0)


async def connect(rpc: RpcServer, *services: str) -> grpc.aio.Channel:
    port = await rpc.start("127.0.0.1:0", services)
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")


async def test_calls_are_told_what_is_awaited_until_the_service_is_there(rpc: RpcServer) -> None:
    async with await connect(rpc, COUNTERS) as channel:
        counters = pb_grpc.CounterServiceStub(channel)
        rpc.late.awaited = "waiting for the moon"
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await counters.GetCount(pb.GetCountRequest(), timeout=10)
        refusal = refusal_of(raised.value)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
        assert refusal.message == "not ready: waiting for the moon"
        assert refusal.retry_after_s == 1
        pb_grpc.add_CounterServiceServicer_to_server(Counters(), rpc.services)
        answer = await counters.GetCount(pb.GetCountRequest(), timeout=10)
        assert answer.value.count == 7
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary(f"/{COUNTERS}/NoSuchMethod")(b"", timeout=10)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stream_is_refused_as_well(rpc: RpcServer) -> None:
    async with await connect(rpc, COUNTERS) as channel:
        stream = pb_grpc.CounterServiceStub(channel).StreamAddCount(timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert refusal_of(raised.value).reason == "NOT_READY"


async def test_a_service_that_never_comes_is_unimplemented(rpc: RpcServer) -> None:
    async with await connect(rpc, COUNTERS) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await rollup_grpc.RollupServiceStub(channel).GetRollupStatus(
                rollup_pb.GetRollupStatusRequest(), timeout=10
            )
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_services_that_are_there_before_the_start(rpc: RpcServer) -> None:
    pb_grpc.add_CounterServiceServicer_to_server(Counters(), rpc.services)
    async with await connect(rpc, COUNTERS) as channel:
        counters = pb_grpc.CounterServiceStub(channel)
        assert (await counters.GetCount(pb.GetCountRequest(), timeout=10)).value.count == 7
        with pytest.raises(grpc.aio.AioRpcError) as raised:  # which Counters does not have
            await channel.unary_unary(f"/{COUNTERS}/NoSuchMethod")(b"", timeout=10)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
