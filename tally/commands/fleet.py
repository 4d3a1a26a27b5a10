"""What `tally server`, `tally worker`, `tally control-plane` and `tally schema` have in common."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tally.commands.extras import needs_server_extra
from tally.commands.values import require_address
from tally.output import ExitCode, complain

if TYPE_CHECKING:
    from tally.config import Config

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The fleet's config file; configs/fleet.yaml is an example.",
        show_default=False,
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where to serve, instead of what the file says. Port 0: a free one.",
        show_default=False,
    ),
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Where Prometheus finds metrics, instead of what the file says. Port 0: a free one.",
        show_default=False,
    ),
]
LogFormatOption = Annotated[
    Literal["text", "json"], typer.Option("--log-format", help="For people or for programs.")
]


def load_config(path: Path, command: str) -> "Config":
    """The config; ends the command, with one line per mistake, if it cannot be used."""
    with needs_server_extra(command):
        from tally.config import ConfigError, load
    try:
        return load(path)
    except ConfigError as error:
        for mistake in error.mistakes:
            complain(str(mistake))
        raise typer.Exit(ExitCode.REFUSED) from error


def run_program(
    name: Literal["server", "worker", "control-plane"],
    config: Path,
    listen: str | None,
    metrics: str | None,
    log_format: Literal["text", "json"],
    **more: int | None,
) -> int:
    """`more` is for options of one program alone."""
    for option, address in (("--listen", listen), ("--metrics", metrics)):
        if address is not None:
            require_address(option, address)
    loaded = load_config(config, f"tally {name}")
    with needs_server_extra(f"tally {name}"):
        from tally import fleet
    return fleet.run(name, loaded, listen=listen, metrics=metrics, log_format=log_format, **more)
