"""`tally rollback`: makes the next version equal to an earlier one."""

from typing import Annotated

import typer

from tally.commands.changes import (
    APPLIED_FIELDS,
    Change,
    ExpectedVersionOption,
    NoWaitOption,
    YesOption,
    carry_out,
)
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import NAMESPACES
from tally.commands.notes import AuthorOption, ReasonOption, author_of, reason_of
from tally.commands.plan import AllowDataLossOption

ROLLBACK_FIELDS = f"JSON: {APPLIED_FIELDS}."


def rollback(
    context: typer.Context,
    version: Annotated[
        int,
        typer.Argument(
            metavar="VERSION",
            min=1,
            help="Whose namespaces are wanted again.",
            show_default=False,
        ),
    ],
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
    """Make the next version equal to an earlier one, for the whole fleet at once.

    Shows the plan first, and asks. Namespaces that were deleted since have their counts again;
    those that were created since are deleted. Otherwise as `tally apply`.
    """
    target = target_of(context, server, timeout)
    author, reason = author_of(author), reason_of(reason)
    with calling(target, service=NAMESPACES) as client:
        plan = client.plan_namespaces(version=version)
        return carry_out(
            client,
            target,
            Change(
                plan=plan,
                what=f"version {version}",
                question=f"Roll back to version {version}",
                planned_with=f"tally diff {version}{target.option}",
                send=lambda: client.rollback_namespaces(
                    version,
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
