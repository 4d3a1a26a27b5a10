"""`tally namespaces`: which there are, who runs them, and a file for a new one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from clients import Namespace, NamespaceLimits, Strategy
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import NAMESPACES
from tally.commands.new_namespace import write_new
from tally.commands.process_view import FLEET_FIELDS, fleet_document, print_fleet
from tally.commands.values import format_count, format_setting_ms, format_time
from tally.output import (
    Column,
    ExitCode,
    Failure,
    console,
    is_terminal,
    print_json,
    print_table,
    say,
)

NAMESPACES_FIELDS = (
    "JSON: version, applied_at, namespaces, a list of: name, id, description, owner, strategy, "
    "cardinality, max_delta, cache_ttl_ms, cache_local_ttl_ms, dedupe_ttl_ms, history (a list of: "
    "step_ms, retention_ms), rolling_window_ms, limits (adds_per_s, reads_per_s, counters, "
    f"batch_items, names), shadow. JSON with --fleet: {FLEET_FIELDS}."
)
NEW = "new"
_WIDTH_OF_TABLE = 150
COLUMNS = (
    Column(title="name", style="cyan"),
    Column(title="id", right=True),
    Column(title="strategy"),
    Column(title="cardinality"),
    Column(title="max_delta", right=True),
    Column(title="cache", right=True),
    Column(title="local cache", right=True),
    Column(title="history", optional=True),
    Column(title="rolling window", right=True, optional=True),
    Column(title="owner", optional=True),
    Column(title="description", optional=True),
    Column(title="limits", optional=True),
    Column(title="shadow", optional=True),
)


def namespaces(
    context: typer.Context,
    # One word is a name; of two, the first is `new`.
    first: Annotated[
        str | None,
        typer.Argument(metavar="new", help="Write a file for NAME.", show_default=False),
    ] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Just this one.", show_default=False)
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            min=1,
            metavar="N",
            help="As they were in this version.",
            show_default="the live one",
        ),
    ] = None,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Show who runs which version instead.")
    ] = False,
    strategy: Annotated[
        Strategy,
        typer.Option("--strategy", help="Of a new namespace."),
    ] = Strategy.EVENTUAL,
    directory: Annotated[
        Path,
        typer.Option("--directory", metavar="DIR", help="Where a new namespace is written."),
    ] = Path("configs/namespaces"),
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """List the namespaces that the server has, or just NAME.

    With --fleet: the live processes, which version of the namespaces each of them runs, and what
    servers take on; of NAME alone, if it is given. `tally namespaces new NAME` writes a file for a
    new namespace, with a comment on each field, and calls no server. In a fleet, --server is a
    control plane.
    """
    if second is not None:
        if first != NEW:
            raise typer.BadParameter(
                f"{second!r} is one name too many. To write a new namespace: tally namespaces new "
                "NAME."
            )
        return write_new(second, strategy, directory)
    name = first
    target = target_of(context, server, timeout)
    if fleet:
        if version is not None:
            raise typer.BadParameter("--fleet is about what runs now: leave out --version.")
        with calling(target, service=NAMESPACES) as client:
            processes = client.processes()
        if json:
            print_json(fleet_document(processes, name))
        else:
            print_fleet(processes, name)
        return ExitCode.OK
    with calling(target, service=NAMESPACES) as client:
        answer = client.namespaces(version=version)
    shown = [each for each in answer.namespaces if name is None or each.name == name]
    if name is not None and not shown:
        others = (
            "Write one with: tally namespaces new NAME"
            if name == NEW
            else ("List them with: tally namespaces")
        )
        at = "" if version is None else f" in version {version}"
        raise Failure(f"no namespace {name!r}{at} on {target.server}. {others}")
    if json:
        print_json(
            {
                "version": answer.version,
                "applied_at": format_time(answer.applied_at_ns),
                "namespaces": [_document(each) for each in shown],
            }
        )
        return ExitCode.OK
    rows = [_cells(each) for each in shown]
    if is_terminal() and console().width < _WIDTH_OF_TABLE:
        _print_blocks(rows)
    else:
        print_table(COLUMNS, rows)
    if name is None:
        since = (format_time(answer.applied_at_ns) or "")[: len("2026-01-31T12:00:00")]
        if answer.version:
            say(f"version {answer.version}, since {since}Z", style="dim")
        else:
            say("no namespaces are applied yet: tally apply DIR -m WHY", style="yellow")
    return ExitCode.OK


def _print_blocks(rows: Sequence[Sequence[str]]) -> None:
    """As the table, for terminals that are too narrow for it: one line for each field."""
    width = max(len(column.title) for column in COLUMNS)
    for name, *cells in rows:
        say(name, style="bold cyan")
        for column, cell in zip(COLUMNS[1:], cells, strict=True):
            if cell:
                say(f"    {column.title:<{width}}  {cell}")


def _cells(namespace: Namespace) -> tuple[str, ...]:
    rolling_window_ms = namespace.rolling_window_ms
    return (
        namespace.name,
        str(namespace.id),
        namespace.strategy or "unknown",
        namespace.cardinality or "unknown",
        format_count(namespace.max_delta),
        format_setting_ms(namespace.cache_ttl_ms),
        format_setting_ms(namespace.cache_local_ttl_ms),
        ", ".join(
            f"{format_setting_ms(each.step_ms)} for {format_setting_ms(each.retention_ms)}"
            for each in namespace.history
        ),
        "" if rolling_window_ms is None else format_setting_ms(rolling_window_ms),
        namespace.owner,
        namespace.description,
        _limits(namespace.limits),
        namespace.shadow or "",
    )


def _limits(limits: NamespaceLimits) -> str:
    shown = [
        f"{format_count(limit)} {what}"
        for limit, what in (
            (limits.adds_per_s, "adds/s"),
            (limits.reads_per_s, "reads/s"),
            (limits.counters, "counters"),
            (limits.batch_items, "per batch"),
        )
        if limit is not None
    ]
    if limits.names is not None:
        shown.append(f"names {limits.names}")
    return ", ".join(shown)


def _document(namespace: Namespace) -> dict[str, Any]:
    limits = namespace.limits
    return {
        "name": namespace.name,
        "id": namespace.id,
        "description": namespace.description,
        "owner": namespace.owner,
        "strategy": namespace.strategy,
        "cardinality": namespace.cardinality,
        "max_delta": namespace.max_delta,
        "cache_ttl_ms": namespace.cache_ttl_ms,
        "cache_local_ttl_ms": namespace.cache_local_ttl_ms,
        "dedupe_ttl_ms": namespace.dedupe_ttl_ms,
        "history": [
            {"step_ms": each.step_ms, "retention_ms": each.retention_ms}
            for each in namespace.history
        ],
        "rolling_window_ms": namespace.rolling_window_ms,
        "limits": {
            "adds_per_s": limits.adds_per_s,
            "reads_per_s": limits.reads_per_s,
            "counters": limits.counters,
            "batch_items": limits.batch_items,
            "names": limits.names,
        },
        "shadow": namespace.shadow,
    }
