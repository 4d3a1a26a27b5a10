"""F11: memcached is restarted, flushed, full, slow and silent, and holds what nobody wrote.

Reads stay honest (I5): the load reads all the time, and each answer is checked. And the store does
not have to answer for the cache: however many ask for a counter that is in no cache, it is read
about once.
"""

import asyncio

import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from tests.calls import Calls, eventually, fresh_counter, token
from tests.faults.memcached_spoiler import Spoiler
from tests.faults.ring_fleet import Member, RingFleet
from tests.load import open_channel

READS = 0.5
CALLERS = 200
ROUNDS = 5


def shared_hits(fleet: RingFleet) -> float:
    return sum(
        each.total("tally_cache_lookups_total", layer="shared", result="hit")
        for each in fleet.servers
    )


async def served_from_memcached(fleet: RingFleet) -> None:
    """Waits until it is in use again: what happens to a cache that nobody uses is no fault."""
    before = shared_hits(fleet)
    await asyncio.to_thread(eventually, lambda: shared_hits(fleet), lambda hits: hits > before)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_memcached_is_restarted_flushed_and_full(fleet: RingFleet) -> None:
    spoiler = Spoiler(fleet.memcached)
    async with fleet.under_load("f11", reads=READS) as load:
        await served_from_memcached(fleet)
        fleet.memcached.kill()
        await load.acknowledged(50)
        fleet.memcached.start()
        await served_from_memcached(fleet)
        for _ in range(10):
            await asyncio.to_thread(spoiler.flush)
            await load.acknowledged(5)
        await served_from_memcached(fleet)
        for _ in range(3):
            await asyncio.to_thread(spoiler.crowd_out)
            await load.acknowledged(5)
        await served_from_memcached(fleet)
    assert spoiler.done == {"flushed": 10, "crowded out": 3}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_memcached_holds_what_nobody_wrote(fleet: RingFleet) -> None:
    spoiler = Spoiler(fleet.memcached)
    kinds = {"old", "other", "cut short", "garbage", "long"}
    async with fleet.under_load("f11-spoilt", reads=READS) as load:
        await served_from_memcached(fleet)
        for _ in range(100):
            await asyncio.to_thread(spoiler.spoil)
            await load.acknowledged(3)
            if all(spoiler.done[kind] >= 10 for kind in kinds):
                break
        await served_from_memcached(fleet)
    assert all(spoiler.done[kind] >= 10 for kind in kinds), spoiler.done


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_memcached_is_slow_silent_and_cut_off(fleet: RingFleet) -> None:
    """For one server alone, so that the two have different views of the cache."""
    one = fleet.servers[0]
    async with fleet.under_load("f11-slow", reads=READS) as load:
        for fault in ("delay", "hold", "drop", "cut"):
            await served_from_memcached(fleet)
            if fault == "delay":
                one.memcached.delay(0.5)
            else:
                getattr(one.memcached, fault)()
            await load.acknowledged(50)
            assert one.memcached.seen[fault] > 0
            one.memcached.heal()
        await served_from_memcached(fleet)


def store_reads(server: Member) -> float:
    return server.total("tally_store_seconds_count", store="cassandra", statement="read_rollups")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["flushed", "silent", "away"])
async def test_many_readers_of_what_no_cache_has(fleet: RingFleet, fault: str) -> None:
    """Hundreds of callers ask for one counter at the same moment, again and again."""
    server, spoiler = fleet.servers[0], Spoiler(fleet.memcached)
    counter = fresh_counter()
    request = pb.GetCountRequest(namespace="plays", counter_name=counter)
    with Calls(server.address) as calls:
        calls.add("plays", counter, 7, token())
        eventually(lambda: calls.get("plays", counter).count, lambda count: count == 7)
    if fault == "silent":
        server.memcached.hold()
    elif fault == "away":
        server.memcached.cut()
    async with open_channel(server.address) as channel:
        stub = pb_grpc.CounterServiceStub(channel)

        async def read() -> int:
            answer = await stub.GetCount(request, timeout=60)
            return int(answer.value.count)

        await asyncio.gather(*(read() for _ in range(CALLERS)))
        before = store_reads(server)
        for _ in range(ROUNDS):
            if fault == "flushed":
                await asyncio.to_thread(spoiler.flush)
            assert set(await asyncio.gather(*(read() for _ in range(CALLERS)))) == {7}
            # Until this server has forgotten it too.
            await asyncio.sleep(0.1)
        reads = store_reads(server) - before
    print(f"{reads} reads of the store for {ROUNDS * CALLERS} calls")
    assert reads > 0
    assert reads < ROUNDS * CALLERS / 20
