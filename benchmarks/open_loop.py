"""Open loop: calls begin when they are due, whatever became of those before them.

A closed loop that waits for an answer before it asks again asks least when the server is slowest,
so its latencies leave out just the calls that would have waited. Here arrivals follow a schedule
that was drawn beforehand, and a call's latency counts from when it was due, not from when the
client got round to sending it. The gaps between arrivals are exponential (Poisson arrivals), as
when many independent callers share a server: a fixed beat would never have two calls meet.

The client sleeps until the next call is due, to a millisecond at best, so a call may begin that
much late. The lateness is part of its latency, for every system alike.
"""

import asyncio
import gc
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from benchmarks.figures import percentile_ms
from benchmarks.series import LoadPoint

Operation = Callable[[], Awaitable[None]]

# Beyond this the system is far behind its schedule, and more calls would only measure the queue.
_UNANSWERED_MAX = 50_000
# A client that is behind begins this many calls, and then lets those under way go on.
_BEHIND_TURNS_EVERY = 32


class Overrun(Exception):
    """The system fell so far behind the offered load that a latency would say nothing."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One system, as one call of it."""

    name: str
    operation: Operation
    in_flight: int  # in the closed loop that finds its peak


@dataclass(frozen=True, kw_only=True)
class OpenLoad:
    """What one stretch of offered load came to."""

    offered_per_s: float
    elapsed_s: float  # until the last answer
    latencies_s: Sequence[float]  # from when each call was due

    @property
    def done_per_s(self) -> float:
        return len(self.latencies_s) / self.elapsed_s

    def percentile_ms(self, percent: float) -> float:
        return percentile_ms(self.latencies_s, percent)

    def point(self, share_of_peak: float) -> LoadPoint:
        return LoadPoint(
            share_of_peak=share_of_peak,
            offered_per_s=self.offered_per_s,
            done_per_s=self.done_per_s,
            p50_ms=self.percentile_ms(50),
            p99_ms=self.percentile_ms(99),
            p999_ms=self.percentile_ms(99.9),
        )


def poisson_schedule(rate_per_s: float, seconds: float, random: Random) -> Iterator[float]:
    """When calls are due, in seconds from the start; on average `rate_per_s` of them a second."""
    if rate_per_s <= 0:
        raise ValueError(f"an offered load must be more than 0 calls per second, not {rate_per_s}")
    due_s = random.expovariate(rate_per_s)
    while due_s < seconds:
        yield due_s
        due_s += random.expovariate(rate_per_s)


async def offer(
    operation: Operation,
    schedule: Sequence[float],
    *,
    offered_per_s: float,
    now_s: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> OpenLoad:
    """Begins a call at each time of the schedule, and waits for the last answer."""
    latencies_s: list[float] = []
    under_way: set[asyncio.Task[None]] = set()
    failures: list[BaseException] = []

    async def call(due_s: float) -> None:
        await operation()
        latencies_s.append(now_s() - due_s)

    def ended(task: asyncio.Task[None]) -> None:
        under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            failures.append(error)

    start_s = now_s()
    for number, offset_s in enumerate(schedule):
        due_s = start_s + offset_s
        if (wait_s := due_s - now_s()) > 0:
            await sleep(wait_s)
        elif number % _BEHIND_TURNS_EVERY == 0:
            await sleep(0)
        task = asyncio.create_task(call(due_s))
        under_way.add(task)
        task.add_done_callback(ended)
        if failures or len(under_way) > _UNANSWERED_MAX:
            break
    overrun = len(under_way) > _UNANSWERED_MAX
    await asyncio.gather(*under_way, return_exceptions=True)
    if failures:
        raise RuntimeError(f"{len(failures)} calls failed, the first with: {failures[0]}")
    if overrun:
        raise Overrun(
            f"{_UNANSWERED_MAX:,} calls were unanswered at {offered_per_s:,.0f} calls/s: "
            "that is more than the system can take"
        )
    return OpenLoad(
        offered_per_s=offered_per_s, elapsed_s=now_s() - start_s, latencies_s=latencies_s
    )


async def offer_poisson(
    operation: Operation, *, rate_per_s: float, seconds: float, random: Random
) -> OpenLoad:
    schedule = list(poisson_schedule(rate_per_s, seconds, random))
    with without_garbage_pauses():
        return await offer(operation, schedule, offered_per_s=rate_per_s)


async def peak_per_s(operation: Operation, *, in_flight: int, seconds: float) -> float:
    """Calls per second in a closed loop with so many of them under way.

    Each has a task of its own, as in an open loop: shares of this are what an open loop can offer.
    """
    done = 0
    start_s = time.perf_counter()

    async def call() -> None:
        await operation()

    async def loop() -> None:
        nonlocal done
        while time.perf_counter() < start_s + seconds:
            await asyncio.create_task(call())
            done += 1

    with without_garbage_pauses():
        await asyncio.gather(*itertools.starmap(loop, itertools.repeat((), in_flight)))
    return done / (time.perf_counter() - start_s)


@contextmanager
def without_garbage_pauses() -> Iterator[None]:
    """The client's own collections, which every system would be charged for, wait meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
