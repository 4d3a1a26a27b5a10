"""`tally diff`: what changed from one version of the namespaces to another."""

from typing import Annotated

import typer

from clients import SyncCounterClient
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import NAMESPACES
from tally.commands.plan_view import CHANGE_FIELDS, change_documents, print_changes, summary_of
from tally.output import ExitCode, Failure, print_json, say

DIFF_FIELDS = f"JSON: from_version, to_version, consequence (the gravest), {CHANGE_FIELDS}."
_DONE = ("created", "changed", "deleted", "restored")


def diff(
    context: typer.Context,
    first: Annotated[
        int | None,
        typer.Argument(metavar="A", min=1, help="The version to begin with.", show_default=False),
    ] = None,
    second: Annotated[
        int | None,
        typer.Argument(metavar="B", min=1, help="The version to end with.", show_default=False),
    ] = None,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Show what changed from one version to another, and what comes of that.

    Without a version: from the one before the live one to the live one. With A: from A to the live
    one. With both: from A to B, which may be the earlier one. In a fleet, --server is a control
    plane.
    """
    target = target_of(context, server, timeout)
    with calling(target, service=NAMESPACES) as client:
        before, after = _range_of(client, first, second)
        plan = client.plan_namespaces(version=after, base_version=before)
    if json:
        print_json(
            {
                "from_version": before,
                "to_version": after,
                "consequence": plan.consequence,
                "changes": change_documents(plan.changes),
            }
        )
        return ExitCode.OK
    if not plan.changes:
        say(f"No difference between version {before} and version {after}.", style="green")
        return ExitCode.OK
    print_changes(plan.changes)
    say(
        f"From version {before} to version {after}: {summary_of(plan.changes, verbs=_DONE)}.",
        style="bold",
    )
    return ExitCode.OK


def _range_of(client: SyncCounterClient, first: int | None, second: int | None) -> tuple[int, int]:
    if first is not None and second is not None:
        return first, second
    last = client.versions(limit=2)
    if not last:
        raise Failure("there is no version of the namespaces yet. Make one with: tally apply DIR")
    if first is not None:
        return first, last[0].version
    if len(last) < 2:
        raise Failure(
            f"version {last[0].version} is the only one: there is nothing to compare it with."
        )
    return last[1].version, last[0].version
