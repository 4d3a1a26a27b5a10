"""Work that goes on beside the calls for as long as a process lives."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from counter.metrics import BACKGROUND_FAILURES

RETRY_S = 1.0

log = structlog.get_logger()


def keep_running(name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """Runs it until it returns or is cancelled.

    What it foresees it handles itself. What it does not is logged and counted, and it begins anew:
    a process that goes on without it would look healthy, and be wrong for ever.
    """

    async def run_anew() -> None:
        while True:
            try:
                await run()
                return
            except Exception:
                BACKGROUND_FAILURES.at().add()
                log.exception(
                    "work in the background failed unexpectedly: it begins anew",
                    action="background_failed",
                    work=name,
                )
            await asyncio.sleep(RETRY_S)

    BACKGROUND_FAILURES.at()  # shown from 0 on
    return asyncio.create_task(run_anew(), name=name)


def heard(shared: "asyncio.Future[Any]") -> None:
    """For work that several callers share, when it is done: its error is theirs to tell, and no
    news if all of them have gone away. Python would print it as one that nobody looked at."""
    if not shared.cancelled():
        shared.exception()
