"""Keeps processes running: starts each again when it ends, ends one that hangs, and ends them all
when it is to stop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Protocol

import structlog

from counter.errors import SetupError
from counter.http_endpoint import Health
from counter.metrics import PROCESS_RESTARTS, PROCESSES_UP, PROCESSES_WANTED
from tally.process import STOP_GRACE_S
from tally.supervision.backoff import Backoff
from tally.supervision.children import Ended
from tally.supervision.messages import BEAT_S, Family

# Calls under way have their time, and then stores are closed. What takes longer than that hangs.
KILLED_AFTER_S = STOP_GRACE_S + 15.0
# Of beats that did not come: from the first number on a process does not serve, whatever it said
# last; at the second one it is killed. Its callers wait for nothing meanwhile, so it is not long.
SILENT_BEATS = 5
HANGING_BEATS = 15

log = structlog.get_logger()


class Process(Protocol):
    """What `tally.supervision.children.Child` is."""

    is_ready: bool  # once it has served, until it ends
    details: tuple[str, ...]

    @property
    def pid(self) -> int: ...

    @property
    def problem(self) -> str | None:
        """Why it does not serve; None: it does."""
        ...

    async def wait(self) -> Ended: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    async def scrape(self) -> list[Family]: ...


class Start(Protocol):
    async def __call__(
        self, number: int, *, bind_first: bool, heard: Callable[[], None]
    ) -> Process:
        """Raises OSError if the system has no room for another process now."""
        ...


class Supervisor:
    def __init__(
        self,
        wanted: int,
        start: Start,
        *,
        greet: Callable[[Sequence[Process]], None],
        now_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random,
    ) -> None:
        """`greet` is called once, when all serve for the first time."""
        self._wanted = wanted
        self._start = start
        self._greet = greet
        self._now_s = now_s
        self._sleep = sleep
        self._backoffs = {number: Backoff(random) for number in range(1, wanted + 1)}
        self._greeted = False
        self._stopping = asyncio.Event()
        self._ready_at_s: dict[int, float] = {}
        self._beats_missed: dict[int, int] = {}  # of those that have spoken once
        # Those that are there, by their numbers.
        self.children: dict[int, Process] = {}
        PROCESSES_WANTED.at().set(wanted)
        PROCESSES_UP.at().watch(self, lambda supervisor: supervisor.serving)
        for number in self._backoffs:
            PROCESS_RESTARTS.at(process=str(number))

    @property
    def serving(self) -> int:
        return sum(self._problem(number) is None for number in self._backoffs)

    def health(self) -> Health:
        """One answer for all: callers are served as long as one process serves."""
        problems = {number: self._problem(number) for number in self._backoffs}
        serving = sum(each is None for each in problems.values())
        said = [f"process {number}: {each}" for number, each in problems.items() if each]
        words = "\n".join([f"{serving} of {self._wanted} processes serve", *said])
        return Health(serving > 0, words)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, and until all have ended then.

        Raises SetupError if one cannot start as configured, before all served for once. Later it
        is tried again like any other: what was right at the start may become so again.
        """
        keepers = [asyncio.create_task(self._keep(number)) for number in self._backoffs]
        asked = asyncio.create_task(stop.wait())
        watching = asyncio.create_task(self._watch())
        await asyncio.wait({asked, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        watching.cancel()
        if stop.is_set():
            log.info("stopping: the processes finish what they accepted", action="stopping")
        self._stopping.set()
        for child in self.children.values():
            child.stop()
        killing = asyncio.create_task(self._kill_later())
        ends = await asyncio.gather(*keepers, return_exceptions=True)
        killing.cancel()
        for end in ends:
            if end is not None:
                raise end
        log.info("stopped", action="stopped")

    def kill_all(self) -> None:
        for child in self.children.values():
            child.kill()

    async def _kill_later(self) -> None:
        await self._sleep(KILLED_AFTER_S)
        for number in self.children:
            self._kill(number, "does not end")

    async def _watch(self) -> None:
        """Counts beats that did not come by the turns of this loop, and not by a clock: after a
        pause of the supervisor itself, what the processes said meanwhile is still to be read."""
        while True:
            await self._sleep(BEAT_S)
            for number in self._beats_missed:
                self._beats_missed[number] += 1
                if self._beats_missed[number] == HANGING_BEATS:
                    self._kill(number, "hangs")

    def _kill(self, number: int, why: str) -> None:
        child = self.children[number]
        log.error(
            f"a process {why}: it is killed", action="child_killed", process=number, pid=child.pid
        )
        child.kill()

    async def _keep(self, number: int) -> None:
        """One process, and the one after it, until all are to end."""
        while not self._stopping.is_set():
            ended = await self._run_once(number)
            if self._stopping.is_set():
                return
            if ended.refusal is not None and not self._greeted:
                raise SetupError(ended.refusal)
            ready_at_s = self._ready_at_s.pop(number, None)
            served_s = 0.0 if ready_at_s is None else self._now_s() - ready_at_s
            wait_s = self._backoffs[number].after(served_s)
            log.warning(
                "a process ended: it is started again",
                action="child_ended",
                process=number,
                problem=ended.words,
                served_s=round(served_s, 1),
                starts_in_s=round(wait_s, 2),
                serving=self.serving,
            )
            await self._rest(wait_s)
            if not self._stopping.is_set():
                PROCESS_RESTARTS.at(process=str(number)).add()

    async def _run_once(self, number: int) -> Ended:
        """Starts it and waits for its end."""
        try:
            # While others serve, callers are better off with them than with one that waits.
            child = await self._start(
                number, bind_first=self.serving == 0, heard=lambda: self._heard(number)
            )
        except OSError as error:
            return Ended(code=1, refusal=f"cannot start a process: {error.strerror or error}")
        self.children[number] = child
        log.info("a process was started", action="child_started", process=number, pid=child.pid)
        try:
            if self._stopping.is_set():
                child.stop()
            return await child.wait()
        finally:
            del self.children[number]
            self._beats_missed.pop(number, None)

    def _heard(self, number: int) -> None:
        child = self.children[number]
        self._beats_missed[number] = 0
        if not child.is_ready or number in self._ready_at_s:
            return
        self._ready_at_s[number] = self._now_s()
        log.info("a process serves", action="child_ready", process=number, serving=self.serving)
        children = [child for _, child in sorted(self.children.items())]
        if not self._greeted and sum(each.is_ready for each in children) == self._wanted:
            self._greeted = True
            self._greet(children)

    def _problem(self, number: int) -> str | None:
        """Why a process does not serve. Also for other threads."""
        child = self.children.get(number)
        if child is None:
            return "not running"
        missed = self._beats_missed.get(number, 0)
        if missed >= SILENT_BEATS:
            return f"it hangs: silent for {missed * BEAT_S:.0f} s"
        return child.problem

    async def _rest(self, seconds: float) -> None:
        """Sleeps, unless all are to end."""
        sleeping = asyncio.ensure_future(self._sleep(seconds))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({sleeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for each in (sleeping, stopping):
            each.cancel()
