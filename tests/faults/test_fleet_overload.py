"""F20: several times the load that a server can take, on a store that has become slow.

What is too much is refused, with a time to come back, before anything of it is written. The rest is
acknowledged, and counted exactly; memory is bounded, and when it is over nothing is left of it.
"""

import asyncio
from collections import Counter

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from tests.calls import Calls, eventually, fresh_counter, refusal_of, token
from tests.faults.ring_fleet import RingFleet
from tests.load import open_channel

BATCH = 5_000
BATCHES = 120
EVERY_S = 0.05
SLOW_S = 0.2
MEMORY_MIB_MAX = 1_000


class Flood:
    """Batches that are sent at a given rate, whatever becomes of those before (open loop)."""

    def __init__(self, stub: pb_grpc.CounterServiceStub, counter: str) -> None:
        self._stub = stub
        self._counter = counter
        self.outcomes: Counter[str] = Counter()  # adds, by what was said of them
        self.ok_in: list[int] = []  # the numbers of batches that were taken

    async def run(self) -> None:
        sending = []
        for number in range(BATCHES):
            sending.append(asyncio.create_task(self._send(number)))
            await asyncio.sleep(EVERY_S)
        await asyncio.gather(*sending)

    async def _send(self, number: int) -> None:
        items = [
            pb.AddCountItem(counter_name=self._counter, delta=1, idempotency_token=token())
            for _ in range(BATCH)
        ]
        request = pb.BatchAddCountRequest(namespace="quotas", items=items)
        try:
            answer = await self._stub.BatchAddCount(request, timeout=60)
        except grpc.aio.AioRpcError as error:
            reason = error.code().name
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                said = refusal_of(error)
                assert said.retry_after_s is not None
                reason = said.reason
            self.outcomes[reason] += BATCH
            return
        self.ok_in.append(number)
        self.outcomes.update(each.reason or "OK" for each in answer.outcomes)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_more_than_a_server_can_take_on_a_slow_store(fleet: RingFleet) -> None:
    server, other = fleet.servers
    counter = fresh_counter()
    async with fleet.under_load("f20") as load, open_channel(server.address) as channel:
        flood = Flood(pb_grpc.CounterServiceStub(channel), counter)
        server.cassandra.delay(SLOW_S)
        await flood.run()
        assert server.cassandra.seen["delay"] > 0
        assert server.memory_mib < MEMORY_MIB_MAX
        server.cassandra.heal()
        await asyncio.to_thread(
            eventually,
            lambda: server.total("tally_events_waiting"),
            lambda waiting: waiting < BATCH,
        )
        await load.acknowledged(100)
    outcomes = flood.outcomes
    print(dict(outcomes))
    assert outcomes["OVERLOADED"] > 0
    assert outcomes["OK"] > 0
    assert max(flood.ok_in) > BATCHES / 2  # it goes on taking what it can
    # Refused is not counted, acknowledged is, and of the rest nobody said.
    refused = outcomes["OVERLOADED"] + outcomes["TOKEN_EXPIRED"]
    unknown = outcomes.total() - outcomes["OK"] - refused
    with Calls(other.address) as calls:
        count = await asyncio.to_thread(calls.accurate, "quotas", counter)
    assert outcomes["OK"] <= count <= outcomes["OK"] + unknown
