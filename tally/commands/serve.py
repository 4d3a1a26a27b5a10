"""`tally serve`: reads the settings and hands them to the all-in-one process."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.models import OptionInfo

from counter.errors import SetupError
from counter.settings import SHARDS_MAX, Platform
from tally.commands.connection import SERVER_DEFAULT
from tally.commands.extras import needs_server_extra
from tally.commands.values import parse_duration_ms, require_address

_DEFAULTS = Platform()


def _duration(name: str, help: str, *, shown: str) -> OptionInfo:
    """An option in milliseconds, with its default as a person writes it."""
    option: OptionInfo = typer.Option(
        name, metavar="DURATION", parser=parse_duration_ms, help=help, show_default=shown
    )
    return option


def serve(
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Where to serve. Port 0: a free one."),
    ] = SERVER_DEFAULT,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Where the counters are kept.")
    ] = Path("data"),
    namespaces: Annotated[
        Path,
        typer.Option(
            "--namespaces", metavar="DIR", help="One YAML file per namespace; changes are loaded."
        ),
    ] = Path("configs/namespaces"),
    window: Annotated[
        int, _duration("--window", "Length of a window; fixed by the first start.", shown="1s")
    ] = _DEFAULTS.window_ms,
    shards: Annotated[
        int,
        typer.Option(
            "--shards", min=1, max=SHARDS_MAX, metavar="N", help="Fixed by the first start."
        ),
    ] = _DEFAULTS.shards,
    accept_limit: Annotated[
        int, _duration("--accept-limit", "How late an event may come.", shown="5s")
    ] = _DEFAULTS.accept_limit_ms,
    max_clock_skew: Annotated[
        int, _duration("--max-clock-skew", "How far clocks may differ.", shown="500ms")
    ] = _DEFAULTS.max_clock_skew_ms,
    log_retention: Annotated[
        int, _duration("--log-retention", "How long a token's outcome can be told.", shown="24h")
    ] = _DEFAULTS.log_retention_s * 1_000,
    region: Annotated[
        str, typer.Option("--region", metavar="NAME", help="The region in all keys.")
    ] = _DEFAULTS.region,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option("--log-format", help="For people or for programs."),
    ] = "text",
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Where Prometheus finds metrics. Port 0: a free one.",
            show_default="nowhere",
        ),
    ] = None,
) -> int:
    """Run all of Tally in one process, until Ctrl-C or SIGTERM."""
    require_address("--listen", listen)
    if metrics is not None:
        require_address("--metrics", metrics)
    for name, value_ms in (("--window", window), ("--log-retention", log_retention)):
        if value_ms <= 0:
            raise typer.BadParameter(f"{name} must be longer than nothing.")
    if log_retention % 1_000:
        raise typer.BadParameter("--log-retention is kept in whole seconds.")
    with needs_server_extra("tally serve"):
        from tally import embedded
    try:
        platform = Platform(
            region=region,
            window_ms=window,
            shards=shards,
            accept_limit_ms=accept_limit,
            max_clock_skew_ms=max_clock_skew,
            log_retention_s=log_retention // 1_000,
        )
    except SetupError as error:
        raise typer.BadParameter(error.message) from error
    return embedded.serve(
        embedded.ServeSettings(
            listen=listen,
            data=data,
            namespaces=namespaces,
            platform=platform,
            log_format=log_format,
            metrics=metrics,
        )
    )
