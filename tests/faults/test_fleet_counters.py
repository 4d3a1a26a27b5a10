"""Counters that are hard to count. F18: cleared all the time. F19: one that has all the load, and
very many with one add each."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from tally import CounterClient
from tests.faults.injected import Deed
from tests.faults.ring_fleet import RingFleet
from tests.faults.steps import Step
from tests.load import open_channel

MANY = 100_000
PER_CALL = 1_000
ADDED_WITHIN_S = 600.0
READ_WITHIN_S = 300.0
MEMORY_MIB_MAX = 700


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_clears_among_adds_and_folds(fleet: RingFleet) -> None:
    """F18: four counters, cleared by everybody, with copies of the clears on both servers."""
    worker = fleet.workers[0]
    async with fleet.under_load("f18", counters=4, clears=0.2) as load:
        hits = len(worker.faults.hits())
        worker.faults.kill_at(Step.BETWEEN_ROLLUPS)
        hit = await asyncio.to_thread(worker.faults.wait_hit, hits + 1, within_s=120)
        assert (hit.step, hit.deed) == (Step.BETWEEN_ROLLUPS, Deed.KILL)
        await asyncio.to_thread(worker.start)
        await load.acknowledged(100)
    history = load.history
    clears = [event for event, delta in history.deltas.items() if delta is None]
    assert len(clears) > 100
    sent = [call.token for call in history.calls if call.is_write and call.delta is None]
    assert len(sent) > len(clears)  # some of them more than once


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_one_hot_counter(fleet: RingFleet) -> None:
    """F19: as fast as two servers can, through the kill of one of them and of a worker."""
    async with fleet.under_load("f19-hot", counters=2, pause_s=0.0) as load:
        await load.acknowledged(500)
        fleet.servers[0].kill()
        fleet.workers[0].kill()
        await load.acknowledged(300)
        await fleet.start(fleet.servers[0], fleet.workers[0])
        await load.acknowledged(1_000, within_s=120)
    assert len({(each.namespace, each.counter) for each in load.history.deltas}) <= 2 + 16


def pieces(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), PER_CALL):
        yield names[start : start + PER_CALL]


async def add_one_to_each(names: Sequence[str], address: str) -> None:
    """By the SDK, which retries; returns when every one of them is acknowledged."""
    client = CounterClient(address, namespace="large", timeout_s=ADDED_WITHIN_S)
    async with client:
        for some in pieces(names):
            await asyncio.gather(*(client.add(name) for name in some))


async def not_one(address: str, names: Sequence[str]) -> list[str]:
    """Those that do not read exactly 1, by the cheap path, in the end."""
    wrong = list(names)
    async with open_channel(address) as channel, asyncio.timeout(READ_WITHIN_S):
        stub = pb_grpc.CounterServiceStub(channel)
        while wrong:
            left: list[str] = []
            for some in pieces(wrong):
                request = pb.BatchGetCountRequest(namespace="large", counter_name=some)
                values = (await stub.BatchGetCount(request, timeout=60)).values
                assert all(value.count <= 1 for value in values), "counted twice"
                left += [name for name, value in zip(some, values, strict=True) if value.count != 1]
            if len(left) == len(wrong):
                await asyncio.sleep(0.5)
            wrong = left
    return wrong


@pytest.mark.long
@pytest.mark.timeout(1_200)
async def test_very_many_counters_with_one_add_each(fleet: RingFleet) -> None:
    """F19: through the kill of a worker in the middle of what it folds, and of a server."""
    names = [f"one-of-many-{number}" for number in range(MANY)]
    half = MANY // 2
    worker, server = fleet.workers[0], fleet.servers[0]
    hits = len(worker.faults.hits())
    adding = [
        asyncio.create_task(add_one_to_each(part, address))
        for part, address in zip((names[:half], names[half:]), fleet.addresses, strict=True)
    ]
    worker.faults.kill_at(Step.BETWEEN_ROLLUPS, nth=2)
    hit = await asyncio.to_thread(worker.faults.wait_hit, hits + 1, within_s=120)
    assert hit.deed is Deed.KILL
    server.kill()
    await fleet.start(server, worker)
    await asyncio.gather(*adding)
    for address in fleet.addresses:
        assert await not_one(address, names) == []
    for member in (*fleet.servers, *fleet.workers):
        assert member.memory_mib < MEMORY_MIB_MAX
