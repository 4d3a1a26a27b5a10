"""best_effort: very cheap, may lose counts; nothing is promised but the answer itself.

Calls that come together share their requests to the counters: see `coalesced_counters`.
"""

from collections.abc import Sequence
from typing import ClassVar

from counter.errors import TallyError, Unsupported
from counter.events import Event
from counter.metrics import BEST_EFFORT_READS
from counter.namespaces import Namespace
from counter.storage.ports import BestEffortCounters
from counter_server.late import TokenStatus
from counter_server.strategies.coalesced_counters import CoalescedCounters
from counter_server.strategies.strategy import ANY_FRESHNESS, Freshness, Outcome, Source, Value


class BestEffort:
    needs: ClassVar[frozenset[str]] = frozenset({"best_effort_counters"})

    def __init__(self, namespace: Namespace, counters: BestEffortCounters) -> None:
        self.namespace = namespace
        self._counters = CoalescedCounters(namespace, counters)
        self._reads = BEST_EFFORT_READS.at()

    async def add(self, events: Sequence[Event], *, wait_s: float) -> list[Outcome]:
        return await self._counters.add(events)

    async def add_and_read(self, event: Event, *, wait_s: float) -> tuple[bool, Value]:
        applied = await self._counters.add_and_read(event)
        if isinstance(applied, TallyError):
            raise applied
        count, duplicate = applied
        return duplicate, _value(count)

    async def read(self, counters: Sequence[str], freshness: Freshness) -> list[Value]:
        if freshness != ANY_FRESHNESS:
            raise Unsupported(
                f"namespace {self.namespace.name} is best_effort, which cannot tell how fresh a "
                "count is: read without max_staleness and at_least, or pick another strategy"
            )
        self._reads.add(len(counters))
        return [_value(count) for count in await self._counters.read(counters)]

    async def token_status(self, event: Event) -> TokenStatus:
        raise Unsupported(
            f"namespace {self.namespace.name} is best_effort, which keeps no tokens: "
            "pick another strategy if their outcome matters"
        )


def _value(count: int) -> Value:
    return Value(count, None, 0, 0, Source.SHARED_CACHE)
