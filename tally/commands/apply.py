"""`tally apply`: makes a folder of namespaces the next version."""

import shlex

import typer

from clients import Plan
from tally.commands.changes import (
    APPLIED_FIELDS,
    Change,
    ExpectedVersionOption,
    NoWaitOption,
    YesOption,
    carry_out,
    change_document,
)
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import NAMESPACES
from tally.commands.mistakes_view import print_mistakes
from tally.commands.namespace_files import FolderArgument, read_folder
from tally.commands.notes import AuthorOption, ReasonOption, author_of, reason_of
from tally.commands.plan import NOTHING_IS_APPLIED, AllowDataLossOption
from tally.output import ExitCode, print_json

APPLY_FIELDS = f"JSON: {APPLIED_FIELDS}."


def apply(
    context: typer.Context,
    directory: FolderArgument,
    reason: ReasonOption = None,
    author: AuthorOption = None,
    expected_version: ExpectedVersionOption = None,
    allow_data_loss: AllowDataLossOption = False,
    yes: YesOption = False,
    no_wait: NoWaitOption = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Make a folder of namespaces the next version, for the whole fleet at once.

    Shows the plan first, and asks. The folder holds all namespaces that there should be: one that
    is live and not in it is deleted. If somebody else applied a version after the plan was made,
    nothing changes. Author and reason stay with the version. In a fleet, --server is a control
    plane.
    """
    target = target_of(context, server, timeout)
    author, reason = author_of(author), reason_of(reason)
    files = read_folder(directory, "tally apply")
    if isinstance(files, Plan):
        return _refuse(files, json=json)
    with calling(target, service=NAMESPACES) as client:
        plan = client.plan_namespaces(files)
        if plan.mistakes:
            return _refuse(plan, json=json)
        folder = shlex.quote(str(directory))
        return carry_out(
            client,
            target,
            Change(
                plan=plan,
                what=str(directory),
                question="Apply this",
                planned_with=f"tally plan {folder}{target.option}",
                send=lambda: client.apply_namespaces(
                    files,
                    expected_version=plan.base_version,
                    author=author,
                    reason=reason,
                    allow_data_loss=allow_data_loss,
                ),
            ),
            expected_version=expected_version,
            allow_data_loss=allow_data_loss,
            yes=yes,
            wait=not no_wait,
            json=json,
        )


def _refuse(plan: Plan, *, json: bool) -> int:
    if json:
        print_json(change_document(plan))
    else:
        print_mistakes(plan.mistakes, NOTHING_IS_APPLIED)
    return ExitCode.REFUSED
