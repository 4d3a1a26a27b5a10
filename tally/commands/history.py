"""`tally history`: what was added to a counter over time, as a chart, a table or lines."""

import time
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from clients import Adjustment, CountHistory, HistoryPoint
from counter.clock import NS_PER_MS
from tally.commands.chart import (
    ADJUSTED,
    ADJUSTED_STYLE,
    CLEARED,
    CLEARED_STYLE,
    DIM,
    UNKNOWN,
    draw,
)
from tally.commands.chart_scale import moment_of
from tally.commands.connection import (
    CounterArgument,
    JsonOption,
    NamespaceArgument,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.values import (
    format_age,
    format_count,
    format_moment,
    format_setting_ms,
    format_time,
    milliseconds_of,
    parse_duration_ms,
    parse_moment_ns,
)
from tally.output import Column, ExitCode, console, is_terminal, print_json, print_table, printable

LAST_MS_DEFAULT = 3_600_000
NOTES_SHOWN_MAX = 5
# What stands above and below the rows of the chart, and the next prompt.
LINES_AROUND = 9

HISTORY_FIELDS = (
    "JSON: namespace, counter, step_ms, resolution_ms, complete_through, points, a list of: start, "
    "delta, count (both null where not known), epoch, saturated, known; adjustments, a list of: "
    "time, delta, author, reason."
)
COLUMNS = (
    Column(title="start", style="cyan"),
    Column(title="delta", right=True, style="bold"),
    Column(title="count", right=True),
    Column(title="epoch", right=True),
    Column(title="note", optional=True),
)


def history(
    context: typer.Context,
    namespace: NamespaceArgument,
    counter: CounterArgument,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="DURATION",
            parser=parse_duration_ms,
            help="The last 1h, 7d and so on.  \\[default: 1h]",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="TIME",
            parser=parse_moment_ns,
            help="Begin here: ISO 8601 (UTC unless it has a zone), or -1h.",
            show_default=False,
        ),
    ] = None,
    end: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="TIME",
            parser=parse_moment_ns,
            help="End here.  \\[default: now]",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step",
            metavar="DURATION",
            parser=parse_duration_ms,
            help="A multiple of a step that is kept.  \\[default: the finest]",
            show_default=False,
        ),
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="Draw the running count instead.")
    ] = False,
    table: Annotated[bool, typer.Option("--table", help="A table instead of the chart.")] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Draw what was added to a counter over time. All times are UTC.

    The namespace has to keep a history. Into a pipe it is one tab-separated line for each step.
    """
    target = target_of(context, server, timeout)
    now_ns = time.time_ns()
    if last is not None and (start is not None or end is not None):
        raise typer.BadParameter("--last ends now: give it alone, or --from and --to.")
    if end is not None and start is None:
        raise typer.BadParameter("--to needs --from.")
    if start is None:
        start = now_ns - (LAST_MS_DEFAULT if last is None else last) * NS_PER_MS
    if start >= (now_ns if end is None else end):
        raise typer.BadParameter("the range is empty: it has to begin before it ends.")
    with calling(target, namespace) as client:
        answer = client.history(
            counter,
            start=start,
            end=end,
            step=None if step is None else timedelta(milliseconds=step),
        )
    if json:
        print_json(_document(namespace, counter, answer))
    elif table or not is_terminal():
        print_table(COLUMNS, _cells(answer))
    else:
        screen = console()
        lines = render(
            f"{namespace}/{counter}",
            answer,
            now_ns=now_ns,
            width=screen.width,
            height=screen.height,
            running=running,
        )
        for line in lines:
            screen.print(line)
    return ExitCode.OK


def render(
    name: str, answer: CountHistory, *, now_ns: int, width: int, height: int, running: bool
) -> list[Text]:
    """All that a terminal of this size shows."""
    notes = _notes(answer)
    for note in notes:
        note.truncate(width, overflow="ellipsis")  # --table has all of it
    chart = draw(answer, width=width, rows=height - LINES_AROUND - len(notes), running=running)
    slot = format_setting_ms(milliseconds_of(chart.slot))
    what = "count" if running else f"added per {slot}"
    step = format_setting_ms(milliseconds_of(answer.step))
    facts = [
        _range(answer),
        f"steps of {step}" + (f", {slot} in each column" if slot != step else ""),
        f"resolution {format_setting_ms(milliseconds_of(answer.resolution))}",
        f"complete through {format_moment(answer.complete_through_ns)}"
        f" ({format_age(answer.complete_through_ns, now_ns)})",
    ]
    lines = [_title(name, answer)]
    lines += [Text(line, style=DIM) for line in _flow(facts, width)]
    return [*lines, Text(), Text(what, style=DIM), *chart.lines, *notes]


def _title(name: str, answer: CountHistory) -> Text:
    known = [point for point in answer.points if point.known]
    title = Text(printable(name), style="bold cyan")
    if not known:
        return title.append("  nothing is known of this time", "yellow")
    title.append(f"  count {format_count(known[-1].count)}", "bold")
    added = sum(point.delta for point in known)
    span_ms = milliseconds_of(answer.step) * len(known)
    grown = f"added {added:+,}" if any(point.delta for point in known) else "nothing added"
    style = "green" if added > 0 else "red" if added < 0 else ""
    return title.append(f"  {grown} in {_span(span_ms)}", style)


def _span(span_ms: int) -> str:
    minutes = span_ms // 60_000
    days, hours, minutes = minutes // 1_440, minutes // 60 % 24, minutes % 60
    parts = ((days, "d"), (hours, "h"), (minutes, "min"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "under a minute"


def _range(answer: CountHistory) -> str:
    if not answer.points:
        return "no steps"
    step_ns = milliseconds_of(answer.step) * NS_PER_MS
    first = moment_of(answer.points[0].start_ns)
    last = moment_of(answer.points[-1].start_ns + step_ns)
    same_day = first.date() == last.date()
    return f"{first:%Y-%m-%d %H:%M} to {last:{'%H:%M' if same_day else '%Y-%m-%d %H:%M'}} UTC"


def _flow(facts: list[str], width: int) -> list[str]:
    """The facts on as few lines as the width allows."""
    lines = [facts[0]]
    for fact in facts[1:]:
        longer = f"{lines[-1]} · {fact}"
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(fact)
    return lines


def _notes(answer: CountHistory) -> list[Text]:
    """What the marks mean, and what the operators wrote."""
    notes: list[Text] = []
    if not all(point.known for point in answer.points):
        notes.append(Text(f"{UNKNOWN} not known: the history does not reach that far", style=DIM))
    cleared = [point for point, changed in _with_clears(answer) if changed]
    if cleared:
        times = ", ".join(format_moment(point.start_ns)[:-4] for point in cleared[:NOTES_SHOWN_MAX])
        more = ", and more" if len(cleared) > NOTES_SHOWN_MAX else ""
        notes.append(Text(f"{CLEARED} cleared in the step of {times}{more}", CLEARED_STYLE))
    for adjustment in answer.adjustments[:NOTES_SHOWN_MAX]:
        notes.append(Text(f"{ADJUSTED} {_adjusted(adjustment)}", ADJUSTED_STYLE))
    more_adjusted = len(answer.adjustments) - NOTES_SHOWN_MAX
    if more_adjusted > 0:
        notes.append(Text(f"{ADJUSTED} and {more_adjusted} more, in --table", ADJUSTED_STYLE))
    return notes


def _adjusted(adjustment: Adjustment) -> str:
    return printable(
        f"{format_moment(adjustment.time_ns)} adjusted by {adjustment.delta:+,}, "
        f"{adjustment.author}: {adjustment.reason}"
    )


def _with_clears(answer: CountHistory) -> list[tuple[HistoryPoint, bool]]:
    """Each point, and whether the counter was cleared in it, as far as the range shows that."""
    before = (None, *answer.points)
    return [
        (
            point,
            point.known and last is not None and last.known and point.epoch > last.epoch,
        )
        for last, point in zip(before, answer.points, strict=False)
    ]


def _cells(answer: CountHistory) -> list[tuple[str, ...]]:
    """Numbers have no commas in a pipe: what reads them there counts on."""
    number = format_count if is_terminal() else str
    step_ns = milliseconds_of(answer.step) * NS_PER_MS
    rows: list[tuple[str, ...]] = []
    for point, cleared in _with_clears(answer):
        notes = ["cleared"] if cleared else []
        notes += ["clamped"] if point.saturated else []
        notes += [
            f"adjusted by {each.delta:+,}, {each.author}: {each.reason}"
            for each in answer.adjustments
            if point.start_ns <= each.time_ns < point.start_ns + step_ns
        ]
        if point.known:
            cells = (number(point.delta), number(point.count), str(point.epoch), "; ".join(notes))
        else:
            cells = ("", "", "", "; ".join(["not known", *notes]))
        rows.append((format_moment(point.start_ns), *cells))
    return rows


def _document(namespace: str, counter: str, answer: CountHistory) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "counter": counter,
        "step_ms": milliseconds_of(answer.step),
        "resolution_ms": milliseconds_of(answer.resolution),
        "complete_through": format_time(answer.complete_through_ns),
        "points": [
            {
                "start": format_time(point.start_ns),
                "delta": point.delta if point.known else None,
                "count": point.count if point.known else None,
                "epoch": point.epoch,
                "saturated": point.saturated,
                "known": point.known,
            }
            for point in answer.points
        ],
        "adjustments": [adjustment_document(each) for each in answer.adjustments],
    }


def adjustment_document(adjustment: Adjustment) -> dict[str, Any]:
    return {
        "time": format_time(adjustment.time_ns),
        "delta": adjustment.delta,
        "author": adjustment.author,
        "reason": adjustment.reason,
    }
