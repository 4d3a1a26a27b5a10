"""`tally dev`: real Cassandra and memcached on this machine, for trying and developing a fleet."""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from counter.errors import SetupError, StoreUnavailable
from tally.commands.connection import JsonOption
from tally.commands.dev_progress import DevProgress
from tally.commands.extras import needs_server_extra
from tally.commands.fleet import load_config
from tally.output import (
    Column,
    ExitCode,
    Failure,
    console,
    is_terminal,
    print_json,
    print_table,
    printable,
    say,
)

if TYPE_CHECKING:
    from tally.dev.backends import Backends, State

DIRECTORY = Path(".tally-dev")
NAMESPACES = Path("configs/namespaces")
NODES_MAX = 9
COMMAND = "tally dev"
STATUS_FIELDS = (
    "JSON: directory, config, backends, a list of: name, address, state (ready, running or "
    "stopped), pid, memory_mb, log."
)

app = typer.Typer(
    help="Cassandra and memcached on this machine, to develop with.", no_args_is_help=True
)

DirectoryOption = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Where everything of it is kept.")
]


@app.command("fetch")
def fetch() -> int:
    """Bring what `up` needs, and start nothing: for CI, and for images of machines.

    Cassandra with Maven, once per user; Java, Maven and memcached as root on Debian.
    """
    with needs_server_extra(COMMAND):
        from tally.dev.jars import FILES_EXPECTED, cassandra_jars

    with _interruptible(), _failures(), DevProgress(FILES_EXPECTED) as progress:
        _install(progress)
        cassandra_jars(progress.fetching)
        progress.fetched()
    return ExitCode.OK


@app.command("up")
def up(
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            metavar="N",
            min=1,
            max=NODES_MAX,
            help="How many Cassandra nodes: 127.0.0.1, 127.0.0.2, ... Fixed by the first start.",
            show_default="1",
        ),
    ] = None,
    directory: DirectoryOption = DIRECTORY,
) -> int:
    """Start Cassandra and memcached, create the tables, and write a config file.

    They go on running in the background, until `tally dev down`. Safe to run again: what runs is
    left alone, and what has died is started. Cassandra is fetched with Maven the first time.
    """
    with needs_server_extra(COMMAND):
        from tally.dev.backends import Backends
        from tally.dev.fleet_config import write_config
        from tally.dev.jars import FILES_EXPECTED

    backends = Backends(directory)
    with _interruptible(), _failures(), DevProgress(FILES_EXPECTED) as progress:

        def prepare(state: "State") -> None:
            _apply_schema(write_config(backends, state, NAMESPACES), progress)

        _install(progress)
        backends.up(nodes, progress, prepare)
    _say_next(backends)
    return ExitCode.OK


@app.command("down")
def down(
    purge: Annotated[
        bool, typer.Option("--purge", help="Also remove the data and the config file.")
    ] = False,
    directory: DirectoryOption = DIRECTORY,
) -> int:
    """Stop what `tally dev up` has started. The data stays, and the next `up` goes on with it."""
    backends = _backends(directory)
    with _failures():
        if backends.state is None:
            say(f"nothing to stop: no tally dev up has been run in {directory}")
            return ExitCode.OK
        stopped = backends.down(purge=purge)
    say(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")
    if purge:
        say(f"removed the data in {directory}")
    else:
        option = "" if directory == DIRECTORY else f" --dir {shlex.quote(str(directory))}"
        say(f"the data stays in {directory}. To remove it: tally dev down --purge{option}")
    return ExitCode.OK


@app.command("status", epilog=STATUS_FIELDS)
def status(directory: DirectoryOption = DIRECTORY, json: JsonOption = False) -> int:
    """Show what runs, and where. Exit code 3: not everything is ready."""
    backends = _backends(directory)
    with _failures():
        state = backends.state
        found = [] if state is None else backends.status(state)
    if json:
        rows = [
            {
                "name": each.name,
                "address": each.address,
                "state": each.state,
                "pid": each.pid,
                "memory_mb": each.memory_mb,
                "log": str(each.log),
            }
            for each in found
        ]
        config = str(backends.config) if backends.config.exists() else None
        print_json({"directory": str(backends.directory), "config": config, "backends": rows})
    elif state is None:
        raise Failure(
            f"nothing was started in {directory}. Start it with: tally dev up",
            ExitCode.UNREACHABLE,
        )
    else:
        print_table(
            (
                Column(title="backend"),
                Column(title="address"),
                Column(title="state"),
                Column(title="pid", right=True, optional=True),
                Column(title="memory", right=True, optional=True),
                Column(title="log"),
            ),
            [
                (
                    each.name,
                    each.address,
                    each.state,
                    "" if each.pid is None else str(each.pid),
                    "" if each.memory_mb is None else f"{each.memory_mb} MB",
                    _short(each.log),
                )
                for each in found
            ],
        )
    everything = bool(found) and all(each.state == "ready" for each in found)
    return ExitCode.OK if everything else ExitCode.UNREACHABLE


def _backends(directory: Path) -> "Backends":
    with needs_server_extra(COMMAND):
        from tally.dev.backends import Backends

    return Backends(directory)


def _install(progress: DevProgress) -> None:
    """What the machine lacks is installed, or the command ends with how to."""
    from tally.dev.jars import cached_jars
    from tally.dev.requirements import can_install, how_to_install, install, missing

    absent = missing(jars_are_there=cached_jars() is not None)
    if not absent:
        return
    if not can_install():
        raise SetupError(how_to_install(absent))
    names = ", ".join(each.name for each in absent)
    progress.note("apt-get", f"installing {names}")
    for line in install(absent):
        progress.passing("apt-get", line)
    progress.note("apt-get", f"installed {names}", ends=True)


def _apply_schema(config: Path, progress: DevProgress) -> None:
    """Creates or updates the tables, with the file as programs read it: it may be edited."""
    from counter.storage.cassandra import schema

    progress.note("tables", "looking")
    settings = load_config(config, COMMAND)
    if settings.replication is None:
        raise SetupError(
            settings.refusal(
                "cassandra.replication", "is required to create the keyspace", ""
            ).message
        )
    try:
        asyncio.run(
            schema.apply(
                settings.cassandra, settings.replication, lambda step: progress.note("tables", step)
            )
        )
    except StoreUnavailable as error:
        raise SetupError(f"the tables could not be created: {error.message}") from error
    progress.note("tables", "ready", ends=True)


def _say_next(backends: "Backends") -> None:
    config = shlex.quote(_short(backends.config))
    settings = load_config(backends.config, COMMAND)
    if is_terminal():
        say("")  # apart from the progress display
    # As the reader has typed this command: in a clone, `tally` alone is not on the PATH.
    tally = "uv run tally" if "UV_RUN_RECURSION_DEPTH" in os.environ else "tally"
    say(f"The config file is {config}. Start the fleet, each program in a terminal of its own:")
    for program in ("control-plane", "worker", "server"):
        say(f"  {tally} {program} --config {config}")
    say("Then count:")
    say(f"  {tally} --server {settings.server.listen} add video_plays title-42 --get")
    say(f"Stop the backends with: {tally} dev down")


def _short(path: Path) -> str:
    """As a person in this directory would write it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C, a kill and a closed terminal all let the command clean up, once."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _failures() -> Iterator[None]:
    """An error's first line is the message. What follows, the end of a log, is shown as it is."""
    try:
        yield
    except SetupError as error:
        message, _, details = error.message.partition("\n")
        for line in details.splitlines():
            console(sys.stderr).print(f"  {printable(line)}", style="dim")
        raise Failure(message) from error
