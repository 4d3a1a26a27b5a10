"""`tally add`, `tally get` and `tally clear`."""

import sys
import time
from datetime import timedelta
from typing import Annotated, Any

import typer

from clients import CountValue, OutcomeUnknown, Source
from tally.commands.connection import (
    CounterArgument,
    CountersArgument,
    JsonOption,
    NamespaceArgument,
    ServerOption,
    Target,
    TimeoutOption,
    calling,
    outcome_unknown,
    target_of,
)
from tally.commands.values import (
    format_age,
    format_count,
    format_setting_ms,
    format_time,
    milliseconds_of,
    parse_delta,
    parse_duration_ms,
    parse_moment_ns,
    parse_time_ns,
    token_document,
    token_from,
    token_options,
)
from tally.output import (
    Column,
    ExitCode,
    Failure,
    console,
    is_terminal,
    print_json,
    print_table,
    say,
)

TokenOption = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", help="Use this token.", show_default=False),
]
AtOption = Annotated[
    int | None,
    typer.Option(
        "--at",
        metavar="TIME",
        parser=parse_time_ns,
        help="The token's generation time: ISO 8601 or nanoseconds since 1970.",
        show_default=False,
    ),
]
MaxStalenessOption = Annotated[
    int | None,
    typer.Option(
        "--max-staleness",
        metavar="DURATION",
        parser=parse_duration_ms,
        help="Accept no answer that is older, like 2s.",
        show_default=False,
    ),
]
AccurateOption = Annotated[
    bool, typer.Option("--accurate", help="Count everything acknowledged so far.")
]

VALUE_FIELDS = (
    "counter, count, complete_through, epoch, cleared_at, strategy, source, saturated, "
    "window_start, rate_per_s"
)
ADD_FIELDS = (
    "JSON: namespace, counter, delta, token, generation_time, duplicate; "
    f"with --get also value: {VALUE_FIELDS}."
)
GET_FIELDS = (
    f"JSON: namespace, counters, a list of: {VALUE_FIELDS}; with --at also at, and in each counter "
    "resolution_ms."
)
CLEAR_FIELDS = "JSON: namespace, counter, token, generation_time, duplicate."

COUNT_COLUMNS = (
    Column(title="counter", style="cyan"),
    Column(title="count", right=True, style="bold"),
    Column(title="complete through"),
    Column(title="epoch", right=True),
    Column(title="source"),
)
# In namespaces of rolling_window only.
ROLLING_COLUMNS = (Column(title="counted from"), Column(title="rate/s", right=True))
COUNT_AT_COLUMNS = (
    Column(title="counter", style="cyan"),
    Column(title="count", right=True, style="bold"),
    Column(title="complete through"),
    Column(title="resolution"),
    Column(title="epoch", right=True),
    Column(title="source"),
)


def add(
    context: typer.Context,
    namespace: NamespaceArgument,
    counter: CounterArgument,
    delta: Annotated[
        int, typer.Argument(metavar="DELTA", parser=parse_delta, help="May be negative: -5.")
    ] = 1,
    token: TokenOption = None,
    at: AtOption = None,
    get: Annotated[bool, typer.Option("--get", help="Print the count, this add included.")] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Add DELTA to a counter, exactly once, and print the token used.

    The same --token and --at sent again are the same add: repeat a call that may have failed with
    the token that it printed.
    """
    target = target_of(context, server, timeout)
    given = token_from(token, at)
    value: CountValue | None = None
    with calling(target, namespace) as client:
        try:
            if get:
                answer = client.add_and_get(counter, delta, token=given)
                used, duplicate, value = answer.token, answer.duplicate, answer.value
            else:
                added = client.add(counter, delta, token=given)
                used, duplicate = added.token, added.duplicate
        except OutcomeUnknown as error:
            raise outcome_unknown(
                f"the add of {delta} to {namespace}/{counter}",
                namespace=namespace,
                counter=counter,
                token=error.token,
                target=target,
            ) from error
    if json:
        document = {"namespace": namespace, "counter": counter, "delta": delta}
        document |= token_document(used) | {"duplicate": duplicate}
        if value is not None:
            document["value"] = count_document(counter, value)
        print_json(document)
        return ExitCode.OK
    done = "was counted before, once: " if duplicate else "added "
    now = "" if value is None else f", count is now {format_count(value.count)}"
    say(f"{done}{delta:+,} to {namespace}/{counter}{now}", style="green")
    say(f"token: {token_options(used)}")
    return ExitCode.OK


def get(
    context: typer.Context,
    namespace: NamespaceArgument,
    counters: CountersArgument,
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            metavar="TIME",
            parser=parse_moment_ns,
            help="The count as of then: ISO 8601 (UTC unless it has a zone), or -1h.",
            show_default=False,
        ),
    ] = None,
    max_staleness: MaxStalenessOption = None,
    accurate: AccurateOption = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Read counters, and how fresh each answer is.

    "complete through" is the time up to which every event is in the count. A counter that nobody
    added to reads 0. With --at the count is as of a past time, as near before it as the
    namespace's history allows.
    """
    target = target_of(context, server, timeout)
    staleness = staleness_of(max_staleness, accurate)
    if at is not None:
        if staleness is not None:
            raise typer.BadParameter("--at is of the past: it goes without a staleness.")
        return _get_at(target, namespace, counters, at, json=json)
    with calling(target, namespace) as client:
        values = client.batch_get(counters, max_staleness=staleness)
    if json:
        print_json(
            {
                "namespace": namespace,
                "counters": [
                    count_document(name, value)
                    for name, value in zip(counters, values, strict=True)
                ],
            }
        )
        return ExitCode.OK
    now_ns = time.time_ns()
    rolling = any(value.rate_per_s is not None for value in values)
    print_table(
        COUNT_COLUMNS + ROLLING_COLUMNS * rolling,
        [
            (
                name,
                count_cell(value),
                format_age(value.complete_through_ns, now_ns),
                str(value.epoch),
                value.source or "unknown",
                *(rolling_cells(value, now_ns) if rolling else ()),
            )
            for name, value in zip(counters, values, strict=True)
        ],
    )
    cheap = any(
        value.complete_through and value.source != Source.ROLLUP_AND_TAIL for value in values
    )
    if cheap and is_terminal():
        # Whoever has just added something and reads 0 should learn why, and what to do.
        console().print("later adds are not in yet; --accurate includes them", style="dim")
    return ExitCode.OK


def _get_at(target: Target, namespace: str, counters: list[str], at_ns: int, *, json: bool) -> int:
    with calling(target, namespace) as client:
        answers = [(name, client.count_at(name, at_ns)) for name in counters]
    if json:
        documents = [
            count_document(name, answer.value)
            | {"resolution_ms": answer.resolution and milliseconds_of(answer.resolution)}
            for name, answer in answers
        ]
        print_json({"namespace": namespace, "at": format_time(at_ns), "counters": documents})
        return ExitCode.OK
    print_table(
        COUNT_AT_COLUMNS,
        [
            (
                name,
                count_cell(answer.value),
                format_time(answer.value.complete_through_ns) or "unknown",
                (
                    format_setting_ms(milliseconds_of(answer.resolution))
                    if answer.resolution
                    else "exact"
                ),
                str(answer.value.epoch),
                answer.value.source or "unknown",
            )
            for name, answer in answers
        ],
    )
    return ExitCode.OK


def clear(
    context: typer.Context,
    namespace: NamespaceArgument,
    counter: CounterArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    token: TokenOption = None,
    at: AtOption = None,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Set a counter back to 0. Asks first on a terminal; elsewhere it needs --yes."""
    target = target_of(context, server, timeout)
    given = token_from(token, at)
    if not yes:
        _ask_to_clear(f"{namespace}/{counter}")
    with calling(target, namespace) as client:
        try:
            answer = client.clear(counter, token=given)
        except OutcomeUnknown as error:
            raise outcome_unknown(
                f"the clear of {namespace}/{counter}",
                namespace=namespace,
                counter=counter,
                token=error.token,
                target=target,
            ) from error
    if json:
        print_json(
            {"namespace": namespace, "counter": counter}
            | token_document(answer.token)
            | {"duplicate": answer.duplicate}
        )
        return ExitCode.OK
    done = "was cleared before by this token" if answer.duplicate else "cleared"
    say(f"{done}: {namespace}/{counter}", style="green")
    say(f"token: {token_options(answer.token)}")
    return ExitCode.OK


def _ask_to_clear(name: str) -> None:
    if not is_terminal(sys.stdin):
        raise Failure(
            f"{name} is not cleared: nobody is here to ask. Add --yes to clear it without asking.",
            ExitCode.USAGE,
        )
    if not typer.confirm(f"Set {name} back to 0? This cannot be undone.", err=True):
        raise Failure(f"{name} is not cleared: you did not agree.")


def staleness_of(max_staleness_ms: int | None, accurate: bool) -> timedelta | None:
    if accurate and max_staleness_ms:
        raise typer.BadParameter("--accurate is --max-staleness 0s. Give one of the two.")
    if accurate:
        return timedelta(0)
    return None if max_staleness_ms is None else timedelta(milliseconds=max_staleness_ms)


def count_cell(value: CountValue) -> str:
    return format_count(value.count) + (" (clamped)" if value.saturated else "")


def rolling_cells(value: CountValue, now_ns: int) -> tuple[str, str]:
    rate = "" if value.rate_per_s is None else f"{value.rate_per_s:,.4g}"
    return format_age(value.window_start_ns, now_ns), rate


def count_document(counter: str, value: CountValue) -> dict[str, Any]:
    """One count for programs; times are ISO 8601, null where unknown."""
    return {
        "counter": counter,
        "count": value.count,
        "complete_through": format_time(value.complete_through_ns),
        "epoch": value.epoch,
        "cleared_at": format_time(value.cleared_at_ns),
        "strategy": value.strategy,
        "source": value.source,
        "saturated": value.saturated,
        "window_start": format_time(value.window_start_ns),
        "rate_per_s": value.rate_per_s,
    }
