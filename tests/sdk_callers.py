"""Callers of the SDK who add all the time, and may notice nothing of what happens meanwhile."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tally import CounterClient
from tests.calls import fresh_counter


class SdkCallers:
    def __init__(self, addresses: Sequence[str], count: int, timeout_s: float) -> None:
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._counter = fresh_counter("of the SDK")
        self._stop = asyncio.Event()
        self._added = [0] * count
        self._calling = [asyncio.create_task(self._call(number)) for number in range(count)]

    async def _call(self, number: int) -> None:
        address = self._addresses[number % len(self._addresses)]
        client = CounterClient(address, namespace="quotas", timeout_s=self._timeout_s)
        async with client:
            while not self._stop.is_set():
                await client.add(self._counter, 1)
                self._added[number] += 1
                await asyncio.sleep(0.02)

    async def everybody_adds(self) -> None:
        """Waits until each of them has added some more, and nobody has seen an error."""
        wanted = [each + 5 for each in self._added]
        ends = time.monotonic() + self._timeout_s
        while any(seen < least for seen, least in zip(self._added, wanted, strict=True)):
            assert time.monotonic() < ends, f"added {self._added}, not {wanted}"
            done, _ = await asyncio.wait(self._calling, timeout=0.05)
            assert not done, [each.exception() for each in done]

    async def end(self) -> None:
        """No call has failed, and what was added is there, once."""
        self._stop.set()
        ended = await asyncio.gather(*self._calling, return_exceptions=True)
        assert ended == [None] * len(self._calling)
        async with CounterClient(self._addresses[0], namespace="quotas") as client:
            assert (await client.get(self._counter)).count == sum(self._added)


@asynccontextmanager
async def callers_who_must_not_notice(
    *addresses: str, count: int = 4, timeout_s: float = 100.0
) -> AsyncIterator[SdkCallers]:
    """`timeout_s`: of a call, with all its retries. Far more than those need, because tests run on
    machines that are busy with tests."""
    callers = SdkCallers(addresses, count, timeout_s)
    try:
        yield callers
    except BaseException:
        for each in callers._calling:
            each.cancel()
        raise
    await callers.end()
