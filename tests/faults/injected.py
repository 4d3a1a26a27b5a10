"""Faults of one process, from outside: a clock that a test moves, and steps at which the process
kills or stops itself. Give them to a process of `tests.processes` or `tests.fleet`; they hold over
its restarts."""

import os
import signal
import time
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from tests.calls import eventually
from tests.faults.page import Page
from tests.faults.steps import Step

NS_PER_S = 1_000_000_000
_STEPS = list(Step)


class Deed(IntEnum):
    KILL = signal.SIGKILL
    STOP = signal.SIGSTOP


class Hit(NamedTuple):
    """A failpoint that did what it was armed for."""

    step: Step
    deed: Deed
    pid: int


class Faults:
    """Both sides open the same directory: the test to arm, the process to obey."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._page = Page(directory / "page")
        self._hits = directory / "hits"
        self._network = directory / "network"
        # What runs a program of Tally under these faults, instead of `python -m tally`.
        self.python_arguments = ("-m", "tests.faults.launch", str(directory))

    # The test's side.

    def kill_at(self, step: Step, *, nth: int = 1) -> None:
        """kill -9 when the step is reached for the nth time from now on. One step at a time."""
        self._page.arm(1 + _STEPS.index(step), Deed.KILL, nth)

    def stop_at(self, step: Step, *, nth: int = 1) -> None:
        """The same, but it stands still (SIGSTOP), until somebody resumes it."""
        self._page.arm(1 + _STEPS.index(step), Deed.STOP, nth)

    def disarm(self) -> None:
        self._page.arm(0, 0, 0)

    def hits(self) -> list[Hit]:
        """All that took place so far, over all restarts."""
        if not self._hits.exists():
            return []
        lines = (line.split("\t") for line in self._hits.read_text().splitlines())
        return [Hit(Step(step), Deed(int(deed)), int(pid)) for step, deed, pid in lines]

    def wait_hit(self, number: int, *, within_s: float = 60.0) -> Hit:
        """Waits until the process has met so many failpoints; the last one."""
        hits = eventually(self.hits, lambda hits: len(hits) >= number, within_s=within_s)
        return hits[number - 1]

    def set_clock(self, *, ahead_s: float = 0.0, gains_s_per_s: float = 0.0) -> None:
        """The wall clock of the process steps to so far ahead of the right time (negative: behind)
        and from there on goes faster by so much (negative: slower). Steady clocks go on."""
        offset_ns, rate_ppm = int(ahead_s * NS_PER_S), int(gains_s_per_s * 1_000_000)
        self._page.set_clock(offset_ns, rate_ppm, time.monotonic_ns())

    def clock_ahead_s(self) -> float:
        """How far the clock is ahead now."""
        return self._page.ahead_ns(time.monotonic_ns) / NS_PER_S

    def reach_cassandra_at(self, network: str) -> None:
        """A process that starts from now on looks for the node 127.0.0.N at `network`.N, whatever
        address the nodes announce. Its config file names the first ones."""
        self._network.write_text(network)

    # The process's side.

    def cassandra_network(self) -> str | None:
        return self._network.read_text() if self._network.exists() else None

    def ahead_ns(self) -> int:
        return self._page.ahead_ns(time.monotonic_ns)

    def reach(self, step: Step) -> None:
        """Does what is armed for this step, after a note on disk that it does."""
        if not self._page.is_due(1 + _STEPS.index(step)):
            return
        deed = Deed(self._page.deed)
        note = f"{step.value}\t{deed.value}\t{os.getpid()}\n".encode()
        file = os.open(self._hits, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(file, note)
        os.fsync(file)
        os.close(file)
        os.kill(os.getpid(), deed)
