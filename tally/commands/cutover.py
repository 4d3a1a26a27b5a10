"""`tally cutover`: ends a shadow phase, and says before what that changes."""

import sys
from typing import Annotated, Any

import typer

from clients import Namespaces, SyncCounterClient
from tally.commands import shadow_differences
from tally.commands.connection import (
    JsonOption,
    NamespaceArgument,
    ServerOption,
    TimeoutOption,
    calling,
    require_reachable,
    target_of,
)
from tally.commands.health import COUNTERS, NAMESPACES, offers
from tally.commands.notes import AuthorOption, ReasonOption, author_of, reason_of
from tally.commands.shadow_differences import Differences
from tally.commands.values import format_count
from tally.output import ExitCode, Failure, complain, is_terminal, print_json, printable, say

CUTOVER_FIELDS = (
    "JSON: namespace, strategy (that of the shadow), carried_over (how many adjustments were "
    "sent), version (null where nothing was cut over), and of the last comparison: compared, "
    "different, lacking (what the shadow has too little), surplus, largest: counter, count, "
    "shadow_count, difference."
)
# Each finds what the one before could not see of a counter that is being added to.
_CARRY_OVERS_MAX = 3


def cutover(
    context: typer.Context,
    namespace: NamespaceArgument,
    author: AuthorOption = None,
    reason: ReasonOption = None,
    carry_over: Annotated[
        bool,
        typer.Option(
            "--carry-over",
            help="Add what the shadow lacks to it before, so that no count becomes smaller.",
        ),
    ] = False,
    compare_only: Annotated[
        bool, typer.Option("--compare", help="Compare only, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    counter_server: Annotated[
        str | None,
        typer.Option(
            "--counter-server",
            metavar="HOST:PORT",
            help="In a fleet: the server that compares, while --server is the control plane that "
            "cuts over.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Compare a namespace with its shadow, and cut over to the shadow's strategy.

    From then on reads answer with what the shadow has counted: what was added since the shadow
    phase began, each token once. --carry-over adds what the shadow lacks to it before. Counters
    that nobody added to since the phase began are not known to the shadow: they read 0 afterwards.
    With --compare, exit code 1 says that some differ. In a fleet, --server is the address of a
    control plane.
    """
    target = target_of(context, server, timeout)
    comparing = target if counter_server is None else target_of(context, counter_server, timeout)
    if not compare_only:
        author, reason = author_of(author), reason_of(reason)
    with calling(target, namespace, service=NAMESPACES) as client:
        live = client.namespaces()
    strategy = _strategy_of_shadow(namespace, live)
    require_reachable(comparing)
    if not offers(comparing.server, COUNTERS, timeout_s=comparing.timeout_s):
        raise Failure(
            f"{comparing.server} has no CounterService: name a server of the fleet to compare, "
            "with --counter-server HOST:PORT. Nothing was changed"
        )
    adjusted = 0
    with calling(comparing, namespace) as client:
        found = shadow_differences.compare(client)
        if compare_only:
            if json:
                print_json(_document(namespace, strategy, found, 0, None))
            else:
                found.show()
            return ExitCode.REFUSED if found.counters else ExitCode.OK
        assert author is not None
        assert reason is not None
        if not found.compared:
            raise Failure(
                f"namespace {namespace} is not cut over: its shadow knows no counter yet, and all "
                "would read 0. A counter is known some seconds after the first add to it in "
                "the shadow phase: wait, and run the same command again"
            )
        if not json:
            found.show()
            say(
                "counters that nobody added to since the phase began are not known to the shadow: "
                "they will read 0",
                style="yellow",
            )
        if not yes:
            _ask(namespace, strategy, found, carries_over=carry_over)
        if carry_over and found.lacking:
            found, adjusted, last_ns = _carried_over(client, namespace, found, author, reason)
            shadow_differences.wait_for_folds(client, namespace, last_ns)
            if not json:
                say(f"adjustments sent: {format_count(adjusted)}. Compared again:")
                found.show()
            if found.lacking and not yes:
                _ask(namespace, strategy, found, carries_over=False)
    with calling(target, namespace, service=NAMESPACES) as client:
        version = client.cutover_namespace(
            namespace, expected_version=live.version, author=author, reason=reason
        ).version
    if json:
        print_json(_document(namespace, strategy, found, adjusted, version))
    else:
        _say_done(namespace, strategy, found, version)
    return ExitCode.OK


def _strategy_of_shadow(name: str, live: Namespaces) -> str:
    for namespace in live.namespaces:
        if namespace.name == name and namespace.shadow is not None:
            return str(namespace.shadow.value)
        if namespace.name == name:
            raise Failure(
                f"namespace {name} is in no shadow phase: there is nothing to cut over. A phase "
                "begins when 'shadow: eventual' in the file of a best_effort namespace is applied"
            )
    raise Failure(f"there is no namespace {name}. See which there are with: tally namespaces")


def _carried_over(
    client: SyncCounterClient, namespace: str, found: Differences, author: str, reason: str
) -> tuple[Differences, int, int]:
    """What differs afterwards, how many adjustments were sent, and the time of the last one."""
    adjusted = last_ns = 0
    for _ in range(_CARRY_OVERS_MAX):
        found = shadow_differences.lasting(client, found)
        last_ns = shadow_differences.carry_over(
            client, namespace, found, author=author, reason=reason
        )
        adjusted += len(found.to_carry_over)
        found = shadow_differences.compare(client)
        if not found.lacking:
            break
    return found, adjusted, last_ns


def _ask(namespace: str, strategy: str, found: Differences, *, carries_over: bool) -> None:
    if not is_terminal(sys.stdin):
        raise Failure(
            f"namespace {namespace} is not cut over: nobody is here to ask. Add --yes to cut over "
            "without asking.",
            ExitCode.USAGE,
        )
    question = "Cut"
    if found.lacking and carries_over:
        question = f"Add {format_count(found.lacking)} to the shadow, and cut"
    elif found.lacking:
        complain(
            "what the shadow lacks will be missing: reads will answer with its counts. "
            "--carry-over adds it before"
        )
    if not typer.confirm(f"{question} {printable(namespace)} over to {strategy}?", err=True):
        raise Failure(f"namespace {namespace} is not cut over: you did not agree.")


def _say_done(namespace: str, strategy: str, found: Differences, version: int) -> None:
    say(f"{namespace} is {strategy} since version {version}", style="bold green")
    if found.lacking:
        say("counts are those of the shadow now: what it lacked is missing", style="yellow")
    say(
        f"write 'strategy: {strategy}' into its file, without 'shadow' and 'dedupe_ttl': the next "
        "apply of the file as it is would be refused"
    )


def _document(
    namespace: str, strategy: str, found: Differences, adjusted: int, version: int | None
) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "strategy": strategy,
        "carried_over": adjusted,
        "version": version,
        **found.document(),
    }
