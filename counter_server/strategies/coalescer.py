"""Calls that come together go out together.

What arrives in one turn of the event loop goes out at its end as one request, and so does what
arrives while as many requests as allowed are under way. A lone call on an idle server waits for
nobody. A caller that goes away changes nothing for the others: its call goes out with theirs.

Everything is bounded: so many requests are under way, with so many events each, and so many events
wait at most. Beyond that a call is refused as a whole, and nothing of it is sent.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from counter.errors import Overloaded, TallyError

_RETRY_AFTER_MS = 100


@dataclass(frozen=True, kw_only=True)
class CoalescingLimits:
    requests_in_flight: int = 2
    # A request that has so many takes no further call. A call is never split.
    events_per_request: int = 10_000
    # Waiting or under way; beyond it: RESOURCE_EXHAUSTED.
    events_waiting_max: int = 100_000


Call = TypeVar("Call")
Answer = TypeVar("Answer")


class _Waiting(NamedTuple, Generic[Call, Answer]):
    call: Call
    events: int
    answer: "asyncio.Future[Answer]"


class Coalescer(Generic[Call, Answer]):
    """Used on one event loop."""

    def __init__(
        self,
        send: Callable[[list[Call]], Awaitable[Sequence[Answer | TallyError]]],
        limits: CoalescingLimits,
        what: str,
    ) -> None:
        """`send` answers each of the calls of a request; if it raises, that answers them all.
        `what` waits here, in words."""
        self._send = send
        self._limits = limits
        self._what = what
        self._waiting: deque[_Waiting[Call, Answer]] = deque()
        self._events = 0  # waiting or under way
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, call: Call, events: int) -> Answer:
        """The answer to a call of so many events."""
        limit = self._limits.events_waiting_max
        if self._events + events > limit:
            raise Overloaded(
                f"{self._events} {self._what}, the limit is {limit}: nothing of this call was "
                "done, try again later",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        self._events += events
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(call, events, answer))
        if len(self._waiting) == 1:
            self._start()
        return await answer

    def _start(self) -> None:
        """If all that may be are under way, what waits goes out when one of them has ended."""
        if self._in_flight < self._limits.requests_in_flight:
            self._in_flight += 1
            # It first runs when this turn of the loop has ended, and takes what has come by then.
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._request(self._taken())
        finally:
            self._in_flight -= 1

    def _taken(self) -> list[_Waiting[Call, Answer]]:
        """The calls of the next request."""
        taken, events = [], 0
        while self._waiting and events < self._limits.events_per_request:
            taken.append(self._waiting.popleft())
            events += taken[-1].events
        if self._waiting:
            self._start()
        return taken

    async def _request(self, taken: list[_Waiting[Call, Answer]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._send([each.call for each in taken])
        except Exception as error:
            answers = [error] * len(taken)
        finally:
            self._events -= sum(each.events for each in taken)
        for (_, _, waiter), answer in zip(taken, answers, strict=True):
            if waiter.done():
                continue  # its caller went away
            if isinstance(answer, Exception):
                waiter.set_exception(answer)
            else:
                waiter.set_result(answer)
