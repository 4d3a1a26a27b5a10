"""A shadow phase: adds and clears are written for a second strategy too, before a change to it.

Callers notice nothing of it. Every answer is that of the old strategy; the shadow gets what the old
one has taken, and whatever happens there fails no call:

- An answer waits until the shadow's write is durable, but not for long. While the shadow's store
  does not answer, writes to it go on behind the answers, so many at once, and no call waits.
- What the shadow refuses, or what fails there, is counted and logged. It is missing in the shadow,
  and so in the comparison.
- A late token is not looked up: the old strategy takes it, the log does not.
- A token that is sent again counts once in the shadow, whatever the old strategy does.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import ClassVar

import structlog

from counter.errors import TallyError
from counter.events import Event
from counter.metrics import SHADOW_ADDS
from counter_server.late import TokenStatus
from counter_server.strategies.best_effort import BestEffort
from counter_server.strategies.logged import Logged
from counter_server.strategies.strategy import Freshness, Outcome, Strategy, Value

# How long an answer waits for the shadow.
WAIT_S_MAX = 0.5
# Of one namespace. Beyond it the shadow is not written to: others need the event log too.
EVENTS_IN_FLIGHT_MAX = 20_000
_COMPLAINTS_EVERY_S = 10.0

log = structlog.get_logger()


class Shadow:
    needs: ClassVar[frozenset[str]] = BestEffort.needs | Logged.needs

    def __init__(
        self,
        old: Strategy,
        shadow: Logged,
        *,
        wait_s_max: float = WAIT_S_MAX,
        events_in_flight_max: int = EVENTS_IN_FLIGHT_MAX,
        monotonic_s: Callable[[], float] = monotonic,
    ) -> None:
        self.namespace = old.namespace
        self.old = old
        self.shadow = shadow
        self._wait_s_max = wait_s_max
        self._events_in_flight_max = events_in_flight_max
        self._monotonic_s = monotonic_s
        self._events_in_flight = 0
        self._writes: set[asyncio.Task[None]] = set()
        self._is_awaited = True  # False since the shadow took too long, until it no longer does
        self._failed_events = 0  # since the last complaint
        self._complained_at_s = -_COMPLAINTS_EVERY_S
        self._written = SHADOW_ADDS.at(result="written")
        self._late = SHADOW_ADDS.at(result="late")
        self._failed = SHADOW_ADDS.at(result="failed")

    async def add(self, events: Sequence[Event], *, wait_s: float) -> list[Outcome]:
        outcomes = await self.old.add(events, wait_s=wait_s)
        taken = [
            event
            for event, outcome in zip(events, outcomes, strict=True)
            if not isinstance(outcome, TallyError)
        ]
        await self._write(taken, wait_s)
        return outcomes

    async def add_and_read(self, event: Event, *, wait_s: float) -> tuple[bool, Value]:
        answer = await self.old.add_and_read(event, wait_s=wait_s)
        await self._write([event], wait_s)
        return answer

    async def read(self, counters: Sequence[str], freshness: Freshness) -> list[Value]:
        return await self.old.read(counters, freshness)

    async def token_status(self, event: Event) -> TokenStatus:
        return await self.old.token_status(event)

    async def settled(self) -> None:
        """Returns when the writes that are under way now have ended, or after some time."""
        if self._writes:
            await asyncio.wait(set(self._writes), timeout=self._wait_s_max)

    async def _write(self, events: list[Event], wait_s: float) -> None:
        if not events:
            return
        if self._events_in_flight + len(events) > self._events_in_flight_max:
            self._fail(len(events), f"{self._events_in_flight} events wait for it already")
            return
        self._events_in_flight += len(events)
        # A task of its own: it goes on when the caller has waited long enough, or has gone.
        write = asyncio.create_task(self._write_to_shadow(events))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        if self._is_awaited:
            await asyncio.wait((write,), timeout=min(wait_s, self._wait_s_max))

    async def _write_to_shadow(self, events: list[Event]) -> None:
        began_s = self._monotonic_s()
        watching = asyncio.get_running_loop().call_later(self._wait_s_max, self._stop_waiting)
        try:
            late, written_late = await self.shadow.write(events)
        except TallyError as error:
            self._fail(len(events), error.message)
        except Exception as error:  # a mistake of ours, which must not fail calls either
            self._fail(len(events), repr(error), error)
        else:
            late_events = len(late) + len(written_late)
            self._late.add(late_events)
            self._written.add(len(events) - late_events)
            if self._monotonic_s() - began_s < self._wait_s_max:
                self._is_awaited = True
        finally:
            watching.cancel()
            self._events_in_flight -= len(events)

    def _stop_waiting(self) -> None:
        if self._is_awaited:
            self._is_awaited = False
            log.warning(
                "the shadow of a namespace is slow: calls no longer wait for it until it is not",
                action="shadow_slow",
                namespace=self.namespace.name,
                waited_s=self._wait_s_max,
            )

    def _fail(self, events: int, problem: str, mistake: Exception | None = None) -> None:
        self._failed.add(events)
        self._failed_events += events
        now_s = self._monotonic_s()
        if now_s - self._complained_at_s < _COMPLAINTS_EVERY_S:
            return
        log.warning(
            "the shadow of a namespace lacks events: compare before you cut over",
            action="shadow_lacks_events",
            namespace=self.namespace.name,
            events=self._failed_events,
            problem=problem,
            exc_info=mistake,
        )
        self._complained_at_s, self._failed_events = now_s, 0
