"""The whole server keeps limits: as many as its share of the fleet's, and says how much it does."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from counter.clock import ManualClock
from counter.errors import SetupError
from counter.namespaces import EMPTY, Definition, Limits, Snapshot, Strategy, next_snapshot
from counter.rpc.server import RpcServer
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter_server.app import SERVICE, CounterServer, Stores
from counter_server.commit import CommitLimits
from tests.calls import refusal_of
from tests.stores import memory
from tests.unit.counter_server.parts import PLATFORM


@pytest.fixture
async def server(clock: ManualClock) -> AsyncIterator[CounterServer]:
    async with memory(Path(), clock) as stores:
        yield CounterServer(
            Stores(
                event_log=stores.event_log,
                ledger=stores.ledger,
                rollup_store=stores.rollup_store,
                history_store=stores.history_store,
                local_cache=stores.count_cache,
                shared_cache=None,
                best_effort_counters=None,
            ),
            platform=PLATFORM,
            layout=await stores.ledger.open_layout(PLATFORM.layout(clock.now_ns())),
            clock=clock,
            limits=CommitLimits(),
            servers_alive=lambda: 1_000_000,
        )


def plays(limits: Limits) -> Snapshot:
    definition = Definition(name="plays", strategy=Strategy.EVENTUAL, limits=limits)
    return next_snapshot(EMPTY, [definition], applied_at_ns=0)


async def test_it_allows_its_share_and_says_how_much_it_does(server: CounterServer) -> None:
    server.switch(plays(Limits(adds_per_s=1)))
    rpc = RpcServer()
    async with AsyncExitStack() as stack:
        await server.start(rpc, stack)
        port = await rpc.start("127.0.0.1:0", (SERVICE,))
        stack.push_async_callback(rpc.stop, 0)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
        stub = pb_grpc.CounterServiceStub(channel)
        request = pb.AddCountRequest(namespace="plays", counter_name="views", delta=1)
        await stub.AddCount(request)
        # However slow the machine: one server of a million needs 12 days to pay that debt.
        with pytest.raises(grpc.RpcError) as caught:
            await stub.AddCount(request)
        [traffic] = server.traffic()
    refused = refusal_of(caught.value)
    assert (refused.code, refused.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "ADDS_LIMITED",
    )
    assert refused.retry_after_s is not None
    assert refused.retry_after_s > 900_000
    assert traffic.namespace == "plays"
    assert traffic.adds_per_s > 0
    assert traffic.limited_per_s > 0
    assert traffic.counters is None


async def test_a_pattern_that_cannot_be_read_is_found_before_the_switch(
    server: CounterServer,
) -> None:
    with pytest.raises(SetupError, match="namespace plays"):
        server.check(plays(Limits(names="(")))
    server.check(plays(Limits(names="[(]")))
    assert server.traffic() == ()
