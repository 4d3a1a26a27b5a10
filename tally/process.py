"""What the programs have in common as processes: signals, logs, garbage, health, their end."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

import structlog
import uvloop

from counter.background import keep_running
from counter.errors import TallyError
from counter.rpc.server import RpcServer
from counter.telemetry import LogFormat, configure_logs

STOP_GRACE_S = 10.0
# One Ctrl-C can arrive twice: from the terminal, and passed on by `make` or `uv run`.
_SAME_SIGNAL_S = 0.5
_HEALTH_EVERY_S = 0.25
# Short turns of the interpreter lock: threads hand their results over sooner.
_SWITCH_INTERVAL_S = 0.001
_GARBAGE_THRESHOLDS = (3_000, 50, 100)

log = structlog.get_logger()

# By service: what keeps it from serving, if anything does.
Problems = Callable[[], Mapping[str, str | None]]


def complain(message: str) -> None:
    print(f"tally: {message}", file=sys.stderr, flush=True)


def run(
    main: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
    log_format: LogFormat,
    *,
    refuse: Callable[[str], None] = complain,
    before_exit: Callable[[], None] = lambda: None,
    **always: Any,
) -> int:
    """Runs `main` until it ends; the exit code. Its event is set by the first signal, and it is
    expected to end soon after. A second signal exits at once, after `before_exit`.

    `refuse` is told why it could not go on; `always` is in every line of the log.
    """
    configure_logs(log_format, **always)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)

    async def stoppable() -> None:
        await main(_stop_on_signals(before_exit))

    try:
        uvloop.run(stoppable())
    except TallyError as error:
        refuse(error.message)
        return 1
    return 0


def _stop_on_signals(before_exit: Callable[[], None]) -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first_s = 0.0

    def on_signal(number: int) -> None:
        nonlocal first_s
        if not stop.is_set():
            first_s = loop.time()
            stop.set()
        elif loop.time() - first_s > _SAME_SIGNAL_S:
            complain("second signal, exiting at once")
            before_exit()
            os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return stop


def tune_garbage_collection() -> None:
    """Adds make millions of objects and hardly any cycles: look for those less often, and never
    in what has been there since the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


async def report_health(
    rpc: RpcServer,
    problems: Problems,
    stack: AsyncExitStack,
    *,
    told: Callable[[str | None], None] | None = None,
) -> None:
    """Says of each service whether it is serving, now and on until the stack unwinds.

    The process as a whole serves if all of its services do: `told` hears of that alone. The log
    has the reason, which gRPC's health service has no room for.
    """
    not_serving: set[str] = set()

    def note(service: str, problem: str | None) -> None:
        if problem is None and service in not_serving:
            not_serving.discard(service)
            log.info("a service serves again", action="serving_again", service=service)
        elif problem is not None and service not in not_serving:
            not_serving.add(service)
            log.error(
                "a service does not serve", action="not_serving", service=service, problem=problem
            )

    async def report() -> None:
        found = problems()
        for service, problem in found.items():
            note(service, problem)
            await rpc.set_serving(service, serving=problem is None)
        first = next((each for each in found.values() if each is not None), None)
        await rpc.set_serving("", serving=first is None)
        if told is not None:
            told("stopping" if rpc.stopping.is_set() else first)

    async def report_for_ever() -> None:
        while True:
            await asyncio.sleep(_HEALTH_EVERY_S)
            await report()

    await report()
    stack.callback(keep_running("report health", report_for_ever).cancel)
