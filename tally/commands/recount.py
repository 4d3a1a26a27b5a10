"""`tally recount`: what an audit says of a counter, and the adjustment that repairs it."""

import shlex
from typing import Annotated, Any

import typer

from clients import AddResult, AuditResult, CounterAudit, DifferenceKind, OutcomeUnknown
from tally.commands.audit import print_audits
from tally.commands.audit_documents import COUNTER_FIELDS, audit_document
from tally.commands.connection import (
    CounterArgument,
    JsonOption,
    NamespaceArgument,
    ServerOption,
    Target,
    TimeoutOption,
    calling,
    outcome_unknown,
    require_reachable,
    target_of,
)
from tally.commands.counters import AtOption, TokenOption
from tally.commands.health import COUNTERS, ROLLUPS, offers
from tally.commands.notes import AuthorOption, ReasonOption, author_of, reason_of
from tally.commands.values import (
    INT64_MAX,
    INT64_MIN,
    token_document,
    token_from,
    token_options,
)
from tally.output import ExitCode, Failure, print_json, say, write_line

RECOUNT_FIELDS = (
    "JSON: namespace, counter, delta (of the adjustment; null where there is none to make), "
    "problem (why there is none), applied, token, generation_time, duplicate, audit: "
    f"{COUNTER_FIELDS}."
)


def recount(
    context: typer.Context,
    namespace: NamespaceArgument,
    counter: CounterArgument,
    apply: Annotated[bool, typer.Option("--apply", help="Send the adjustment.")] = False,
    author: AuthorOption = None,
    reason: ReasonOption = None,
    token: TokenOption = None,
    at: AtOption = None,
    counter_server: Annotated[
        str | None,
        typer.Option(
            "--counter-server",
            metavar="HOST:PORT",
            help="In a fleet: the server that takes the adjustment, while --server is the worker "
            "that audits.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Audit a counter, and show the adjustment that would repair its rollup.

    With --apply it is sent, exactly once, with author and reason, which stay in the history. It is
    an event like any other: the count is right after the next fold. Exit code 0: nothing to repair,
    or sent; 1: different. In a fleet, --server is the address of a worker.
    """
    target = target_of(context, server, timeout)
    given = token_from(token, at)
    if apply:
        author, reason = author_of(author), reason_of(reason)
    adjusting = target if counter_server is None else target_of(context, counter_server, timeout)
    require_reachable(adjusting)
    if apply and not offers(adjusting.server, COUNTERS, timeout_s=adjusting.timeout_s):
        raise Failure(
            f"{adjusting.server} has no CounterService: name a server of the fleet to take the "
            "adjustment, with --counter-server HOST:PORT. Nothing was sent"
        )
    with calling(target, namespace, service=ROLLUPS) as client:
        audit = client.audit_counter(counter)
    problem = _why_not(audit, is_repetition=given is not None)
    delta = None if problem else audit.expected_count - audit.actual_count
    sent: AddResult | None = None
    if delta is not None and apply:
        assert author is not None
        assert reason is not None
        with calling(adjusting, namespace) as client:
            try:
                sent = client.adjust(counter, delta, author=author, reason=reason, token=given)
            except OutcomeUnknown as error:
                raise outcome_unknown(
                    f"the adjustment of {delta:+} to {namespace}/{counter}",
                    namespace=namespace,
                    counter=counter,
                    token=error.token,
                    target=adjusting,
                ) from error
    if json:
        print_json(_document(namespace, counter, audit, delta, problem, sent))
    else:
        print_audits([(counter, audit)])
        write_line("")
        _explain(target, namespace, counter, delta, problem, sent)
    return ExitCode.OK if sent or audit.result is AuditResult.EQUAL else ExitCode.REFUSED


def _why_not(audit: CounterAudit, *, is_repetition: bool) -> str:
    """Why no adjustment would repair the counter; empty if one does."""
    if audit.pending_adjustments and not is_repetition:
        sent = audit.pending_adjustments[-1]
        return (
            f"an adjustment of {sent.delta:+,} by {sent.author} ({sent.reason}) is sent and not "
            "folded yet: audit again in some seconds"
        )
    kinds = {each.kind for each in audit.differences}
    if audit.result is AuditResult.EQUAL:
        return "nothing to repair: the rollup is what the events add up to"
    if DifferenceKind.SEGMENTS in kinds or None in kinds:
        return (
            "the expected count is not known: segments are not what their fold recorded, so the "
            "events do not tell it"
        )
    if DifferenceKind.ROLLUP not in kinds or audit.expected_count == audit.actual_count:
        return (
            "the rollup is right: only its history differs, which no adjustment repairs. The "
            "count itself can be trusted"
        )
    if {audit.expected_count, audit.actual_count} & {INT64_MAX, INT64_MIN}:
        return (
            "the expected count is not known: it does not fit in 64 bits, and only what does is "
            "shown. Nothing can be computed from that"
        )
    return ""


def _explain(
    target: Target,
    namespace: str,
    counter: str,
    delta: int | None,
    problem: str,
    sent: AddResult | None,
) -> None:
    names = f"{shlex.join([namespace, counter])}{target.option}"
    if delta is None:
        say(problem)
    elif sent is None:
        say(f"an adjustment of {delta:+,} would repair {namespace}/{counter}", style="bold")
        say(f"send it with: tally recount {names} --apply --reason TEXT")
    else:
        done = "was adjusted before by this token: " if sent.duplicate else "adjusted by "
        say(f"{done}{delta:+,}: {namespace}/{counter}", style="green")
        say(f"token: {token_options(sent.token)}")
        say("the count is right after the next fold, in some seconds; in accurate reads at once")
        say(f"check with: tally audit {names}")


def _document(
    namespace: str,
    counter: str,
    audit: CounterAudit,
    delta: int | None,
    problem: str,
    sent: AddResult | None,
) -> dict[str, Any]:
    made = {"token": None, "generation_time": None} if sent is None else token_document(sent.token)
    return {
        "namespace": namespace,
        "counter": counter,
        "delta": delta,
        "problem": problem or None,
        "applied": sent is not None,
        **made,
        "duplicate": None if sent is None else sent.duplicate,
        "audit": audit_document(audit),
    }
