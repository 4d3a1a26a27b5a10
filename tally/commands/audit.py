"""`tally audit`: computes counts again from what is kept, and compares."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from clients import (
    AuditBaseKind,
    AuditDifference,
    AuditResult,
    AuditWithoutBase,
    CounterAudit,
    DifferenceKind,
    SetAsideSegment,
)
from tally.commands.audit_documents import audit_or_not_document, window_document
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    Target,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import ROLLUPS
from tally.commands.values import (
    format_age,
    format_count,
    format_moment,
    format_time,
    parse_moment_ns,
)
from tally.output import (
    Column,
    ExitCode,
    complain,
    is_terminal,
    print_json,
    print_table,
    say,
    write_line,
)

SHARD_MAX = 4_095

_WORDS = {
    DifferenceKind.ROLLUP: "rollup",
    DifferenceKind.HISTORY: "history",
    DifferenceKind.HISTORY_MISSING: "missing",
    DifferenceKind.SEGMENTS: "segments",
}


def audit(
    context: typer.Context,
    namespace: Annotated[
        str | None, typer.Argument(metavar="[NAMESPACE]", show_default=False)
    ] = None,
    counters: Annotated[
        list[str] | None, typer.Argument(metavar="[COUNTER]...", show_default=False)
    ] = None,
    base: Annotated[
        int | None,
        typer.Option(
            "--base",
            metavar="TIME",
            parser=parse_moment_ns,
            help="Begin with the state that held then, instead of as early as possible.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            "--window",
            metavar="TIME",
            parser=parse_moment_ns,
            help="Audit the window at this time instead, with --shard.",
            show_default=False,
        ),
    ] = None,
    shard: Annotated[
        int | None,
        typer.Option("--shard", metavar="N", min=0, max=SHARD_MAX, help="The window's shard."),
    ] = None,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Compute counters again from their history and events, and compare. Writes nothing.

    Exit code 0: all equal; 1: something differs, or cannot be audited. In a fleet, --server is the
    address of a worker.
    """
    target = target_of(context, server, timeout)
    if window is None and shard is None:
        if not namespace or not counters:
            raise typer.BadParameter(
                "what to audit? Give NAMESPACE COUNTER..., or --window TIME --shard N."
            )
        return _audit_counters(target, namespace, counters, base, json=json)
    if window is None or shard is None:
        raise typer.BadParameter("--window TIME and --shard N come together.")
    if namespace or base is not None:
        raise typer.BadParameter("--window is of all namespaces: give it with --shard alone.")
    return _audit_window(target, shard, window, json=json)


def _audit_counters(
    target: Target, namespace: str, counters: Sequence[str], base_ns: int | None, *, json: bool
) -> int:
    audits: list[tuple[str, CounterAudit | AuditWithoutBase]] = []
    with calling(target, namespace, service=ROLLUPS) as client:
        for counter in counters:
            try:
                audits.append((counter, client.audit_counter(counter, base_time=base_ns)))
            except AuditWithoutBase as error:
                audits.append((counter, error))
    done = [(counter, each) for counter, each in audits if isinstance(each, CounterAudit)]
    refused = [(counter, each) for counter, each in audits if isinstance(each, AuditWithoutBase)]
    if json:
        documents = [{"counter": counter} | audit_or_not_document(each) for counter, each in audits]
        print_json({"namespace": namespace, "counters": documents})
    else:
        print_audits(done)
    for counter, why in refused:
        complain(f"{namespace}/{counter} is not audited: {why.message}")
    equal = all(each.result is AuditResult.EQUAL for _, each in done)
    return ExitCode.OK if equal and not refused else ExitCode.REFUSED


def print_audits(audits: Sequence[tuple[str, CounterAudit]]) -> None:
    """The results, and what differs. On a terminal one counter has room for whole sentences."""
    drawn = is_terminal()
    if len(audits) == 1 and drawn:
        _print_one(*audits[0])
    elif audits:
        print_table(
            (
                Column(title="counter", style="cyan"),
                Column(title="result", style="bold"),
                Column(title="expected", right=True),
                Column(title="actual", right=True),
                Column(title="events", right=True),
                Column(title="base"),
                *(() if drawn else (Column(title="base time"),)),
                Column(title="through"),
            ),
            [
                (
                    counter,
                    each.result,
                    format_count(each.expected_count),
                    format_count(each.actual_count),
                    format_count(each.events),
                    each.base.kind or "unknown",
                    *(() if drawn else (format_moment(each.base.time_ns),)),
                    (
                        format_age(each.audited_through_ns, time.time_ns())
                        if drawn
                        else format_moment(each.audited_through_ns)
                    ),
                )
                for counter, each in audits
            ],
        )
    _print_differences([(counter, found) for counter, each in audits for found in each.differences])
    adjustments = [(counter, made) for counter, each in audits for made in each.adjustments]
    if adjustments:
        write_line("")
        print_table(
            (
                Column(title="counter", style="cyan"),
                Column(title="adjusted at"),
                Column(title="by", right=True, style="bold"),
                Column(title="author"),
                Column(title="reason"),
            ),
            [
                (counter, format_moment(made.time_ns), f"{made.delta:+,}", made.author, made.reason)
                for counter, made in adjustments
            ],
        )


def _print_one(counter: str, audit: CounterAudit) -> None:
    through = format_age(audit.audited_through_ns, time.time_ns())
    print_table(
        (Column(title="audit", style="cyan"), Column(title="")),
        [
            ("counter", counter),
            ("result", audit.result),
            ("what the events say", format_count(audit.expected_count)),
            ("what the rollup says", format_count(audit.actual_count)),
            ("base", _base(audit)),
            ("events since the base", format_count(audit.events)),
            ("compared through", f"{format_moment(audit.audited_through_ns)} ({through})"),
        ],
    )


def _base(audit: CounterAudit) -> str:
    if audit.base.kind is AuditBaseKind.START:
        return "the start: the counter's first event is still kept"
    kind = audit.base.kind or "unknown"
    return f"{kind}: {format_count(audit.base.count)} at {format_moment(audit.base.time_ns)}"


def _print_differences(found: Sequence[tuple[str, AuditDifference]]) -> None:
    """Under each other: what differs, by how much, and from which windows it comes."""
    if not found:
        return
    write_line("")
    drawn = is_terminal()
    windows = ("windows",) if drawn else ("from", "to")
    print_table(
        (
            Column(title="counter", style="cyan", optional=True),
            Column(title="differs", style="bold red"),
            *(Column(title=title) for title in windows),
            Column(title="expected", right=True),
            Column(title="actual", right=True),
            *(() if drawn else (Column(title="what"),)),
        ),
        [
            (
                counter,
                _WORDS[each.kind] if each.kind is not None else "unknown",
                *(
                    (_windows(each),)
                    if drawn
                    else (format_moment(each.from_ns), format_moment(each.to_ns))
                ),
                format_count(each.expected),
                format_count(each.actual),
                *(() if drawn else (each.message,)),
            )
            for counter, each in found
        ],
    )
    if drawn:
        for counter, each in found:
            say(f"{counter}: {each.message}" if counter else each.message, style="dim")


def _windows(difference: AuditDifference) -> str:
    """From and to, with what they share said once."""
    first, last = format_moment(difference.from_ns), format_moment(difference.to_ns)
    day = len("2026-01-31T")
    return f"{first[:-1]} to {last[day:]}" if first[:day] == last[:day] else f"{first} to {last}"


def _audit_window(target: Target, shard: int, time_ns: int, *, json: bool) -> int:
    with calling(target, service=ROLLUPS) as client:
        answer = client.audit_window(shard, time_ns)
    if json:
        print_json(window_document(shard, answer))
    else:
        same = answer.recorded_digest == answer.computed_digest
        late = ", which do not count" if answer.late_segments else ""
        digest = "as recorded" if same else f"{answer.computed_digest}, not as recorded"
        print_table(
            (Column(title="window", style="cyan"), Column(title="")),
            [
                ("result", answer.result),
                ("shard", str(shard)),
                ("fold from", format_time(answer.from_ns) or "unknown"),
                ("fold to", format_time(answer.to_ns) or "unknown"),
                ("segments", format_count(answer.segments)),
                ("late segments", format_count(answer.late_segments) + late),
                ("events", format_count(answer.events)),
                ("recorded digest", answer.recorded_digest),
                ("computed digest", digest),
                ("counters equal", format_count(answer.counters_equal)),
                ("counters different", format_count(answer.counters_different)),
                ("counters without base", format_count(answer.counters_without_base)),
            ],
        )
        _print_set_aside(answer.set_aside)
        _print_differences([("", each) for each in answer.differences])
    return ExitCode.OK if answer.result is AuditResult.EQUAL else ExitCode.REFUSED


def _print_set_aside(segments: Sequence[SetAsideSegment]) -> None:
    if not segments:
        return
    write_line("")
    print_table(
        (
            Column(title="set aside", style="cyan"),
            Column(title="events", right=True, style="bold"),
            Column(title="at"),
            Column(title="author"),
            Column(title="reason"),
        ),
        [
            (
                each.segment_id,
                format_count(each.events),
                format_moment(each.time_ns),
                each.author,
                each.reason,
            )
            for each in segments
        ],
    )
    say("events that were set aside never count", style="dim")
