"""Timing of stages: the least processor time of many rounds."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

ROUNDS = 15
_US_PER_S = 1_000_000


@dataclass(kw_only=True)
class Stages:
    """What each stage takes of the whole, in microseconds for each item."""

    whole_us: float = 0.0
    parts_us: dict[str, float] = field(default_factory=dict)

    def by_name(self) -> dict[str, float]:
        """With what is left; a little less than nothing is noise, and shown as such."""
        return {**self.parts_us, "rest": self.whole_us - sum(self.parts_us.values())}


def least_us(work: Callable[[], object], items: int, rounds: int = ROUNDS) -> float:
    """For each item, of rounds that handle so many."""
    return min(_timed_s(work) for _ in range(rounds)) / items * _US_PER_S


async def least_awaited_us(
    work: Callable[[], Awaitable[object]], items: int, rounds: int = ROUNDS
) -> float:
    least_s = float("inf")
    for _ in range(rounds):
        began_s = time.process_time()
        await work()
        least_s = min(least_s, time.process_time() - began_s)
    return least_s / items * _US_PER_S


def _timed_s(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s
