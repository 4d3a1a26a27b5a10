"""`tally server`."""

import os
from typing import Annotated

import typer

from counter.metrics import PROCESSES_MAX
from tally.commands.fleet import (
    ConfigOption,
    ListenOption,
    LogFormatOption,
    MetricsOption,
    run_program,
)

AUTO = "auto"

ProcessesOption = Annotated[
    str | None,
    typer.Option(
        "--processes",
        metavar="N|auto",
        help="How many processes take calls on the one port, instead of what the file says. "
        "auto: one for each core that this process may use.",
        show_default=False,
    ),
]


def server(
    config: ConfigOption,
    listen: ListenOption = None,
    metrics: MetricsOption = None,
    processes: ProcessesOption = None,
    log_format: LogFormatOption = "text",
) -> int:
    """Run a server of a fleet: takes calls (CounterService). Until Ctrl-C or SIGTERM.

    Any number of them share the stores that the config file names.
    """
    number = None if processes is None else parse_processes(processes)
    return run_program("server", config, listen, metrics, log_format, processes=number)


def parse_processes(text: str) -> int:
    if text == AUTO:
        return min(PROCESSES_MAX, _cores())
    if text.isascii() and text.isdigit() and 1 <= int(text) <= PROCESSES_MAX:
        return int(text)
    raise typer.BadParameter(
        f"--processes {text!r} is no number of processes. "
        f"Write a number from 1 to {PROCESSES_MAX}, or {AUTO}."
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not everywhere
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
