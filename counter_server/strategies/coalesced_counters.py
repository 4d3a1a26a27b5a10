"""The counters of one best_effort namespace, for calls that come together.

In a request to the store the increments of one counter are one number, so a hot counter costs one
command, however many callers add to it. What holds, however calls were put together:

- **A call has the outcomes of its own events.** Where one of several servers is away, the calls
  that touch its counters get the error, and no others.
- **Order.** The events of a call are carried out in their order: a clear stands between the adds
  before it and those after it.
- **A count that is asked for is the one right after the caller's own event.** Such an event is an
  entry of its own in the request, and so is each one with a token and each clear. Only plain
  increments are summed, each into the last entry of its counter if that is a plain increment too.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from counter.errors import TallyError
from counter.events import Event
from counter.metrics import BEST_EFFORT_ADDS, BEST_EFFORT_REQUEST_EVENTS
from counter.namespaces import Namespace
from counter.storage.ports import BestEffortAdd, BestEffortCounters, BestEffortOutcome
from counter_server.strategies.coalescer import Coalescer, CoalescingLimits
from counter_server.strategies.strategy import Outcome


class _Adds(NamedTuple):
    """One call's. If they are `apart`, each is an entry of its own."""

    events: Sequence[Event]
    apart: bool


class CoalescedCounters:
    def __init__(
        self,
        namespace: Namespace,
        counters: BestEffortCounters,
        limits: CoalescingLimits | None = None,
    ) -> None:
        """The limits are those of adds, and again of reads."""
        limits = limits or CoalescingLimits()
        self._namespace_id = namespace.id
        self._counters = counters
        self._with_tokens = namespace.dedupe_ttl_ms is not None
        self._dedupe_ttl_ms = namespace.dedupe_ttl_ms or 0
        wait = f"of namespace {namespace.name} wait already"
        self._adds = Coalescer(self._apply, limits, f"adds {wait}")
        self._reads = Coalescer(self._read, limits, f"reads {wait}")
        self._counted = BEST_EFFORT_ADDS.at(result="counted")
        self._duplicates = BEST_EFFORT_ADDS.at(result="duplicate")
        self._request_events = BEST_EFFORT_REQUEST_EVENTS.at()

    async def add(self, events: Sequence[Event]) -> list[Outcome]:
        """Adds and clears; the outcome of each."""
        if not events:
            return []
        outcomes = await self._adds.ask(_Adds(events, apart=self._with_tokens), len(events))
        return [each if isinstance(each, TallyError) else each[1] for each in outcomes]

    async def add_and_read(self, event: Event) -> BestEffortOutcome:
        """One add or clear, and the count right after it."""
        [outcome] = await self._adds.ask(_Adds((event,), apart=True), 1)
        return outcome

    async def read(self, counters: Sequence[str]) -> list[int]:
        """The counts, all of them or none."""
        if not counters:
            return []
        return await self._reads.ask(counters, len(counters))

    async def _apply(self, calls: list[_Adds]) -> list[list[BestEffortOutcome]]:
        entries = _Entries()
        places = [
            entries.apart(events, with_tokens=self._with_tokens) if apart else entries.sums(events)
            for events, apart in calls
        ]
        self._request_events.record(sum(map(len, places)))
        applied = await self._counters.apply(
            entries.adds(self._namespace_id), dedupe_ttl_ms=self._dedupe_ttl_ms
        )
        seen = [None if isinstance(each, TallyError) else each[1] for each in applied]
        of_events = [seen[place] for of_call in places for place in of_call]
        self._counted.add(of_events.count(False))
        self._duplicates.add(of_events.count(True))
        return [[applied[place] for place in of_call] for of_call in places]

    async def _read(self, calls: list[Sequence[str]]) -> Sequence[list[int] | TallyError]:
        different = list({counter: None for call in calls for counter in call})
        try:
            counts = await self._counts(different)
        except TallyError as error:
            if len(calls) == 1:
                return [error]
            # One counter that cannot be read fails them all: now each call finds out by itself.
            return await asyncio.gather(*map(self._read_alone, calls))
        by_counter = dict(zip(different, counts, strict=True))
        return [[by_counter[counter] for counter in call] for call in calls]

    async def _read_alone(self, counters: Sequence[str]) -> list[int] | TallyError:
        try:
            return await self._counts(counters)
        except TallyError as error:
            return error

    async def _counts(self, counters: Sequence[str]) -> list[int]:
        namespace_id = self._namespace_id
        return await self._counters.read([(namespace_id, counter) for counter in counters])


class _Entries:
    """Of one request to the store. Who joins it is told the places of his events in it."""

    def __init__(self) -> None:
        self._counters: list[str] = []
        self._deltas: list[int | None] = []
        self._dedupe_keys: list[str | None] = []
        # By counter: the place of its last entry, if that is a plain increment.
        self._sums: dict[str, int] = {}

    def sums(self, events: Sequence[Event]) -> list[int]:
        """The increments of each counter in one entry."""
        deltas, sums = self._deltas, self._sums
        places = []
        for event in events:
            counter, delta = event.counter, event.delta
            place = sums.get(counter)
            if delta is None:
                place = self._enter(counter, None, None)
            elif place is None:
                place = sums[counter] = self._enter(counter, delta, None)
            else:
                deltas[place] += delta  # type: ignore[operator]  # both are increments
            places.append(place)
        return places

    def apart(self, events: Sequence[Event], *, with_tokens: bool) -> list[int]:
        """Each event in an entry of its own."""
        return [
            self._enter(
                event.counter,
                event.delta,
                f"{event.time_ns}:{event.token}" if with_tokens else None,
            )
            for event in events
        ]

    def adds(self, namespace_id: int) -> list[BestEffortAdd]:
        return [
            BestEffortAdd((namespace_id, counter), delta, dedupe_key)
            for counter, delta, dedupe_key in zip(
                self._counters, self._deltas, self._dedupe_keys, strict=True
            )
        ]

    def _enter(self, counter: str, delta: int | None, dedupe_key: str | None) -> int:
        """What follows is not summed into the entries of this counter before it."""
        self._counters.append(counter)
        self._deltas.append(delta)
        self._dedupe_keys.append(dedupe_key)
        self._sums.pop(counter, None)
        return len(self._deltas) - 1
