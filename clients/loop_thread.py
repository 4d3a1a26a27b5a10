"""An event loop in a thread of its own, on which synchronous callers run asyncio code."""

import asyncio
import atexit
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from clients.errors import ClientClosed

T = TypeVar("T")


# Those that nobody closed are told when the program ends.
_OPEN: "set[LoopThread]" = set()


class LoopThread:
    """An event loop in a daemon thread, so that a forgotten `close` does not keep a program up.

    What many threads ask for at once is handed over through one inbox, with one wake-up of the
    loop: a wake-up costs more than most of what is handed over.
    """

    def __init__(self, *, before_exit: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`before_exit` runs when the program ends while this is open."""
        self._before_exit = before_exit
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._inbox: list[tuple[Callable[[], None], concurrent.futures.Future[Any] | None]] = []
        self._closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tally-client", daemon=True
        )
        self._thread.start()
        _OPEN.add(self)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                call.close()
                raise ClientClosed
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C must not leave the call running
            future.cancel()
            raise

    def ask(
        self,
        call: Callable[[concurrent.futures.Future[T]], None],
        *,
        abandoned: Callable[[], None] | None = None,
    ) -> T:
        """Runs the call on the loop, and waits until it or something later answers the future.

        `abandoned` runs on the loop if the caller is interrupted.
        """
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.hand_over(lambda: call(future), future)
        try:
            return future.result()
        except BaseException:
            if future.cancel() and abandoned is not None and not self._closed:
                self.hand_over(abandoned)
            raise

    def hand_over(
        self,
        call: Callable[[], None],
        future: concurrent.futures.Future[Any] | None = None,
        *,
        if_room: Callable[[int], None] | None = None,
    ) -> None:
        """Runs the call on the loop, after all that were handed over before.

        `if_room` is asked first, with the number of calls that wait in the inbox; it may raise.
        """
        with self._lock:
            if self._closed:
                raise ClientClosed
            if if_room is not None:
                if_room(len(self._inbox))
            self._inbox.append((call, future))
            if len(self._inbox) == 1:
                self._loop.call_soon_threadsafe(self._empty_inbox)

    def _empty_inbox(self) -> None:
        with self._lock:
            calls, self._inbox = self._inbox, []
        for call, future in calls:
            try:
                call()
            except Exception as error:
                if future is None:
                    raise
                if not future.done():
                    future.set_exception(error)

    def close(self, last_call: Coroutine[Any, Any, None]) -> None:
        """Runs the last call, lets the others end, and stops. Later calls raise ClientClosed."""
        with self._lock:
            if self._closed:
                last_call.close()
                return
            self._closed = True
            _OPEN.discard(self)
            future = asyncio.run_coroutine_threadsafe(self._drain(last_call), self._loop)
        future.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _drain(last_call: Coroutine[Any, Any, None]) -> None:
        await last_call
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    def end(self) -> None:
        """The program ends, and nobody has closed this."""
        self.run(self._before_exit())


@atexit.register
def _end_all() -> None:
    for thread in list(_OPEN):
        thread.end()
