"""An event loop of virtual time, on which whole machines can stop.

Nothing waits: when no callback is ready, time jumps to the next timer. Callbacks run in the order
in which they were scheduled, so a run depends on nothing but its seed.

Each callback belongs to the life of a machine (or to none: the network, clients, the nemesis).
Which one travels in the context that asyncio hands from task to task, so product code needs to know
nothing of it. The callbacks of a life that has ended are dropped: that is a crash, between any two
awaits. Those of one that is paused are kept until it goes on.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

# Callbacks of one run. Far more than any run needs: one that reaches it goes round in circles.
STEPS_MAX = 5_000_000
# The first instant; product code takes 0 for "never" here and there.
BEGIN_S = 1_000.0


class Life:
    """One run of a machine's process, from a start to a crash."""

    __slots__ = ("after_steps", "dead", "held", "machine", "paused", "steps_left")

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.dead = False
        self.paused = False
        self.held: list[Handle] = []
        # A fault that strikes so many callbacks from now, rather than at a time: most of what a
        # process does between two answers of the store takes no virtual time at all.
        self.steps_left = -1
        self.after_steps: Callable[[], None] | None = None

    def strike_after(self, steps: int, strike: Callable[[], None]) -> None:
        self.steps_left, self.after_steps = steps, strike


LIFE: ContextVar[Life | None] = ContextVar("LIFE", default=None)
# Of everything that no machine's crash takes away.
NOBODY = Context()


class Handle:
    __slots__ = ("_args", "_callback", "_cancelled", "_context", "life", "when_s")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self.when_s = 0.0
        # What is nobody's needs no context: most messages of the network are.
        self.life: Life | None = None
        self._context: Context | None = None
        if context is not NOBODY:
            self._context = copy_context() if context is None else context
            self.life = self._context.get(LIFE)

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self.when_s

    def run(self) -> None:
        if self._context is None:
            self._callback(*self._args)
        else:
            self._context.run(self._callback, *self._args)


class VirtualLoop(asyncio.AbstractEventLoop):
    def __init__(self) -> None:
        self._now_s = BEGIN_S
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._timers_made = 0
        self._running = False
        self.steps = 0
        # Kept, so that no task of a machine that crashed is collected while others run.
        self._tasks: list[asyncio.Task[Any]] = []
        # What nobody caught: the product's mistakes, told to whoever checks the run.
        self.uncaught: list[dict[str, Any]] = []

    # Running.

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Runs the coroutine to its end, as nobody's; then nothing runs any more."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._running = True
        try:
            task = self.create_task(main, context=NOBODY.copy())
            while not task.done():
                self._step()
            return task.result()
        finally:
            self._running = False
            asyncio._set_running_loop(before)

    def _step(self) -> None:
        if not self._ready:
            self._advance()
        handle = self._ready.popleft()
        if handle._cancelled:
            return
        life = handle.life
        if life is not None and self._is_held(life, handle):
            return
        self.steps += 1
        try:
            handle.run()
        except Exception as error:
            self.uncaught.append({"message": "a callback failed", "exception": error})

    def _is_held(self, life: Life, handle: Handle) -> bool:
        """Whether the callback is dropped, kept for later, or comes after a fault that strikes."""
        if life.dead:
            return True
        if life.paused:
            life.held.append(handle)
            return True
        if life.after_steps is not None:
            life.steps_left -= 1
            if life.steps_left < 0:
                strike, life.after_steps = life.after_steps, None
                self._ready.appendleft(handle)
                strike()
                return True
        return False

    def _advance(self) -> None:
        assert self._timers, "everybody waits, and nothing is to come"
        assert self.steps < STEPS_MAX, f"no end after {STEPS_MAX} steps"
        timers, ready = self._timers, self._ready
        now_s = self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= now_s:
            ready.append(heapq.heappop(timers)[2])

    def resume(self, life: Life) -> None:
        """What came up during its pause comes now, in order."""
        life.paused = False
        held, life.held = life.held, []
        self._ready.extend(held)

    def bury(self) -> None:
        """Closes what will never go on, after the run."""
        for task in self._tasks:
            if not task.done():
                # Some do not like to be closed where they wait. Nobody hears them any more.
                with suppress(Exception):
                    task.get_coro().close()  # type: ignore[union-attr]
        self._tasks.clear()

    # What asyncio wants of a loop.

    def time(self) -> float:
        return self._now_s

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = Handle(callback, args, context)
        if self._running:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        # Not by call_at: this is called more often than anything else.
        handle = Handle(callback, args, context)
        handle.when_s = when_s = self._now_s + delay
        self._timers_made += 1
        heapq.heappush(self._timers, (when_s, self._timers_made, handle))
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        handle = Handle(callback, args, context)
        handle.when_s = when
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # crashes leave many
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.uncaught.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False
