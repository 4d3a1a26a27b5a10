"""`tally list` and `tally top`: the counters of a namespace, by name or by size, with bars."""

import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from typing import Annotated

import typer
from rich.cells import cell_len

from clients import CounterEntry, SyncCounterClient, TopCounters
from tally.commands.connection import (
    JsonOption,
    NamespaceArgument,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.counters import VALUE_FIELDS, count_cell, count_document
from tally.commands.values import (
    format_age,
    format_count,
    format_moment,
    format_setting_ms,
    format_time,
    milliseconds_of,
    parse_duration_ms,
)
from tally.output import Column, ExitCode, console, is_terminal, print_json, print_table, say

PAGE_SIZE = 1_000  # the platform's limit
LIST_LIMIT_DEFAULT = 100
LIST_LIMIT_MAX = 1_000_000
TOP_LIMIT_DEFAULT = 10
TOP_LIMIT_MAX = 1_000  # the platform's
COLUMN_GAP = 3  # of drawn tables
BAR_COLUMNS_MAX = 40
BAR_COLUMNS_MIN = 8
_EIGHTHS = " ▏▎▍▌▋▊▉"

LIST_FIELDS = (
    "JSON: namespace, prefix, complete_through, more (whether there are more than --limit), "
    f"counters, a list of: {VALUE_FIELDS}."
)
TOP_FIELDS = (
    "JSON: namespace, prefix, complete_through, counters_seen, growth_from, resolution_ms, "
    f"counters, a list of: rank, growth, {VALUE_FIELDS}."
)


def list_counters(
    context: typer.Context,
    namespace: NamespaceArgument,
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="Names that begin so.", show_default=False)
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=LIST_LIMIT_MAX, help="At most N.")
    ] = LIST_LIMIT_DEFAULT,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """List the counters of a namespace by name. A counter is there from its first fold on."""
    target = target_of(context, server, timeout)
    with calling(target, namespace) as client:
        entries, complete_through_ns, more = _entries(client, prefix, limit)
    if json:
        print_json(
            {
                "namespace": namespace,
                "prefix": prefix,
                "complete_through": format_time(complete_through_ns),
                "more": more,
                "counters": [count_document(each.counter, each.value) for each in entries],
            }
        )
        return ExitCode.OK
    now_ns = time.time_ns()
    rows = [
        (each.counter, count_cell(each.value), str(each.value.epoch) if each.value.epoch else "")
        for each in entries
    ]
    columns = (
        Column(title="counter", style="cyan"),
        Column(title="count", right=True, style="bold"),
        Column(title="epoch", right=True, optional=True),
    )
    _print_with_bars(columns, rows, [each.value.count for each in entries])
    if is_terminal():
        shown = "no counters" if not entries else f"{format_count(len(entries))} counters"
        if len(entries) == 1:
            shown = "1 counter"
        age = format_age(complete_through_ns, now_ns)
        rest = "; there are more: see --limit" if more else ""
        say(f"{'the first ' * more}{shown}, complete through {age}{rest}", style="dim")
    return ExitCode.OK


def _entries(
    client: SyncCounterClient, prefix: str, limit: int
) -> tuple[list[CounterEntry], int | None, bool]:
    """Up to `limit` counters, what they are all complete through, and whether there are more."""
    entries: list[CounterEntry] = []
    stamps: list[int | None] = []
    page_token = ""
    while True:
        page = client.list_counters_page(
            prefix, page_size=min(PAGE_SIZE, limit - len(entries)), page_token=page_token
        )
        entries += page.counters
        stamps.append(page.complete_through_ns)
        page_token = page.next_page_token
        if not page_token or len(entries) >= limit:
            break
    known = [stamp for stamp in stamps if stamp is not None]
    complete_through_ns = min(known) if len(known) == len(stamps) else None
    return list(islice(entries, limit)), complete_through_ns, bool(page_token)


def top(
    context: typer.Context,
    namespace: NamespaceArgument,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=TOP_LIMIT_MAX, help="The first N.")
    ] = TOP_LIMIT_DEFAULT,
    growth: Annotated[
        int | None,
        typer.Option(
            "--growth",
            metavar="DURATION",
            parser=parse_duration_ms,
            help="By what was added in the last 10m, 1h and so on. Needs a history.",
            show_default=False,
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option("--prefix", metavar="P", help="Names that begin so.", show_default=False),
    ] = "",
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Show the counters with the highest count, or with --growth those that grow fastest."""
    target = target_of(context, server, timeout)
    growth_over = None if growth is None else timedelta(milliseconds=growth)
    with calling(target, namespace) as client:
        answer = client.top_counters(limit=limit, prefix=prefix, growth_over=growth_over)
    if json:
        resolution = answer.resolution
        print_json(
            {
                "namespace": namespace,
                "prefix": prefix,
                "complete_through": format_time(answer.complete_through_ns),
                "counters_seen": answer.counters_seen,
                "growth_from": format_time(answer.growth_from_ns),
                "resolution_ms": None if resolution is None else milliseconds_of(resolution),
                "counters": [
                    {"rank": rank, "growth": each.growth} | count_document(each.counter, each.value)
                    for rank, each in enumerate(answer.counters, 1)
                ],
            }
        )
        return ExitCode.OK
    _print_top(answer, by_growth=growth is not None)
    return ExitCode.OK


def _print_top(answer: TopCounters, *, by_growth: bool) -> None:
    columns = [
        Column(title="rank", right=True, style="dim"),
        Column(title="counter", style="cyan"),
        Column(title="count", right=True, style="" if by_growth else "bold"),
    ]
    if by_growth:
        columns.append(Column(title="growth", right=True, style="bold"))
    rows = [
        (
            str(rank),
            each.counter,
            count_cell(each.value),
            *((f"{each.growth or 0:+,}",) if by_growth else ()),
        )
        for rank, each in enumerate(answer.counters, 1)
    ]
    sizes = [(each.growth or 0) if by_growth else each.value.count for each in answer.counters]
    _print_with_bars(columns, rows, sizes)
    if is_terminal():
        facts = [
            f"of {format_count(answer.counters_seen)} counters",
            f"complete through {format_age(answer.complete_through_ns, time.time_ns())}",
        ]
        if by_growth:
            facts.append(f"growth since {format_moment(answer.growth_from_ns)}")
        if answer.resolution is not None:
            facts.append(f"resolution {format_setting_ms(milliseconds_of(answer.resolution))}")
        say(", ".join(facts), style="dim")


def _print_with_bars(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], sizes: Sequence[int]
) -> None:
    """The table, and on a terminal with room for them a bar for each row."""
    if not is_terminal():
        print_table(columns, rows)
        return
    used = 0
    for index, column in enumerate(columns):
        longest = max((cell_len(row[index]) for row in rows), default=0)
        if longest or not column.optional:
            used += max(len(column.title), longest) + COLUMN_GAP
    bar_columns = min(BAR_COLUMNS_MAX, console().width - used)
    if bar_columns < BAR_COLUMNS_MIN:
        print_table(columns, rows)
        return
    print_table(
        [*columns, Column(title="", style="green", optional=True)],
        [(*row, each) for row, each in zip(rows, bars(sizes, bar_columns), strict=True)],
    )


def bars(sizes: Sequence[int], columns: int) -> list[str]:
    """A bar for each size, the largest as long as `columns`; what is not above 0 has none."""
    largest = max((0, *sizes))
    drawn = []
    for size in sizes:
        eighths = max(1, size * columns * 8 // largest) if size > 0 else 0
        full, rest = divmod(eighths, 8)
        drawn.append("█" * full + _EIGHTHS[rest].strip())
    return drawn
