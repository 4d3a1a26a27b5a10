"""Batches: reads are cut into calls, adds go with all others, and each has its own outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from clients.listeners import Listener
from clients.values import AddOutcome
from counter.tokens import Token

T = TypeVar("T")

# A named tuple's own constructor takes twice as long.
_new = tuple.__new__

ITEMS_PER_CALL_MAX = 10_000  # the platform's limit
ITEMS_PER_CALL = 1_000
CALLS_IN_FLIGHT_MAX = 4
BATCH_TOO_LARGE = "BATCH_TOO_LARGE"


class BatchSizes:
    """How many items a batch may have, as far as it is known, by namespace.

    A namespace may allow less than the platform, and says so only by refusing. Then the batch is
    halved and sent again, and later ones are not larger.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def of(self, namespace: str) -> int:
        return self._sizes.get(namespace, ITEMS_PER_CALL_MAX)

    def refused(self, namespace: str, size: int) -> None:
        self._sizes[namespace] = min(self.of(namespace), max(1, size // 2))


def pieces(count: int, size: int) -> list[range]:
    """The positions 0 to count, cut into ranges of at most `size`."""
    if not 1 <= size <= ITEMS_PER_CALL_MAX:
        raise ValueError(f"items_per_call must be 1 to {ITEMS_PER_CALL_MAX}, not {size!r}")
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


async def in_flight(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Runs the calls in order, CALLS_IN_FLIGHT_MAX at a time; the first error ends them all."""
    answers: dict[int, T] = {}

    async def run(numbered: Iterator[tuple[int, Callable[[], Awaitable[T]]]]) -> None:
        for number, call in numbered:
            answers[number] = await call()

    # The tasks share one iterator: each takes the next call when it has finished one.
    todo = iter(enumerate(calls))
    tasks = [asyncio.create_task(run(todo)) for _ in range(min(CALLS_IN_FLIGHT_MAX, len(calls)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [answers[number] for number in range(len(calls))]


class BatchOutcomes:
    """Of the adds of one `batch_add`, each in its place; `wait` until all are there."""

    def __init__(self, size: int) -> None:
        self.is_wanted = True
        self._outcomes: list[AddOutcome | None] = [None] * size
        self._missing = size
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, position: int, outcome: AddOutcome) -> None:
        self._outcomes[position] = outcome
        self._missing -= 1
        if not self._missing and not self._complete.done():
            self._complete.set_result(None)

    async def wait(self) -> list[AddOutcome]:
        if self._missing:
            try:
                await self._complete
            finally:
                self.is_wanted = False
        return [outcome for outcome in self._outcomes if outcome is not None]


class BatchPlace(Listener):
    """Listens for one add of a batch."""

    __slots__ = ("_counter", "_outcomes", "_position")

    def __init__(self, outcomes: BatchOutcomes, position: int, counter: str) -> None:
        self._outcomes = outcomes
        self._position = position
        self._counter = counter

    def done(self) -> bool:
        return not self._outcomes.is_wanted

    def added(self, text: str, time_ns: int, region: str, *, duplicate: bool) -> None:
        token = _new(Token, (text, time_ns, region))
        outcome = _new(AddOutcome, (self._counter, token, duplicate, None))
        self._outcomes.put(self._position, outcome)

    def failed(self, outcome: AddOutcome) -> None:
        self._outcomes.put(self._position, outcome)
