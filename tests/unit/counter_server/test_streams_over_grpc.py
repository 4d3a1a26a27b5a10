"""Streams over a real server, with the generated stub: what the network adds to them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from counter.clock import ManualClock
from counter.metrics import CALL_ERRORS, CALLS_IN_FLIGHT
from counter.namespaces import EMPTY, Definition, Strategy, next_snapshot
from counter.rpc.server import RpcServer
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter_server.app import SERVICE, CounterServer, Stores
from counter_server.commit import CommitLimits
from counter_server.streams import BATCHES_UNANSWERED_MAX, Streams
from tests.calls import refusal_of
from tests.stores import memory
from tests.tampered import Scripted
from tests.unit.counter_server.parts import PLATFORM

IN_FLIGHT = CALLS_IN_FLIGHT.at(rpc="StreamAddCount")
CUT_OFF = CALL_ERRORS.at(rpc="StreamAddCount", reason="ANSWERS_UNREAD")
NAME = "x" * 250


@dataclass
class Running:
    rpc: RpcServer
    script: Scripted
    address: str
    stub: Any
    clock: ManualClock

    def batch(self, number: int, size: int = 1) -> pb.StreamAddCountRequest:
        return pb.StreamAddCountRequest(
            sequence_number=number,
            namespace="plays",
            columns=pb.AddCountColumns(
                counter_name=[NAME] * size,
                delta=[1] * size,
                token=[f"{number}-{at}" for at in range(size)],
                generation_time_ns=[self.clock.now_ns()] * size,
            ),
        )

    async def count(self) -> int:
        request = pb.GetCountRequest(namespace="plays", counter_name=NAME)
        return int((await self.stub.GetCount(request)).value.count)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the server cut off callers that do not read, and soon."""
    monkeypatch.setattr("counter_server.app.Streams", partial(Streams, unread_s_max=0.5))


@pytest.fixture
async def running(clock: ManualClock) -> AsyncIterator[Running]:
    script, rpc = Scripted(), RpcServer()
    async with memory(Path(), clock) as stores, AsyncExitStack() as stack:
        server = CounterServer(
            Stores(
                event_log=script.wrap("event_log", stores.event_log),
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
        )
        definition = Definition(name="plays", strategy=Strategy.ACCURATE)
        server.switch(next_snapshot(EMPTY, [definition], applied_at_ns=0))
        await server.start(rpc, stack)
        port = await rpc.start("127.0.0.1:0", (SERVICE,))
        stack.push_async_callback(rpc.stop, 0)
        address = f"127.0.0.1:{port}"
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        yield Running(rpc, script, address, pb_grpc.CounterServiceStub(channel), clock)


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (what is waited for is a metric)
            await asyncio.sleep(0.001)


async def test_batches_and_answers_cross_on_the_way(running: Running) -> None:
    stream = running.stub.StreamAddCount()
    for number in range(1, 4):
        await stream.write(running.batch(number))
        answer = await stream.read()
        assert (answer.sequence_number, answer.all_added) == (number, True)
    await stream.write(running.batch(10, size=500))
    await stream.done_writing()
    answer = await stream.read()
    assert (answer.sequence_number, answer.all_added) == (10, True)
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK
    assert await running.count() == 503


async def test_a_bad_batch_ends_the_stream_with_a_rich_error(running: Running) -> None:
    stream = running.stub.StreamAddCount()
    await stream.write(running.batch(2))
    await stream.write(running.batch(2))
    assert (await stream.read()).all_added
    with pytest.raises(grpc.RpcError) as raised:
        await stream.read()
    refused = refusal_of(raised.value)
    assert (refused.code, refused.reason, refused.fields) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "SEQUENCE_NOT_RISING",
        ["sequence_number"],
    )


async def test_the_caller_is_held_back(running: Running) -> None:
    """It can write only what the server reads and what fits into the buffers between them."""
    written = running.script.hold("event_log.append")
    stream = running.stub.StreamAddCount()
    batches, sent = 400, 0

    async def send() -> None:
        nonlocal sent
        for number in range(batches):
            await stream.write(running.batch(number, size=200))  # about 60 kB
            sent += 1
        await stream.done_writing()

    sending = asyncio.create_task(send())
    await until(lambda: IN_FLIGHT.value == BATCHES_UNANSWERED_MAX)
    held_at = -1
    while held_at != sent:  # until no more goes out
        held_at = sent
        await asyncio.sleep(0.2)
    assert sent < batches
    assert IN_FLIGHT.value == BATCHES_UNANSWERED_MAX
    written.set()
    answers = [each.all_added async for each in stream]
    await sending
    assert answers == [True] * batches
    assert await running.count() == batches * 200


@pytest.mark.usefixtures("impatient")
async def test_a_caller_that_never_reads_is_held_back_and_cut_off(running: Running) -> None:
    """With answers that are long: the buffers on the way take some, and then no more."""
    stream = running.stub.StreamAddCount()
    batches, sent, cut_off = 1_000, 0, CUT_OFF.value

    async def send() -> None:
        nonlocal sent
        for number in range(batches):
            batch = running.batch(number, size=1_000)
            batch.namespace = "playz"  # each add is answered with that
            batch.columns.counter_name[:] = ["a"] * 1_000
            await stream.write(batch)
            sent += 1

    sending = asyncio.create_task(send())
    await until(lambda: CUT_OFF.value > cut_off)
    assert sent < batches
    with pytest.raises(grpc.RpcError) as raised:
        [each async for each in stream]  # it reads at last
    refused = refusal_of(raised.value)
    with pytest.raises((grpc.RpcError, asyncio.InvalidStateError)):
        await sending
    assert (refused.code, refused.reason) == (grpc.StatusCode.UNAVAILABLE, "ANSWERS_UNREAD")


async def test_a_caller_that_cancels(running: Running) -> None:
    written = running.script.hold("event_log.append")
    with capture_logs() as logs:
        stream = running.stub.StreamAddCount()
        for number in range(3):
            await stream.write(running.batch(number))
        await until(lambda: IN_FLIGHT.value == 3)
        stream.cancel()
        await until(lambda: IN_FLIGHT.value == 0)
        written.set()
    assert await running.count() == 3
    assert logs == []


async def test_a_connection_that_breaks(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """With answers on their way to nobody."""
    written = running.script.hold("event_log.append")
    async with grpc.aio.insecure_channel(
        running.address, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        stream = pb_grpc.CounterServiceStub(channel).StreamAddCount()
        for number in range(3):
            await stream.write(running.batch(number))
        await until(lambda: IN_FLIGHT.value == 3)
        written.set()
    await until(lambda: IN_FLIGHT.value == 0)
    assert await running.count() == 3
    assert caplog.records == []


async def test_a_stopping_server_ends_streams_with_ok(running: Running) -> None:
    written = running.script.hold("event_log.append")
    idle, stream = running.stub.StreamAddCount(), running.stub.StreamAddCount()
    await idle.write(running.batch(1))
    await stream.write(running.batch(2))
    await until(lambda: IN_FLIGHT.value == 2)
    stopping = asyncio.create_task(running.rpc.stop(30))
    await running.rpc.stopping.wait()
    written.set()
    for each in (idle, stream):
        assert [answer.all_added async for answer in each] == [True]
        assert await each.code() is grpc.StatusCode.OK
    await stopping  # long before its 30 s are over, or the test times out


async def test_garbage_ends_the_stream_and_nothing_else(running: Running) -> None:
    async with grpc.aio.insecure_channel(running.address) as channel:
        garbage = channel.stream_stream("/counter.v1.CounterService/StreamAddCount")()
        await garbage.write(running.batch(1).SerializeToString())
        await garbage.write(b"\xff\xff\xff\xff")
        assert pb.StreamAddCountResponse.FromString(await garbage.read()).all_added
        with pytest.raises(grpc.RpcError) as raised:
            await garbage.read()
    assert refusal_of(raised.value).reason == "INTERNAL"
    assert await running.count() == 1
