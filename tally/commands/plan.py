"""`tally plan`: what a folder of namespaces would change, and what comes of it."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from clients import Plan
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    Target,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import NAMESPACES
from tally.commands.mistakes_view import print_mistakes
from tally.commands.namespace_files import FolderArgument, read_folder
from tally.commands.plan_view import (
    PLAN_FIELDS,
    plan_document,
    print_changes,
    say_wrapped,
    summary_of,
    why_not,
)
from tally.output import ExitCode, print_json, say

PLAN_JSON = f"JSON: directory, can_be_applied, problem (why not), {PLAN_FIELDS}."
NOTHING_IS_APPLIED = "nothing of this can be applied"
TO_DO = ("to create", "to change", "to delete", "to restore")

AllowDataLossOption = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Agree to changes that lose counts or their history."),
]


def plan(
    context: typer.Context,
    directory: FolderArgument,
    allow_data_loss: AllowDataLossOption = False,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code", help="Exit with 5 if there are changes and they can be applied."
        ),
    ] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Show what `tally apply` would change, field by field, and what comes of it.

    The folder holds all namespaces that there should be: one that is live and not in it would be
    deleted. Changes nothing. Exit code 0: it can be applied, or there is nothing to do; 1: there
    are mistakes, or it cannot be applied like this. In a fleet, --server is a control plane.
    """
    target = target_of(context, server, timeout)
    files = read_folder(directory, "tally plan")
    if isinstance(files, Plan):
        planned = files
    else:
        with calling(target, service=NAMESPACES) as client:
            planned = client.plan_namespaces(files)
    problem = why_not(planned, allow_data_loss=allow_data_loss)
    can_be_applied = not problem and not planned.mistakes
    if json:
        print_json(
            {
                "directory": str(directory),
                "can_be_applied": can_be_applied,
                "problem": problem or None,
                **plan_document(planned),
            }
        )
    elif planned.mistakes:
        print_mistakes(planned.mistakes, NOTHING_IS_APPLIED)
    else:
        print_plan(planned, what=str(directory))
        _say_next(planned, directory, problem, target, allow_data_loss=allow_data_loss)
    if not can_be_applied:
        return ExitCode.REFUSED
    return ExitCode.CHANGES if planned.changes and exit_code else ExitCode.OK


def print_plan(planned: Plan, *, what: str) -> None:
    """The changes and their sum; `what` is what was compared with the base version."""
    if not planned.changes:
        say(f"Nothing to do: {what} has what version {planned.base_version} has.", style="green")
        return
    print_changes(planned.changes)
    say(f"Plan: {summary_of(planned.changes, verbs=TO_DO)}.", style="bold")
    if planned.base_version:
        say(f"It is compared with version {planned.base_version}, which is live.", style="dim")


def _say_next(
    planned: Plan, directory: Path, problem: str, target: Target, *, allow_data_loss: bool
) -> None:
    if problem:
        say_wrapped(f"It cannot be applied: {problem}.", style="bold red")
    elif planned.changes:
        agreed = " --allow-data-loss" if allow_data_loss else ""
        say(
            f"Apply it with: tally apply {shlex.quote(str(directory))}{agreed} -m REASON"
            f"{target.option}"
        )
