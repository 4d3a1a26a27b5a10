"""An event loop in a thread of its own, on which synchronous callers run asyncio code."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from clients.errors import ClientClosed

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, so that a forgotten `close` does not keep a program up."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tally-client", daemon=True
        )
        self._thread.start()

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

    def close(self, last_call: Coroutine[Any, Any, None]) -> None:
        """Runs the last call, lets the others end, and stops. Later calls raise ClientClosed."""
        with self._lock:
            if self._closed:
                last_call.close()
                return
            self._closed = True
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
