"""A process, as its supervisor sees it."""

import asyncio
import itertools
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import tally
from tally.supervision.messages import (
    LENGTH,
    Family,
    FromChild,
    Ready,
    Refused,
    Scrape,
    Scraped,
    Serving,
    Stop,
    Task,
    encode,
    encode_task,
    from_child,
)

# Less than Prometheus waits: one process that does not answer must not hide the others.
SCRAPED_WITHIN_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int  # of its exit; -9 for signal 9
    refusal: str | None = None  # it cannot start as configured

    @property
    def words(self) -> str:
        if self.refusal is not None:
            return self.refusal
        if self.code < 0:
            with suppress(ValueError):
                return f"killed by {signal.Signals(-self.code).name}"
            return f"killed by signal {-self.code}"
        return f"exited with code {self.code}"


class Child:
    """Made by `start`. `heard` is called whenever it has said how it is."""

    def __init__(
        self,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: Callable[[], None],
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._on_heard = heard
        self._told: str | None = None
        self._refusal: str | None = None
        self._requests = itertools.count(1)
        self._scrapes: dict[int, asyncio.Future[list[Family]]] = {}
        self._hearing = asyncio.create_task(self._hear())
        self.is_ready = False
        self.details: tuple[str, ...] = ()

    @classmethod
    async def start(cls, task: Task, heard: Callable[[], None]) -> "Child":
        """A Python of its own, in a session of its own: signals of a terminal are for the
        supervisor, which passes them on."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "tally.supervision.child"),
                    str(theirs.fileno()),
                    stdin=DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env=_environment(),
                )
        except BaseException:
            ours.close()
            raise
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        writer.write(encode_task(task))
        return cls(process, reader, writer, heard)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def problem(self) -> str | None:
        """Why it does not serve; None: it does."""
        return self._told or (None if self.is_ready else "starting")

    async def wait(self) -> Ended:
        """Until it has ended."""
        code = await self._process.wait()
        await self._hearing
        self._writer.close()
        for answer in self._scrapes.values():
            if not answer.done():
                answer.set_result([])
        return Ended(code=code, refusal=self._refusal)

    def stop(self) -> None:
        """Has it finish what it accepted, and end."""
        self._writer.write(encode(Stop()))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def scrape(self) -> list[Family]:
        """Its metrics; none if it does not answer in time."""
        request = next(self._requests)
        answer = self._scrapes[request] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(encode(Scrape(request)))
            return await asyncio.wait_for(answer, SCRAPED_WITHIN_S)
        except TimeoutError:
            return []
        finally:
            del self._scrapes[request]

    async def _hear(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                header = await self._reader.readexactly(LENGTH.size)
                body = await self._reader.readexactly(*LENGTH.unpack(header))
                self._heard(from_child.decode(body))

    def _heard(self, message: FromChild) -> None:
        match message:
            case Ready(details):
                self.is_ready, self.details = True, details
            case Serving(problem):
                self._told = problem
            case Refused(reason):
                self._refusal = reason
            case Scraped(request, families):
                answer = self._scrapes.get(request)
                if answer is not None and not answer.done():
                    answer.set_result(families)
                return
        self._on_heard()


def _environment() -> dict[str, str]:
    """So that it finds the same Tally, and nothing that lies in the current folder."""
    places = [str(Path(tally.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
