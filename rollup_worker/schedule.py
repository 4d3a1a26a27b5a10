"""Periodic jobs, each at its own interval and never twice at once.

A turn that comes while the job still runs is left out. A job that fails is logged once, shows as a
problem, and is tried again soon.

APScheduler plans by the wall clock, in UTC. A clock that steps must not matter here: turns that a
step forward seems to have missed are one turn, and after a step back the jobs are planned anew.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from counter.errors import TallyError
from counter.metrics import JOB_FAILURES

# A job that failed has its next turn after this long, if it is not due before.
RETRY_S = 1.0
# How soon a step back of the clock is noticed.
_LOOK_AT_CLOCK_EVERY_S = 1.0

log = structlog.get_logger()


def problem_of(error: Exception) -> str:
    """Work that has stopped must show, whatever stopped it: a mistake of ours too."""
    return error.message if isinstance(error, TallyError) else repr(error)


def details_of(error: Exception) -> dict[str, object]:
    """For the log; where a mistake of ours was made is worth its traceback."""
    expected = isinstance(error, TallyError)
    return {"problem": problem_of(error)} | ({} if expected else {"exc_info": error})


class _Every(BaseTrigger):  # type: ignore[misc]
    """At once, then so long after each turn: missed turns are not made up for."""

    def __init__(self, seconds: float) -> None:
        self.interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return now if previous is None else now + self.interval


@dataclass(slots=True)
class _Job:
    name: str
    seconds: float
    work: Callable[[], Awaitable[None]]
    problem: str | None = None


class Schedule:
    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._scheduler: Any = AsyncIOScheduler(timezone=UTC)
        self._watching: asyncio.Task[None] | None = None
        # Its lines are about turns that are left out and jobs that end; what matters is said here.
        logging.getLogger("apscheduler").setLevel(logging.CRITICAL)

    def add(self, name: str, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` every so many seconds from `start` on, for the first time at once."""
        assert name not in self._jobs, name
        assert seconds > 0, seconds
        JOB_FAILURES.at(job=name)  # shows a zero from the start
        self._jobs[name] = job = _Job(name, seconds, work)
        self._scheduler.add_job(
            self._run,
            _Every(seconds),
            args=(job,),
            id=name,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )

    def start(self) -> None:
        self._scheduler.start()
        self._watching = asyncio.create_task(self._watch_clock())

    async def stop(self) -> None:
        """No job begins any more; those under way are finished."""
        if self._watching is None:
            return
        self._scheduler.pause()
        self._watching.cancel()
        await asyncio.sleep(0)  # those whose turn has just come begin
        while self._running:
            await asyncio.wait(self._running)
        self._scheduler.shutdown(wait=False)
        await asyncio.sleep(0)  # and that is only asked for

    def problem(self) -> str | None:
        """Why a job fails, if one does."""
        return next((each.problem for each in self._jobs.values() if each.problem), None)

    async def _run(self, job: _Job) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await job.work()
            job.problem = None
        except Exception as error:
            JOB_FAILURES.at(job=job.name).add()
            if job.problem is None:
                log.error("a job failed", action="job_failed", job=job.name, **details_of(error))
            job.problem = problem_of(error)
            if job.seconds > RETRY_S:
                retry_at = datetime.now(UTC) + timedelta(seconds=RETRY_S)
                self._scheduler.modify_job(job.name, next_run_time=retry_at)
        finally:
            self._running.discard(task)

    async def _watch_clock(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AT_CLOCK_EVERY_S)
            self._plan_anew(datetime.now(UTC))

    def _plan_anew(self, now: datetime) -> None:
        """What is planned for later than one interval from now was planned by another clock."""
        for planned in self._scheduler.get_jobs():
            if planned.next_run_time > now + planned.trigger.interval:
                planned.modify(next_run_time=now)
        # It may have looked at a clock that was behind for a moment, and sleep on since then.
        self._scheduler.wakeup()
