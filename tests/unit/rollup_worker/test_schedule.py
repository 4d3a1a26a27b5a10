"""The schedule: jobs have their turns, one at a time, whatever fails and whatever clocks do."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from counter.errors import StoreUnavailable
from counter.metrics import JOB_FAILURES
from rollup_worker import schedule as schedule_module
from rollup_worker.schedule import Schedule
from tests.unit.rollup_worker.waiting import until

SOON_S = 0.005


class Job:
    def __init__(self) -> None:
        self.began = self.ended = 0
        self.at_once_max = 0
        self.held: asyncio.Event | None = None
        self.error: Exception | None = None

    async def __call__(self) -> None:
        await self.run()

    async def run(self) -> None:
        self.began += 1
        self.at_once_max = max(self.at_once_max, self.began - self.ended)
        try:
            if self.held is not None:
                await self.held.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.ended += 1


async def stopped(schedule: Schedule) -> None:
    await asyncio.wait_for(schedule.stop(), 10)


async def test_a_job_runs_at_once_and_then_again_and_again() -> None:
    schedule, job, rare = Schedule(), Job(), Job()
    schedule.add("close", SOON_S, job)
    schedule.add("retention", 3_600, rare)
    schedule.start()
    await until(lambda: job.ended >= 5 and rare.ended == 1)
    await stopped(schedule)
    assert rare.began == 1


async def test_a_slow_job_does_not_run_twice_nor_hold_up_another() -> None:
    schedule, slow, job = Schedule(), Job(), Job()
    slow.held = asyncio.Event()
    schedule.add("beat", SOON_S, slow)
    schedule.add("close", SOON_S, job)
    schedule.start()
    await until(lambda: job.ended >= 10)
    assert (slow.began, slow.ended) == (1, 0)
    slow.held.set()
    await until(lambda: slow.ended >= 3)
    await stopped(schedule)
    assert slow.at_once_max == 1


async def test_stop_finishes_what_is_under_way_and_begins_nothing() -> None:
    schedule, job = Schedule(), Job()
    job.held = asyncio.Event()
    schedule.add("close", SOON_S, job)
    schedule.start()
    await until(lambda: job.began == 1)
    stopping = asyncio.create_task(schedule.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    job.held.set()
    await asyncio.wait_for(stopping, 10)
    assert (job.began, job.ended) == (1, 1)


async def test_a_schedule_that_never_began_can_be_stopped() -> None:
    schedule = Schedule()
    schedule.add("close", SOON_S, Job())
    await stopped(schedule)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ZeroDivisionError("away")])
async def test_a_job_that_fails_is_said_once_shows_and_is_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_module, "RETRY_S", 10 * SOON_S)
    failures = JOB_FAILURES.at(job="retention")
    before = failures.value
    schedule, job = Schedule(), Job()
    job.error = error
    schedule.add("retention", 3_600, job)  # rare, and yet tried again soon
    with structlog.testing.capture_logs() as lines:
        schedule.start()
        await until(lambda: job.ended >= 3)
        assert "away" in (schedule.problem() or "")
        job.error = None
        await until(lambda: schedule.problem() is None)
        await stopped(schedule)
    assert failures.value - before >= 3
    [line] = [each for each in lines if each["action"] == "job_failed"]
    assert line["job"] == "retention"


async def test_a_clock_that_steps_back_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was planned by the clock before the step would otherwise wait for it to catch up."""
    monkeypatch.setattr(schedule_module, "_LOOK_AT_CLOCK_EVERY_S", SOON_S)
    schedule, job = Schedule(), Job()
    schedule.add("close", SOON_S, job)
    schedule.start()
    await until(lambda: job.ended >= 1)
    an_hour_ahead = datetime.now(UTC) + timedelta(hours=1)
    schedule._scheduler.modify_job("close", next_run_time=an_hour_ahead)
    ran = job.ended
    await until(lambda: job.ended >= ran + 3)
    await stopped(schedule)


async def test_a_clock_that_was_behind_for_a_moment_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler looked at it just then, and sleeps until the next turn, an hour from there."""
    monkeypatch.setattr(schedule_module, "_LOOK_AT_CLOCK_EVERY_S", SOON_S)
    schedule, job = Schedule(), Job()
    schedule.add("close", 20 * SOON_S, job)
    schedule.start()
    await until(lambda: job.ended >= 1)
    schedule._scheduler._start_timer(3_600.0)
    ran = job.ended
    await until(lambda: job.ended >= ran + 3)
    await stopped(schedule)


async def test_a_clock_that_steps_forward_makes_one_turn_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that steps over half a century, as on a machine that found out what time it is."""
    schedule, job = Schedule(), Job()
    schedule.add("close", 3_600, job)
    schedule.start()
    await until(lambda: job.ended == 1)
    schedule._scheduler.modify_job("close", next_run_time=datetime(1970, 1, 1, tzinfo=UTC))
    await until(lambda: job.ended == 2)
    await stopped(schedule)
    assert job.began == 2


async def test_the_local_time_zone_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "No/Such_Zone")
    schedule, job = Schedule(), Job()
    schedule.add("close", SOON_S, job)
    schedule.start()
    await until(lambda: job.ended >= 2)
    planned: Any = schedule._scheduler.get_jobs()[0]
    assert planned.next_run_time.utcoffset() == timedelta(0)
    await stopped(schedule)


def test_each_job_has_a_name_that_metrics_know() -> None:
    schedule = Schedule()
    with pytest.raises(AssertionError):
        schedule.add("something else", 1.0, Job())
    schedule.add("close", 1.0, Job())
    with pytest.raises(AssertionError):
        schedule.add("close", 1.0, Job())
