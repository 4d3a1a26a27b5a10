"""Closed loops: so many at a time, the next one begins when one has been answered."""

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TypeVar

from benchmarks.peers.system import Driver, Load, Peer
from benchmarks.workloads import Operations, Stream

Choice = TypeVar("Choice")
# One operation: its counter, the number of its token, and whether it is a read.
Perform = Callable[[str, int, bool], Awaitable[object]]

# Tasks whose awaits are timed. Timing all of them would cost the fastest systems the most.
_TIMED_TASKS = 50
_TAKEN_AT_ONCE = 1_000
_CHOOSE_S = 0.3


class OneByOne(Driver):
    """A service that awaits each operation, in many tasks."""

    def __init__(self, peer: Peer, name: str, idiom: str, *, tasks: int) -> None:
        super().__init__(peer, name, idiom)
        self.tasks = tasks

    @abstractmethod
    async def performer(self, stream: Stream) -> Perform:
        """Performs one operation of the stream; it may be called while others are under way."""

    async def run(self, stream: Stream, seconds: float) -> Load:
        return await one_by_one(stream, seconds, self.tasks, await self.performer(stream))


async def one_by_one(stream: Stream, seconds: float, tasks: int, perform: Perform) -> Load:
    """Many tasks, each with one operation at a time."""
    latencies_s: list[float] = []
    now_s = time.perf_counter
    taken = Taken(stream)
    ends_s = now_s() + seconds

    async def timed() -> None:
        while (began_s := now_s()) < ends_s:
            await perform(*next(taken.operations))
            latencies_s.append(now_s() - began_s)

    async def untimed() -> None:
        operations = taken.operations
        while now_s() < ends_s:
            await perform(*next(operations))

    await _together(timed() if number < _TIMED_TASKS else untimed() for number in range(tasks))
    return Load(operations=taken.performed(), latencies_s=latencies_s)


class Taken:
    """Operations of a stream one by one; what is left of the last piece goes back."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._first = stream.position
        self.operations = self._each()
        self._piece: Iterator[tuple[str, int, bool]] = iter(())

    def _each(self) -> Iterator[tuple[str, int, bool]]:
        while True:
            self._piece = self._stream.take(_TAKEN_AT_ONCE).each()
            yield from self._piece

    def performed(self) -> int:
        self._stream.give_back(sum(1 for _ in self._piece))
        return self._stream.position - self._first


async def piece_by_piece(
    stream: Stream,
    seconds: float,
    tasks: int,
    size: int,
    perform: Callable[[Operations, int], Awaitable[object]],
) -> Load:
    """A few tasks, each with one piece of `size` operations at a time, and its own number."""
    latencies_s: list[float] = []
    now_s = time.perf_counter
    first = stream.position
    ends_s = now_s() + seconds

    async def loop(task: int) -> None:
        while (began_s := now_s()) < ends_s:
            await perform(stream.take(size), task)
            latencies_s.append(now_s() - began_s)

    await _together(loop(task) for task in range(tasks))
    return Load(operations=stream.position - first, latencies_s=latencies_s)


async def _together(loops: Iterable[Coroutine[object, object, None]]) -> None:
    """The first error ends them all, and is the one that is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for loop in loops:
                group.create_task(loop)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def fastest(
    choices: Sequence[Choice], run: Callable[[Choice, float], Awaitable[Load]]
) -> Choice:
    """The choice with which most was performed, each tried for a moment."""
    rates: list[float] = []
    for choice in choices:
        began_s = time.perf_counter()
        load = await run(choice, _CHOOSE_S)
        rates.append(load.operations / (time.perf_counter() - began_s))
    return choices[rates.index(max(rates))]
