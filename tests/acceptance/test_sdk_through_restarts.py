"""A caller of the SDK never sees an unknown outcome while the platform comes back in time."""

import asyncio
import time
from collections import Counter

from tally import Add, CounterClient, SyncCounterClient
from tests.calls import fresh_counter
from tests.processes import TallyProcess

CALLERS = 8
KILLS = 2
SECONDS_BETWEEN_KILLS = 2.5


async def test_every_add_has_an_outcome_and_counts_once(own_tally: TallyProcess) -> None:
    own_tally.start()
    counter = fresh_counter()
    added: Counter[str] = Counter()
    retried = 0
    stop = asyncio.Event()
    async with CounterClient(own_tally.address, namespace="quotas") as client:

        async def call(number: int) -> None:
            nonlocal retried
            while not stop.is_set():
                began_s = time.monotonic()
                if number % 2:
                    await client.add(counter, 3)
                    added[counter] += 3
                else:
                    outcomes = await client.batch_add([Add(counter, 1) for _ in range(20)])
                    assert [each.error for each in outcomes] == [None] * 20
                    added[counter] += 20
                retried += time.monotonic() - began_s > 0.5

        callers = [asyncio.create_task(call(number)) for number in range(CALLERS)]
        for _ in range(KILLS):
            await asyncio.sleep(SECONDS_BETWEEN_KILLS)
            await asyncio.to_thread(own_tally.kill)
            await asyncio.to_thread(own_tally.start)
        await asyncio.sleep(SECONDS_BETWEEN_KILLS)
        stop.set()
        await asyncio.gather(*callers)  # raises what any caller saw
        value = await client.get(counter)
    assert retried >= CALLERS  # the kills were felt
    assert value.count == added[counter]
    assert await asyncio.to_thread(_count, own_tally.address, counter) == added[counter]


def _count(address: str, counter: str) -> int:
    with SyncCounterClient(address, namespace="quotas") as client:
        return client.get(counter).count
