"""best_effort: very cheap, may lose counts; nothing is promised but the answer itself."""

from collections.abc import Sequence
from typing import ClassVar

from counter.errors import TallyError, Unsupported
from counter.events import Event
from counter.metrics import BEST_EFFORT_ADDS, BEST_EFFORT_READS
from counter.namespaces import Namespace
from counter.storage.ports import BestEffortAdd, BestEffortCounters, BestEffortOutcome
from counter_server.late import TokenStatus
from counter_server.strategies.strategy import ANY_FRESHNESS, Freshness, Outcome, Source, Value


class BestEffort:
    needs: ClassVar[frozenset[str]] = frozenset({"best_effort_counters"})

    def __init__(self, namespace: Namespace, counters: BestEffortCounters) -> None:
        self.namespace = namespace
        self._counters = counters
        self._counted = BEST_EFFORT_ADDS.at(result="counted")
        self._duplicates = BEST_EFFORT_ADDS.at(result="duplicate")
        self._reads = BEST_EFFORT_READS.at()

    async def add(self, events: Sequence[Event], *, wait_s: float) -> list[Outcome]:
        applied = await self._apply(events)
        return [each if isinstance(each, TallyError) else each[1] for each in applied]

    async def add_and_read(self, event: Event, *, wait_s: float) -> tuple[bool, Value]:
        [applied] = await self._apply([event])
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
        counts = await self._counters.read([(self.namespace.id, each) for each in counters])
        return [_value(count) for count in counts]

    async def token_status(self, event: Event) -> TokenStatus:
        raise Unsupported(
            f"namespace {self.namespace.name} is best_effort, which keeps no tokens: "
            "pick another strategy if their outcome matters"
        )

    async def _apply(self, events: Sequence[Event]) -> Sequence[BestEffortOutcome]:
        dedupe_ttl_ms = self.namespace.dedupe_ttl_ms
        adds = [
            BestEffortAdd(
                (self.namespace.id, event.counter),
                event.delta,
                None if dedupe_ttl_ms is None else f"{event.time_ns}:{event.token}",
            )
            for event in events
        ]
        applied = await self._counters.apply(adds, dedupe_ttl_ms=dedupe_ttl_ms or 0)
        taken = [each[1] for each in applied if not isinstance(each, TallyError)]
        duplicates = sum(taken)
        self._counted.add(len(taken) - duplicates)
        self._duplicates.add(duplicates)
        return applied


def _value(count: int) -> Value:
    return Value(count, None, 0, 0, Source.SHARED_CACHE)
