"""`tally versions`: who changed the namespaces, when, why and how."""

import textwrap
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.text import Text

from clients import Origin, Version
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import NAMESPACES
from tally.commands.values import format_moment, format_time
from tally.output import (
    Column,
    ExitCode,
    console,
    is_terminal,
    print_json,
    print_table,
    printable,
    say,
)

VERSION_FIELDS = (
    "version, applied_at, origin (folder, applied, rolled_back or cut_over), author, reason, "
    "restores, content_hash, namespaces, created, changed, deleted"
)
VERSIONS_FIELDS = f"JSON: live_version, versions, a list of: {VERSION_FIELDS}."
LIMIT_DEFAULT = 20
LIMIT_MAX = 10_000
_HASH_DIGITS = 12
# On a narrower terminal the reasons would be cut into pieces: they get lines of their own.
_WIDTH_OF_TABLE = 110
_GAP = "  "

COLUMNS = (
    Column(title="version", right=True, style="cyan", whole=True),
    Column(title="state", style="bold green", whole=True),
    Column(title="applied", whole=True),
    Column(title="by"),
    Column(title="how", whole=True),
    Column(title="changes", whole=True),
    Column(title="hash", style="dim", whole=True),
    Column(title="why"),
)


def versions(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=LIMIT_MAX, metavar="N", help="How many.")
    ] = LIMIT_DEFAULT,
    before: Annotated[
        int | None,
        typer.Option(
            "--before", min=2, metavar="VERSION", help="Those before this.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """List the last versions of the namespaces, newest first: the first one is live.

    Changes are those to the version before: +created ~changed -deleted. Equal hashes mean equal
    namespaces. In a fleet, --server is a control plane.
    """
    target = target_of(context, server, timeout)
    with calling(target, service=NAMESPACES) as client:
        found = client.versions(limit=limit, before=before)
        latest = found if before is None else client.versions(limit=1)
    live = latest[0].version if latest else 0
    if json:
        documents = [version_document(each) for each in found]
        print_json({"live_version": live, "versions": documents})
        return ExitCode.OK
    if not found:
        say("no version yet. Make one with: tally apply DIR -m REASON")
        return ExitCode.OK
    rows = [_cells(each, is_live=each.version == live) for each in found]
    if is_terminal() and console().width < _WIDTH_OF_TABLE:
        _print_list(rows)
    else:
        print_table(COLUMNS, rows)
    return ExitCode.OK


def version_document(version: Version) -> dict[str, Any]:
    return {
        "version": version.version,
        "applied_at": format_time(version.applied_at_ns),
        "origin": version.origin,
        "author": version.author,
        "reason": version.reason,
        "restores": version.restores,
        "content_hash": version.content_hash,
        "namespaces": version.namespaces,
        "created": version.created,
        "changed": version.changed,
        "deleted": version.deleted,
    }


def _cells(version: Version, *, is_live: bool) -> tuple[str, ...]:
    return (
        str(version.version),
        "live" if is_live else "",
        _moment(version.applied_at_ns),
        version.author,
        _how(version),
        f"+{version.created} ~{version.changed} -{version.deleted}",
        version.content_hash[:_HASH_DIGITS],
        version.reason,
    )


def _print_list(rows: Sequence[Sequence[str]]) -> None:
    """As the table, without its header, with who and why on a second line."""
    shown = [[printable(cell) for cell in row] for row in rows]
    version, state, applied, by, how, changes, content_hash, why = range(len(COLUMNS))
    first_line = (version, state, applied, how, changes, content_hash)
    widths = {column: max(cell_len(row[column]) for row in shown) for column in first_line}
    indent = " " * (widths[version] + len(_GAP))
    for row in shown:
        line = Text()
        for column in first_line:
            cell = Text(row[column], style=COLUMNS[column].style)
            cell.align("right" if COLUMNS[column].right else "left", widths[column])
            line += cell + Text(_GAP)
        line.rstrip()
        console().print(line)
        told = ": ".join(filter(None, (row[by], row[why])))
        for part in textwrap.wrap(told, console().width - len(indent)):
            console().print(Text(indent + part))


def _moment(time_ns: int | None) -> str:
    """On a terminal to the minute; into a pipe it is whole."""
    moment = format_moment(time_ns)
    if time_ns is None or not is_terminal():
        return moment
    return moment[: len("2026-01-31T12:00")].replace("T", " ")


def _how(version: Version) -> str:
    match version.origin:
        case None:
            return "unknown"
        case Origin.ROLLED_BACK:
            return f"rolled back to {version.restores}"
        case origin:
            return origin.replace("_", " ")
