"""The fleet's cache: slow, forgetful, and now and then it shows what it held before."""

import asyncio
from collections.abc import Sequence
from random import Random

from counter.rollups import CachedCount
from counter.storage.ports import CounterKey
from tests.simulation.loop import VirtualLoop
from tests.simulation.witness import Witness


class SharedEntries:
    """The memory of the cache's servers, for all machines."""

    def __init__(self, loop: VirtualLoop, chance: Random, witness: Witness) -> None:
        self.loop = loop
        self.chance = chance
        self.witness = witness
        self.entries: dict[CounterKey, tuple[CachedCount, float]] = {}
        self.older: dict[CounterKey, CachedCount] = {}
        self.lost_share = 0.0
        self.older_share = 0.0

    def flush(self) -> None:
        self.entries.clear()
        self.witness.counted["caches flushed"] += 1


class SimulatedCountCache:
    """A client of it, on one machine."""

    def __init__(self, shared: SharedEntries) -> None:
        self._shared = shared

    async def get(self, keys: Sequence[CounterKey]) -> list[CachedCount | None]:
        shared = self._shared
        await self._travel()
        found: list[CachedCount | None] = []
        for key in keys:
            count, ends_s = shared.entries.get(key, (None, 0.0))
            if ends_s <= shared.loop.time() or shared.chance.random() < shared.lost_share:
                count = None
            elif key in shared.older and shared.chance.random() < shared.older_share:
                count = shared.older[key]
                shared.witness.counted["older values in the cache"] += 1
            found.append(count)
        await self._travel()
        return found

    async def put(self, items: Sequence[tuple[CounterKey, CachedCount]], *, ttl_ms: int) -> None:
        shared = self._shared
        await self._travel()
        for key, count in items:
            present = shared.entries.get(key)
            if shared.chance.random() < shared.lost_share:
                continue
            if present is not None:
                if present[0].complete_through_ns > count.complete_through_ns:
                    continue
                shared.older[key] = present[0]
            shared.entries[key] = (count, shared.loop.time() + ttl_ms / 1_000)
        await self._travel()

    async def _travel(self) -> None:
        await asyncio.sleep(self._shared.chance.random() * 0.002)
