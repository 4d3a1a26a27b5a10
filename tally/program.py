"""A program of the fleet as a process: bound first, ready later, stopped in the reverse order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Protocol, TypeVar

import structlog

from counter.errors import StoreUnavailable
from counter.metrics_endpoint import MetricsEndpoint
from counter.rpc.server import RpcServer
from tally import process
from tally.config import Config
from tally.greeting import fleet_greeting

RETRY_S = 1.0
TOLD_EVERY_S = 10.0

Answer = TypeVar("Answer")

log = structlog.get_logger()


class Readiness:
    """What a program waits for before it can serve: told in the log, to its callers, and to `told`,
    which answers for its health."""

    def __init__(self, rpc: RpcServer, told: Callable[[str | None], None]) -> None:
        self.rpc = rpc
        self._tell = told
        self._told_s: dict[str, float] = {}

    async def answer_of(
        self, store: str, where: str, ask: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Asks until the store answers. Other errors, like a wrong setting, are not for waiting."""
        while True:
            try:
                return await ask()
            except StoreUnavailable as error:
                self.awaits(f"waiting for {where}")
                if self.is_due("store_awaited"):
                    log.warning(
                        "waiting for the store",
                        action="store_awaited",
                        store=store,
                        where=where,
                        problem=error.message,
                    )
            await asyncio.sleep(RETRY_S)

    def awaits(self, problem: str) -> None:
        self.rpc.late.awaited = problem
        self._tell(problem)

    def is_due(self, action: str) -> bool:
        """Whether a line of the log that says the same again may be said again."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s.get(action, -TOLD_EVERY_S) < TOLD_EVERY_S:
            return False
        self._told_s[action] = now_s
        return True


class Program(Protocol):
    name: str  # as it is typed
    service: str

    async def start(self, readiness: Readiness, stack: AsyncExitStack) -> None:
        """Returns when the program can serve; what it must undo at its end is on the stack.

        Raises SetupError for what waiting would not mend.
        """
        ...

    def problem(self) -> str | None:
        """Why it cannot serve now, once it has started."""
        ...

    def details(self) -> Sequence[str]:
        """What it runs on, for the greeting."""
        ...


def log_warnings(config: Config) -> None:
    for warning in config.warnings:
        log.warning("a setting is doubtful", action="config_warning", warning=str(warning))


async def run_program(
    program: Program, rpc: RpcServer, *, listen: str, metrics: str | None, stop: asyncio.Event
) -> None:
    """Runs until `stop` as a process of its own, with its own metrics and its own greeting."""
    with ExitStack() as stack:
        endpoint: MetricsEndpoint | None = None
        if metrics is not None:
            endpoint = stack.enter_context(MetricsEndpoint(metrics, setting="--metrics"))

        def ready(port: int) -> None:
            details = list(program.details())
            if endpoint is not None:
                details.append(f"metrics on http://{endpoint.address}/metrics")
            print(fleet_greeting(program.name, listen, port, details), flush=True)

        await serve_program(
            program,
            rpc,
            listen=listen,
            stop=stop,
            ready=ready,
            told=endpoint.tell if endpoint else lambda _: None,
        )


async def serve_program(
    program: Program,
    rpc: RpcServer,
    *,
    listen: str,
    stop: asyncio.Event,
    ready: Callable[[int], None],
    told: Callable[[str | None], None],
    bind_first: bool = True,
) -> None:
    """Runs until `stop`. Calls end first, then the program's own work, then its stores.

    `ready` gets the port once the program serves. `told` hears why it does not, or None, several
    times a second from then on. Without `bind_first` nobody can call before it is ready: for where
    others answer meanwhile.
    """
    async with AsyncExitStack() as stack:
        port = await rpc.start(listen, (program.service,)) if bind_first else 0
        grace_s = 0.0  # for calls under way: there are none that matter before it is ready
        try:
            if await _ends_before(stop, program.start(Readiness(rpc, told), stack)):
                grace_s = process.STOP_GRACE_S
                if not bind_first:
                    port = await rpc.start(listen, (program.service,))
                await process.report_health(
                    rpc, lambda: {program.service: program.problem()}, stack, told=told
                )
                process.tune_garbage_collection()
                ready(port)
                await stop.wait()
            log.info("stopping: finishing what was accepted", action="stopping")
        finally:
            await rpc.stop(grace_s)
    log.info("stopped", action="stopped")


async def _ends_before(stop: asyncio.Event, start: Awaitable[None]) -> bool:
    """Whether `start` ended by itself; it is cancelled if `stop` comes first."""
    starting = asyncio.ensure_future(start)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    return False
