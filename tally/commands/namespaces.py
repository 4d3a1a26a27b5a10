"""`tally namespaces`."""

from typing import Annotated, Any

import typer

from clients import Namespace
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import NAMESPACES
from tally.commands.values import format_count, format_setting_ms, format_time
from tally.output import Column, ExitCode, Failure, print_json, print_table, say

NAMESPACES_FIELDS = (
    "JSON: version, applied_at, namespaces, a list of: name, id, description, owner, strategy, "
    "cardinality, max_delta, cache_ttl_ms, cache_local_ttl_ms, dedupe_ttl_ms, history (a list of: "
    "step_ms, retention_ms), rolling_window_ms."
)
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
)


def namespaces(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """List the namespaces that the server has, or just NAME."""
    target = target_of(context, server, timeout)
    with calling(target, service=NAMESPACES) as client:
        answer = client.namespaces()
    shown = [each for each in answer.namespaces if name is None or each.name == name]
    if name is not None and not shown:
        raise Failure(f"no namespace {name!r} on {target.server}. List them with: tally namespaces")
    if json:
        print_json(
            {
                "version": answer.version,
                "applied_at": format_time(answer.applied_at_ns),
                "namespaces": [_document(each) for each in shown],
            }
        )
        return ExitCode.OK
    print_table(COLUMNS, [_cells(each) for each in shown])
    if name is None:
        since = (format_time(answer.applied_at_ns) or "")[: len("2026-01-31T12:00:00")]
        say(f"version {answer.version}" + (f", since {since}Z" if since else ""), style="dim")
    return ExitCode.OK


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
    )


def _document(namespace: Namespace) -> dict[str, Any]:
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
    }
