import asyncio
import itertools
from random import Random

import pytest

from benchmarks.open_loop import Overrun, offer, poisson_schedule


class _Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def now_s(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def test_arrivals_come_at_the_offered_rate_and_rise() -> None:
    schedule = list(poisson_schedule(1_000, 20, Random(3)))
    assert len(schedule) == pytest.approx(20_000, rel=0.03)
    assert schedule == sorted(schedule)
    assert 0 <= schedule[0] <= schedule[-1] < 20


def test_gaps_between_arrivals_are_not_all_alike() -> None:
    schedule = list(poisson_schedule(100, 20, Random(3)))
    gaps = [after - before for before, after in itertools.pairwise(schedule)]
    # Of exponential gaps, 1 - 1/e are shorter than their mean.
    assert sum(gap < 0.01 for gap in gaps) / len(gaps) == pytest.approx(0.632, abs=0.05)


def test_a_load_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        list(poisson_schedule(0, 1, Random(3)))


async def test_latency_counts_from_when_a_call_was_due() -> None:
    time = _Time()

    async def slow() -> None:
        time.now += 0.5  # keeps the client itself busy: the next calls begin late

    load = await offer(slow, [0.0, 0.1, 0.2], offered_per_s=10, now_s=time.now_s, sleep=time.sleep)
    # Due at 0, 0.1 and 0.2; the third one waited for both others.
    assert max(load.latencies_s) >= 1.0
    assert len(load.latencies_s) == 3


async def test_calls_begin_whether_or_not_others_were_answered() -> None:
    time = _Time()
    begun = 0
    all_begun = asyncio.Event()

    async def call() -> None:
        nonlocal begun
        begun += 1
        if begun == 3:
            all_begun.set()
        await all_begun.wait()

    load = await offer(call, [0.0, 0.1, 0.2], offered_per_s=10, now_s=time.now_s, sleep=time.sleep)
    assert len(load.latencies_s) == 3


async def test_a_call_that_fails_is_an_error_and_not_a_latency() -> None:
    time = _Time()

    async def fail() -> None:
        raise ConnectionError("gone")

    with pytest.raises(RuntimeError, match="1 calls failed, the first with: gone"):
        await offer(fail, [0.0], offered_per_s=1, now_s=time.now_s, sleep=time.sleep)


async def test_a_system_that_falls_far_behind_is_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.open_loop._UNANSWERED_MAX", 10)
    time = _Time()
    may_end = asyncio.Event()
    begun = 0

    async def call() -> None:
        nonlocal begun
        begun += 1
        if begun > 10:
            may_end.set()
        await may_end.wait()

    with pytest.raises(Overrun, match="more than the system can take"):
        await offer(
            call,
            [number / 10 for number in range(100)],
            offered_per_s=10,
            now_s=time.now_s,
            sleep=time.sleep,
        )
    assert begun < 100, "it went on offering"
