"""A server of several processes, from its start to its end."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from random import Random

from prometheus_client import CollectorRegistry

from counter.http_endpoint import HttpEndpoint
from counter.telemetry import LogFormat
from tally import process
from tally.config import Config
from tally.greeting import fleet_greeting
from tally.program import log_warnings
from tally.supervision.children import SCRAPED_WITHIN_S, Child
from tally.supervision.merged_metrics import MergedMetrics
from tally.supervision.messages import Family, Task
from tally.supervision.port import SharedPort
from tally.supervision.supervisor import Process, Supervisor


def run(
    config: Config,
    processes: int,
    *,
    listen: str,
    metrics: str | None,
    log_format: LogFormat,
) -> int:
    """Runs until a signal; the exit code."""
    supervisor: Supervisor | None = None

    async def main(stop: asyncio.Event) -> None:
        nonlocal supervisor
        log_warnings(config)
        with ExitStack() as stack:
            port = stack.enter_context(SharedPort(listen))
            details: list[str] = []

            async def start(number: int, *, bind_first: bool, heard: Callable[[], None]) -> Process:
                task = Task(
                    number=number,
                    config=config,
                    listen=port.listen,
                    log_format=log_format,
                    bind_first=bind_first,
                )
                return await Child.start(task, heard)

            def greet(children: Sequence[Process]) -> None:
                pids = ", ".join(str(child.pid) for child in children)
                lines = [*children[0].details, f"{processes} processes: {pids}", *details]
                print(fleet_greeting("server", port.listen, port.port, lines), flush=True)

            supervisor = Supervisor(
                processes, start, greet=greet, now_s=time.monotonic, random=Random()
            )
            if metrics is not None:
                endpoint = stack.enter_context(_endpoint(metrics, supervisor))
                details.append(f"metrics on http://{endpoint.address}/metrics")
            await supervisor.run(stop)

    def kill_all() -> None:
        if supervisor is not None:
            supervisor.kill_all()

    return process.run(main, log_format, before_exit=kill_all)


def _endpoint(listen: str, supervisor: Supervisor) -> HttpEndpoint:
    loop = asyncio.get_running_loop()

    async def scrape_all() -> dict[str, list[Family]]:
        children = sorted(supervisor.children.items())
        answers = await asyncio.gather(*(child.scrape() for _, child in children))
        return {str(number): each for (number, _), each in zip(children, answers, strict=True)}

    def scrape() -> Mapping[str, Sequence[Family]]:
        asked = asyncio.run_coroutine_threadsafe(scrape_all(), loop)
        return asked.result(SCRAPED_WITHIN_S + 1)

    registry = CollectorRegistry()
    registry.register(MergedMetrics(scrape))
    return HttpEndpoint(listen, setting="--metrics", registry=registry, health=supervisor.health)
