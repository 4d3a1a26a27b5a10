"""A supervisor over processes that do what a test says, in a time that a test lets pass."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from counter.errors import SetupError
from counter.metrics import PROCESS_RESTARTS, PROCESSES_UP, PROCESSES_WANTED
from tally.supervision import backoff
from tally.supervision.backoff import Backoff
from tally.supervision.children import Ended
from tally.supervision.messages import Family
from tally.supervision.supervisor import (
    HANGING_BEATS,
    KILLED_AFTER_S,
    SILENT_BEATS,
    Process,
    Supervisor,
)


class Time:
    """Stands still until a test lets it pass."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        waking = asyncio.get_running_loop().create_future()
        self._sleeping.append((self.now_s + seconds, waking))
        await waking

    async def pass_(self, seconds: float) -> None:
        """Everybody who is to wake up meanwhile does, one after the other."""
        end_s = self.now_s + seconds
        while True:
            await turn()
            self._sleeping = [(at, each) for at, each in self._sleeping if not each.done()]
            due = [(at, each) for at, each in self._sleeping if at <= end_s]
            if not due:
                break
            self.now_s, first = min(due, key=lambda pair: pair[0])
            first.set_result(None)
        self.now_s = end_s


async def turn() -> None:
    """Lets everybody go on who waits for nothing any more."""
    for _ in range(20):
        await asyncio.sleep(0)


class FakeProcess:
    def __init__(self, pid: int, bind_first: bool, heard: Callable[[], None]) -> None:
        self.pid = pid
        self.bind_first = bind_first
        self.problem: str | None = "starting"
        self.is_ready = False
        self.details: tuple[str, ...] = ("on a store",)
        self.hangs = False
        self.stops_when_asked = True
        self.was_asked = False
        self.was_killed = False
        self._heard = heard
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def serve(self) -> None:
        self.is_ready, self.problem = True, None
        self._heard()

    def beat(self) -> None:
        if not self._ended.done() and not self.hangs:
            self._heard()

    def tell(self, problem: str | None) -> None:
        self.problem = problem
        self._heard()

    def end(self, code: int = 1, refusal: str | None = None) -> None:
        if not self._ended.done():
            self._ended.set_result(Ended(code=code, refusal=refusal))

    async def wait(self) -> Ended:
        return await self._ended

    def stop(self) -> None:
        self.was_asked = True
        if self.stops_when_asked:
            self.end(0)

    def kill(self) -> None:
        self.was_killed = True
        self.end(-9)

    async def scrape(self) -> list[Family]:
        return []


class Supervised:
    """A supervisor that runs, and what it has started and said so far."""

    def __init__(self, wanted: int) -> None:
        self.time = Time()
        self.stop = asyncio.Event()
        self.started: list[FakeProcess] = []
        self.greeted: list[list[int]] = []
        self.full = False  # the system has no room for another process
        self.supervisor = Supervisor(
            wanted,
            self._start,
            greet=self._greet,
            now_s=lambda: self.time.now_s,
            sleep=self.time.sleep,
            random=Random(1),
        )
        self.running: asyncio.Task[None] | None = None

    async def _start(
        self, number: int, *, bind_first: bool, heard: Callable[[], None]
    ) -> FakeProcess:
        if self.full:
            raise OSError(12, "Cannot allocate memory")
        process = FakeProcess(100 + len(self.started), bind_first, heard)
        self.started.append(process)
        return process

    def _greet(self, children: Sequence[Process]) -> None:
        self.greeted.append([child.pid for child in children])

    async def pass_(self, seconds: float) -> None:
        """Time goes by, and who serves says so every second."""
        end_s = self.time.now_s + seconds
        while self.time.now_s < end_s:
            await self.time.pass_(min(0.5, end_s - self.time.now_s))
            for process in self.started:
                if process.is_ready:
                    process.beat()

    @property
    def health(self) -> tuple[bool, str]:
        return self.supervisor.health()

    async def ended(self) -> None:
        assert self.running is not None
        await asyncio.wait_for(self.running, 5)


@asynccontextmanager
async def supervised(wanted: int = 2, *, all_serve: bool = True) -> AsyncIterator[Supervised]:
    each = Supervised(wanted)
    each.running = asyncio.create_task(each.supervisor.run(each.stop))
    await turn()
    if all_serve:
        for process in each.started:
            process.serve()
    try:
        yield each
    finally:
        each.running.cancel()


def restarts(number: int) -> int:
    return PROCESS_RESTARTS.at(process=str(number)).value


async def test_it_greets_when_all_serve_and_never_again() -> None:
    async with supervised(3, all_serve=False) as those:
        assert [each.bind_first for each in those.started] == [True, True, True]
        assert those.health == (
            False,
            "0 of 3 processes serve\nprocess 1: starting\nprocess 2: starting\nprocess 3: starting",
        )
        those.started[2].serve()
        those.started[0].serve()
        assert those.greeted == []
        assert those.health == (True, "2 of 3 processes serve\nprocess 2: starting")
        those.started[1].serve()
        assert those.greeted == [[100, 101, 102]]
        assert those.health == (True, "3 of 3 processes serve")
        assert (PROCESSES_WANTED.at().value, PROCESSES_UP.at().value) == (3, 3)
        those.started[0].end(-9)
        await those.pass_(1)
        those.started[3].serve()
        assert those.health == (True, "3 of 3 processes serve")
        assert those.greeted == [[100, 101, 102]]


async def test_one_that_ends_is_started_again_while_the_others_answer() -> None:
    before = restarts(1), restarts(2)
    async with supervised() as those:
        with capture_logs() as logs:
            those.started[0].end(-9)
            await turn()
        assert [(each["action"], each["problem"], each["process"]) for each in logs] == [
            ("child_ended", "killed by SIGKILL", 1)
        ]
        assert those.health == (True, "1 of 2 processes serve\nprocess 1: not running")
        assert len(those.started) == 2
        await those.pass_(backoff.FIRST_S)
        assert len(those.started) == 3
        assert not those.started[2].bind_first  # callers are better off with the other one
        assert (restarts(1), restarts(2)) == (before[0] + 1, before[1])
        assert not those.started[1].was_asked


async def test_one_that_is_alone_binds_at_once() -> None:
    async with supervised() as those:
        those.started[1].tell("the store is away")
        those.started[0].end(1)
        await those.pass_(backoff.FIRST_S)
        assert those.started[2].bind_first


async def test_one_that_ends_at_once_waits_longer_each_time() -> None:
    async with supervised(1) as those:
        waited = []
        for _ in range(12):
            those.started[-1].end(1)
            began_s, known = those.time.now_s, len(those.started)
            while len(those.started) == known:
                await those.pass_(0.01)
            waited.append(those.time.now_s - began_s)
        assert waited[0] <= backoff.FIRST_S + 0.01
        assert waited == sorted(waited[:7]) + waited[7:]
        assert all(backoff.MOST_S * 0.8 <= each <= backoff.MOST_S + 0.01 for each in waited[7:])


async def test_health_is_that_of_the_processes() -> None:
    async with supervised() as those:
        those.started[0].tell("waiting for Cassandra")
        assert those.health == (True, "1 of 2 processes serve\nprocess 1: waiting for Cassandra")
        those.started[1].tell("waiting for Cassandra")
        assert not those.health[0]
        assert PROCESSES_UP.at().value == 0
        those.started[0].tell(None)
        assert those.health[0]


async def test_one_that_hangs_does_not_serve_and_is_killed() -> None:
    async with supervised() as those:
        those.started[0].hangs = True
        await those.pass_(SILENT_BEATS)
        assert those.health == (
            True,
            f"1 of 2 processes serve\nprocess 1: it hangs: silent for {SILENT_BEATS} s",
        )
        assert not those.started[0].was_killed
        with capture_logs() as logs:
            await those.pass_(HANGING_BEATS - SILENT_BEATS)
        assert [each["action"] for each in logs] == ["child_killed", "child_ended"]
        await those.pass_(backoff.FIRST_S)
        assert [each.was_killed for each in those.started] == [True, False, False]


async def test_one_that_hangs_for_a_moment_is_left_alone() -> None:
    async with supervised(1) as those:
        for _ in range(3):
            those.started[0].hangs = True
            await those.pass_(HANGING_BEATS - 1)
            those.started[0].hangs = False
            those.started[0].beat()
            assert those.health == (True, "1 of 1 processes serve")
        assert not those.started[0].was_killed


async def test_one_that_has_not_spoken_yet_may_take_its_time() -> None:
    async with supervised(1, all_serve=False) as those:
        await those.pass_(HANGING_BEATS * 3)
        assert not those.started[0].was_killed
        those.started[0].serve()
        assert those.greeted == [[100]]


async def test_a_start_that_cannot_succeed_ends_all() -> None:
    async with supervised(3, all_serve=False) as those:
        those.started[0].serve()
        with capture_logs() as logs:
            those.started[1].end(1, refusal="platform.window: cannot be changed")
            with pytest.raises(SetupError, match=r"platform\.window: cannot be changed"):
                await those.ended()
        assert logs == []  # one line says it all
        assert [each.was_asked for each in those.started] == [True, False, True]
        assert len(those.started) == 3


async def test_what_is_refused_later_is_tried_again() -> None:
    async with supervised() as those:
        those.started[0].end(1, refusal="cassandra.password_file: refused")
        await those.pass_(backoff.FIRST_S)
        assert len(those.started) == 3
        assert not those.stop.is_set()


async def test_no_room_for_a_process_is_refused_at_the_start_and_awaited_later() -> None:
    async with supervised() as those:
        those.full = True
        those.started[0].end(-9)
        await those.pass_(5)
        assert those.health == (True, "1 of 2 processes serve\nprocess 1: not running")
        those.full = False
        await those.pass_(5)
        assert len(those.started) == 3
    full = Supervised(2)
    full.full = True
    with pytest.raises(SetupError, match="cannot start a process: Cannot allocate memory"):
        await asyncio.wait_for(full.supervisor.run(full.stop), 5)


async def test_a_signal_stops_all_and_starts_none() -> None:
    async with supervised() as those:
        those.started[0].end(-9)
        await turn()
        those.stop.set()
        await those.ended()
        assert those.started[1].was_asked
        assert len(those.started) == 2


async def test_a_signal_while_one_starts_stops_that_one_too() -> None:
    each = Supervised(1)
    starting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start = each._start

    async def slow(*arguments: Any, **more: Any) -> FakeProcess:
        process = await start(*arguments, **more)
        await starting
        return process

    each.supervisor._start = slow
    each.running = asyncio.create_task(each.supervisor.run(each.stop))
    await turn()
    each.stop.set()
    await turn()
    assert not each.started[0].was_asked
    starting.set_result(None)
    await each.ended()
    assert each.started[0].was_asked


async def test_one_that_does_not_end_is_killed() -> None:
    async with supervised() as those:
        those.started[1].stops_when_asked = False
        those.stop.set()
        await those.pass_(KILLED_AFTER_S - 1)
        assert those.running is not None
        assert not those.running.done()
        with capture_logs() as logs:
            await those.pass_(1)
            await those.ended()
        assert [each["action"] for each in logs] == ["child_killed", "stopped"]
        assert [each.was_killed for each in those.started] == [False, True]


async def test_a_second_signal_kills_all() -> None:
    async with supervised() as those:
        those.supervisor.kill_all()
        assert all(each.was_killed for each in those.started)


def test_back_off_doubles_and_begins_anew_after_a_good_run() -> None:
    ends = Backoff(Random(7))
    waits = [ends.after(0.0) for _ in range(40)]
    for number, wait_s in enumerate(waits):
        most_s = min(backoff.MOST_S, backoff.FIRST_S * 2**number)
        assert most_s * (1 - backoff.JITTER) <= wait_s <= most_s
    assert ends.after(backoff.WELL_AFTER_S - 0.1) > backoff.MOST_S * (1 - backoff.JITTER)
    assert ends.after(backoff.WELL_AFTER_S) <= backoff.FIRST_S
    assert ends.after(0.0) <= backoff.FIRST_S * 2


def test_processes_that_end_together_come_back_apart() -> None:
    random = Random(7)
    assert len({Backoff(random).after(0.0) for _ in range(20)}) == 20


def test_an_end_has_words() -> None:
    assert Ended(code=-9).words == "killed by SIGKILL"
    assert Ended(code=-99).words == "killed by signal 99"
    assert Ended(code=3).words == "exited with code 3"
    assert Ended(code=1, refusal="no such host").words == "no such host"
