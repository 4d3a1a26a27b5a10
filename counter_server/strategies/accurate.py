"""accurate: a read includes every add that was acknowledged before it."""

from collections.abc import Sequence

from counter_server.strategies.logged import Logged
from counter_server.strategies.strategy import Freshness, Value


class Accurate(Logged):
    async def read(self, counters: Sequence[str], freshness: Freshness) -> list[Value]:
        return await self.read_accurately(counters, freshness)
