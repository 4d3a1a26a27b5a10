"""SharedRead: each caller gets a read that began after its call, and readers take turns."""

import asyncio

import pytest

from counter.storage.cassandra.shared_read import SharedRead


class Store:
    def __init__(self) -> None:
        self.value = 0
        self.reads = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def read(self) -> int:
        self.reads += 1
        seen, error = self.value, self.error
        await self.gate.wait()
        if error is not None:
            raise error
        return seen


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_calls_while_a_read_is_under_way_gets_the_next_one() -> None:
    store = Store()
    shared = SharedRead(store.read)
    first = [asyncio.create_task(shared()) for _ in range(10)]
    await turns()
    store.value = 1  # written after the first read began: it may not answer those who knew of it
    later = [asyncio.create_task(shared()) for _ in range(10)]
    await turns()
    assert store.reads == 1
    store.gate.set()
    assert await asyncio.gather(*first) == [0] * 10
    assert await asyncio.gather(*later) == [1] * 10
    assert store.reads == 2


async def test_an_error_goes_to_those_who_shared_the_read_and_to_nobody_else() -> None:
    store = Store()
    shared = SharedRead(store.read)
    store.error = RuntimeError("away")
    first = [asyncio.create_task(shared()) for _ in range(3)]
    await turns()
    store.error = None
    later = asyncio.create_task(shared())
    await turns()
    store.gate.set()
    outcomes = await asyncio.gather(*first, return_exceptions=True)
    assert [str(each) for each in outcomes] == ["away"] * 3
    assert await later == 0


async def test_a_caller_that_goes_away_takes_nothing_from_the_others() -> None:
    store = Store()
    shared = SharedRead(store.read)
    gone, stays = asyncio.create_task(shared()), asyncio.create_task(shared())
    await turns()
    gone.cancel()
    await turns()
    store.gate.set()
    assert await stays == 0
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await shared() == 0  # and the next call reads again
    assert store.reads == 2
