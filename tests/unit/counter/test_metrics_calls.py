"""Calls are measured however they end, on a real gRPC server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from counter.errors import NamespaceUnknown
from counter.metrics import CALL_ERRORS, CALL_SECONDS, CALLS_IN_FLIGHT
from counter.rpc.server import RpcServer, answering_errors
from counter.v1 import counter_service_pb2 as pb
from counter.v1.counter_service_pb2_grpc import (
    CounterServiceServicer,
    CounterServiceStub,
    add_CounterServiceServicer_to_server,
)

SERVICE = "counter.v1.CounterService"


class Servicer(CounterServiceServicer):
    """Each namespace ends its calls in another way."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    @answering_errors
    async def GetCount(self, request: pb.GetCountRequest, context: Any) -> pb.GetCountResponse:
        if request.namespace == "unknown":
            raise NamespaceUnknown("there is no such namespace")
        if request.namespace == "bug":
            raise ZeroDivisionError("nobody foresaw this")
        if request.namespace == "slow":
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        return pb.GetCountResponse()


@pytest.fixture
async def served() -> AsyncIterator[tuple[CounterServiceStub, Servicer]]:
    rpc, servicer = RpcServer(), Servicer()
    add_CounterServiceServicer_to_server(servicer, rpc.services)
    port = await rpc.start("127.0.0.1:0", (SERVICE,))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield CounterServiceStub(channel), servicer
    await rpc.stop(0)


def calls(code: str) -> int:
    return sum(CALL_SECONDS.at(rpc="GetCount", code=code).state.counts)


def errors(reason: str) -> int:
    return CALL_ERRORS.at(rpc="GetCount", reason=reason).value


def request(namespace: str) -> pb.GetCountRequest:
    return pb.GetCountRequest(namespace=namespace, counter_name="views")


async def test_a_call_is_counted_once_under_its_status(
    served: tuple[CounterServiceStub, Servicer],
) -> None:
    stub, _ = served
    codes = ("OK", "NOT_FOUND", "INTERNAL", "CANCELLED")
    before = {code: calls(code) for code in codes}
    unknown, internal = errors("NAMESPACE_UNKNOWN"), errors("INTERNAL")
    await stub.GetCount(request("plays"))
    await stub.GetCount(request("plays"))
    for namespace in ("unknown", "bug"):
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetCount(request(namespace))
    made = {code: calls(code) - before[code] for code in codes}
    assert made == {"OK": 2, "NOT_FOUND": 1, "INTERNAL": 1, "CANCELLED": 0}
    assert errors("NAMESPACE_UNKNOWN") == unknown + 1
    assert errors("INTERNAL") == internal + 1


async def test_a_call_is_in_flight_until_its_caller_goes_away(
    served: tuple[CounterServiceStub, Servicer],
) -> None:
    stub, servicer = served
    in_flight = CALLS_IN_FLIGHT.at(rpc="GetCount")
    cancelled = calls("CANCELLED")
    call = stub.GetCount(request("slow"))
    await servicer.waiting.wait()
    assert in_flight.value == 1
    call.cancel()
    await servicer.cancelled.wait()
    await stub.GetCount(request("plays"))
    assert in_flight.value == 0
    assert calls("CANCELLED") == cancelled + 1


async def test_what_must_never_happen_is_shown_before_it_does(
    served: tuple[CounterServiceStub, Servicer],
) -> None:
    stub, _ = served
    await stub.GetCount(request("plays"))
    shown = [labels for labels, _ in CALL_ERRORS.series() if labels["rpc"] == "GetCount"]
    assert {"INTERNAL", "STORE_DAMAGED"} <= {labels["reason"] for labels in shown}
