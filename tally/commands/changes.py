"""What `tally apply` and `tally rollback` share: agreeing, changing, and seeing it arrive."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from clients import (
    ApplyResult,
    ChangeUnknown,
    CounterError,
    Plan,
    Processes,
    SyncCounterClient,
    VersionConflict,
)
from tally.commands.connection import Target
from tally.commands.plan import print_plan
from tally.commands.plan_view import PLAN_FIELDS, plan_document, why_not
from tally.commands.values import format_moment
from tally.commands.versions import VERSION_FIELDS, version_document
from tally.output import ExitCode, Failure, complain, console, is_terminal, print_json, say

APPLIED_FIELDS = (
    f"applied, version, with: {VERSION_FIELDS}; {PLAN_FIELDS}; processes (null with --no-wait), "
    "with: alive, running (the new version), refused, a list of: process, program, problem"
)
# A change reaches every process within two seconds, and each reports once a second.
ROLLOUT_WAIT_S = 5.0
ROLLOUT_POLL_S = 0.2
# Of those that were applied meanwhile.
_VERSIONS_TOLD = 5

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ExpectedVersionOption = Annotated[
    int | None,
    typer.Option(
        "--expected-version",
        metavar="VERSION",
        min=0,
        help="Change nothing if another version is live: the one that you looked at the plan of.",
        show_default=False,
    ),
]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Do not wait until all processes run it.")
]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change that a person wants: its plan, and what carries it out."""

    plan: Plan
    what: str  # "configs/namespaces", "version 5"
    question: str  # without the version and the question mark
    planned_with: str  # the command that plans it again
    send: Callable[[], ApplyResult]


def carry_out(
    client: SyncCounterClient,
    target: Target,
    change: Change,
    *,
    expected_version: int | None,
    allow_data_loss: bool,
    yes: bool,
    wait: bool,
    json: bool,
) -> int:
    """Shows the plan, asks, changes, and says who runs the new version."""
    plan = change.plan
    if expected_version not in (None, plan.base_version):
        for line in _applied_meanwhile(client, expected_version or 0):
            complain(line)
        raise Failure(
            f"nothing was changed: version {plan.base_version} is live, and {expected_version} was "
            f"expected. Look again with: {change.planned_with}"
        )
    if not json:
        print_plan(plan, what=change.what)
    problem = why_not(plan, allow_data_loss=allow_data_loss)
    if problem:
        if json:
            print_json(change_document(plan))
        raise Failure(f"nothing was changed: {problem}")
    if not plan.changes:
        # Whoever refuses what is live still does.
        arrived = _look(client, plan.base_version) if wait else None
        if json:
            print_json(change_document(plan, None, arrived))
        elif arrived is not None:
            _complain_of_refusals(arrived, plan.base_version)
        return _exit_code(arrived)
    if not yes:
        _ask(f"{change.question} as version {plan.base_version + 1}?", json=json)
    done = _send(client, target, change)
    version = done.version.version
    if not json:
        say(f"version {version} is applied", style="bold green")
    arrived = wait_until_running(client, version) if wait else None
    if json:
        print_json(change_document(plan, done, arrived))
    elif arrived is not None:
        _say_arrived(arrived, version, target)
    return _exit_code(arrived)


def _exit_code(arrived: "Arrived | None") -> ExitCode:
    """A version that some refuse is live, and still not what was wanted: CI must hear of it."""
    return ExitCode.REFUSED if arrived is not None and arrived.refusals else ExitCode.OK


def _ask(question: str, *, json: bool) -> None:
    if json or not is_terminal(sys.stdin):
        raise Failure(
            "nothing was changed: nobody is here to ask. Add --yes to change it without asking.",
            ExitCode.USAGE,
        )
    if not typer.confirm(question, err=True):
        raise Failure("nothing was changed: you did not agree.")


def _send(client: SyncCounterClient, target: Target, change: Change) -> ApplyResult:
    expected = change.plan.base_version
    try:
        return change.send()
    except VersionConflict as error:
        for line in _applied_meanwhile(client, expected):
            complain(line)
        raise Failure(
            f"nothing was changed: it was planned on version {expected}, which is not live any "
            f"more. Look again with: {change.planned_with}"
        ) from error
    except ChangeUnknown as error:
        raise Failure(
            f"it is not known whether this was applied: {target.server} did not answer in "
            f"{target.timeout_s:g} s, or its answer was lost. It was if version {expected + 1} has "
            "your name and reason. The same command again is safe: what is done is not done twice. "
            f"Look with: tally versions{target.option}",
            ExitCode.UNKNOWN,
        ) from error


def _applied_meanwhile(client: SyncCounterClient, expected: int) -> list[str]:
    """Who was faster, one line each; nothing if that cannot be told now."""
    try:
        versions = client.versions(limit=_VERSIONS_TOLD)
    except CounterError:
        return []
    return [
        f"version {each.version} was applied at {format_moment(each.applied_at_ns)} by "
        f"{each.author or 'nobody named'}: {each.reason or 'no reason given'}"
        for each in reversed(versions)
        if each.version > expected
    ]


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """How far a version has come in the fleet."""

    fleet: Processes | None  # None: nobody could tell
    running: int
    refusals: Sequence[tuple[str, str, str]]  # process, program, why
    problem: str = ""

    @property
    def alive(self) -> int:
        return 0 if self.fleet is None else len(self.fleet.processes)


def wait_until_running(client: SyncCounterClient, version: int) -> Arrived:
    """Waits until every live process runs the version or refuses it, but not for long."""
    deadline_s = time.monotonic() + ROLLOUT_WAIT_S
    progress = console(sys.stderr).status("") if is_terminal(sys.stderr) else None
    try:
        if progress is not None:
            progress.start()
        while True:
            arrived = _look(client, version)
            is_over = arrived.running + len(arrived.refusals) >= arrived.alive > 0
            if is_over or arrived.problem or time.monotonic() >= deadline_s:
                return arrived
            if progress is not None:
                progress.update(_runs_on(arrived, version))
            time.sleep(ROLLOUT_POLL_S)
    finally:
        if progress is not None:
            progress.stop()


def _look(client: SyncCounterClient, version: int) -> Arrived:
    try:
        fleet = client.processes()
    except CounterError as error:  # the change is made, whoever can tell of it
        return Arrived(fleet=None, running=0, refusals=(), problem=error.message)
    return Arrived(
        fleet=fleet,
        running=sum(each.version >= version for each in fleet.processes),
        refusals=[
            (each.process, each.program, each.problem)
            for each in fleet.processes
            if each.version < version and (each.refused_version or 0) >= version
        ],
    )


def _say_arrived(arrived: Arrived, version: int, target: Target) -> None:
    if arrived.problem:
        complain(f"which processes run it is not known: {arrived.problem}")
        return
    _complain_of_refusals(arrived, version)
    if arrived.running == arrived.alive:
        say(_runs_on(arrived, version), style="green")
        return
    say(
        f"{_runs_on(arrived, version)}: see tally namespaces --fleet{target.option}",
        style="yellow",
    )


def _complain_of_refusals(arrived: Arrived, version: int) -> None:
    for process, program, why in arrived.refusals:
        complain(f"{program} {process} refuses version {version}: {why}")


def _runs_on(arrived: Arrived, version: int) -> str:
    return f"version {version} runs on {arrived.running} of {arrived.alive} processes"


def change_document(
    plan: Plan, done: ApplyResult | None = None, arrived: Arrived | None = None
) -> dict[str, Any]:
    processes: dict[str, Any] | None = None
    if arrived is not None and not arrived.problem:
        processes = {
            "alive": arrived.alive,
            "running": arrived.running,
            "refused": [
                {"process": process, "program": program, "problem": why}
                for process, program, why in arrived.refusals
            ],
        }
    return {
        "applied": done is not None,
        "version": None if done is None else version_document(done.version),
        **plan_document(plan),
        "processes": processes,
    }
