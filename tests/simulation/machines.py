"""Machines: each runs one program, with a clock of its own, until it crashes."""

from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from counter.clock import NS_PER_S
from tests.simulation.loop import BEGIN_S, LIFE, NOBODY, Life, VirtualLoop


class MachineClock:
    """Wall time as one machine sees it: off by some time, fast or slow, and it may be stepped."""

    def __init__(self, loop: VirtualLoop, epoch_ns: int) -> None:
        self._loop = loop
        self._epoch_ns = epoch_ns
        self.offset_ns = 0
        self.changes = 0  # how often somebody set it
        self._drift = 0.0
        self._drifts_from_s = BEGIN_S

    def now_ns(self) -> int:
        now_s = self._loop.time()
        drifted_s = (now_s - self._drifts_from_s) * self._drift
        return self._epoch_ns + self.offset_ns + int((now_s + drifted_s) * NS_PER_S)

    def step(self, seconds: float) -> None:
        self.changes += 1
        self.offset_ns += int(seconds * NS_PER_S)

    def drift(self, rate: float) -> None:
        """From now on; what it has drifted so far stays."""
        self.changes += 1
        now_s = self._loop.time()
        self.offset_ns += int((now_s - self._drifts_from_s) * self._drift * NS_PER_S)
        self._drift, self._drifts_from_s = rate, now_s

    def set_right(self) -> None:
        self.drift(0.0)
        self.offset_ns = 0


class Machine:
    def __init__(self, name: str, loop: VirtualLoop, epoch_ns: int) -> None:
        self.name = name
        self.loop = loop
        self.epoch_ns = epoch_ns
        self.clock = MachineClock(loop, epoch_ns)
        self.life: Life | None = None
        self.lives = 0
        # By statement: what happens when the machine is about to send the next one.
        self.ambushes: dict[str, Callable[[], None]] = {}
        self._context: Context | None = None

    @property
    def is_alive(self) -> bool:
        return self.life is not None and not self.life.dead

    def start(self, program: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert not self.is_alive, self.name
        self.lives += 1
        self.ambushes.clear()
        self.life = Life(self)
        self._context = NOBODY.copy()
        self._context.run(LIFE.set, self.life)
        self.run(program())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """A task of this machine, which ends with its life."""
        assert self._context is not None
        task = self.loop.create_task(work, context=self._context.copy())
        task.add_done_callback(self._ended, context=NOBODY)
        return task

    def _ended(self, task: Any) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.loop.uncaught.append({"message": self.name, "exception": task.exception()})

    def crash(self) -> None:
        if self.life is not None:
            self.life.dead = True
            self.life.held.clear()

    def pause(self) -> None:
        if self.life is not None:
            self.life.paused = True

    def resume(self) -> None:
        if self.life is not None and self.life.paused:
            self.loop.resume(self.life)


def wall_clock_ns() -> int:
    """Of whichever machine asks: for code that asks the system and not a clock of its own."""
    life = LIFE.get()
    assert life is not None, "only programs on machines ask for the time"
    now_ns: int = life.machine.clock.now_ns()
    return now_ns
