"""`tally watch`: counters as they change."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from clients import CountValue, SyncCounterClient, Unavailable
from tally.commands.connection import (
    CountersArgument,
    JsonOption,
    NamespaceArgument,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.counters import (
    VALUE_FIELDS,
    AccurateOption,
    MaxStalenessOption,
    count_cell,
    count_document,
    staleness_of,
)
from tally.commands.values import format_age, format_setting_ms, format_time, parse_duration_ms
from tally.output import (
    Column,
    ExitCode,
    complain,
    console,
    draw_table,
    is_terminal,
    print_json_line,
    printable,
    write_line,
)

WATCH_FIELDS = f"JSON, in each line: time, namespace, {VALUE_FIELDS}, change_per_second."
HISTORY_MAX = 24
# A server that went away is noticed while somebody looks.
ROUND_TIMEOUT_S_MAX = 3.0
INTERVAL_MS_MIN = 50
BARS = "▁▂▃▄▅▆▇█"

COLUMNS = (
    Column(title="counter", style="cyan"),
    Column(title="count", right=True, style="bold"),
    Column(title="change/s", right=True),
    Column(title="last values", style="green"),
    Column(title="complete through"),
)


class Trace:
    """One counter's last values."""

    def __init__(self, counter: str) -> None:
        self.counter = counter
        self.value: CountValue | None = None
        self.change_per_s: float | None = None
        self._history: deque[int] = deque(maxlen=HISTORY_MAX)
        self._seen_s = 0.0

    def see(self, value: CountValue, now_s: float) -> None:
        # After a clear the difference to the count before it would be no rate of anything.
        if self.value is not None and self.value.epoch == value.epoch and now_s > self._seen_s:
            self.change_per_s = (value.count - self.value.count) / (now_s - self._seen_s)
        else:
            self.change_per_s = None
        self.value, self._seen_s = value, now_s
        self._history.append(value.count)

    def sparkline(self) -> str:
        lowest, highest = min(self._history), max(self._history)
        if lowest == highest:
            return BARS[0] * len(self._history)
        scale = (len(BARS) - 1) / (highest - lowest)
        return "".join(BARS[round((each - lowest) * scale)] for each in self._history)

    def change(self) -> str:
        return "" if self.change_per_s is None else f"{self.change_per_s:+,.1f}"


def watch(
    context: typer.Context,
    namespace: NamespaceArgument,
    counters: CountersArgument,
    interval: Annotated[
        int,
        typer.Option(
            "--interval",
            metavar="DURATION",
            parser=parse_duration_ms,
            help="Between two reads.",
            show_default="1s",
        ),
    ] = 1000,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Stop after N reads.")
    ] = None,
    max_staleness: MaxStalenessOption = None,
    accurate: AccurateOption = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Watch counters change, until Ctrl-C. With --json, one object per line, counter and read."""
    if interval < INTERVAL_MS_MIN:
        raise typer.BadParameter(f"--interval is at least {INTERVAL_MS_MIN}ms.")
    target = target_of(context, server, timeout)
    staleness = staleness_of(max_staleness, accurate)
    traces = [Trace(counter) for counter in counters]
    rounds = itertools.count() if count is None else range(count)
    with calling(target, namespace) as client:

        def look(show: Callable[[str], None]) -> int:
            return _look(
                client,
                traces,
                show,
                rounds=rounds,
                interval_ms=interval,
                timeout_s=min(target.timeout_s, ROUND_TIMEOUT_S_MAX),
                staleness=staleness,
            )

        try:
            if json:
                return look(lambda problem: _print_json(namespace, traces, problem))
            if not is_terminal():
                write_line("time\tcounter\tcount\tchange/s\tcomplete through")
                return look(lambda problem: _print_lines(traces, problem))
            with Live(console=console(), auto_refresh=False) as live:
                title = f"{namespace} on {target.server}, every {format_setting_ms(interval)}"
                return look(
                    lambda problem: live.update(_draw(title, traces, problem), refresh=True)
                )
        except KeyboardInterrupt:
            return ExitCode.OK


def _look(
    client: SyncCounterClient,
    traces: Sequence[Trace],
    show: Callable[[str], None],
    *,
    rounds: "range | itertools.count[int]",
    interval_ms: int,
    timeout_s: float,
    staleness: timedelta | None,
) -> int:
    """Reads and shows, round after round. A server that goes away is waited for.

    `show` gets what went wrong in the round, or nothing. The exit code is the last round's.
    """
    exit_code = ExitCode.OK
    next_s = time.monotonic()
    names = [trace.counter for trace in traces]
    for number in rounds:
        if number:
            next_s = max(next_s + interval_ms / 1_000, time.monotonic())
            time.sleep(max(0.0, next_s - time.monotonic()))
        try:
            values = client.batch_get(names, max_staleness=staleness, timeout_s=timeout_s)
        except Unavailable as error:
            if not number:
                raise
            exit_code = ExitCode.UNREACHABLE
            show(error.message)
            continue
        exit_code = ExitCode.OK
        now_s = time.monotonic()
        for trace, value in zip(traces, values, strict=True):
            trace.see(value, now_s)
        show("")
    return exit_code


def _draw(title: str, traces: Sequence[Trace], problem: str) -> Group:
    now_ns = time.time_ns()
    rows = [
        (
            printable(trace.counter),
            count_cell(trace.value),
            trace.change(),
            trace.sparkline().ljust(HISTORY_MAX),
            format_age(trace.value.complete_through_ns, now_ns),
        )
        for trace in traces
        if trace.value is not None
    ]
    below = Text(printable(problem), style="bold red") if problem else Text("Ctrl-C ends", "dim")
    return Group(Text(printable(title), style="dim"), draw_table(COLUMNS, rows), Text(), below)


def _print_lines(traces: Sequence[Trace], problem: str) -> None:
    if problem:
        complain(problem)
        return
    now_ns = time.time_ns()
    for trace in traces:
        assert trace.value is not None, trace.counter
        cells = (
            format_time(now_ns) or "",
            printable(trace.counter),
            count_cell(trace.value),
            trace.change(),
            format_age(trace.value.complete_through_ns, now_ns),
        )
        write_line("\t".join(cells))


def _print_json(namespace: str, traces: Sequence[Trace], problem: str) -> None:
    if problem:
        complain(problem)
        return
    now = format_time(time.time_ns())
    for trace in traces:
        assert trace.value is not None, trace.counter
        document: dict[str, Any] = {"time": now, "namespace": namespace}
        document |= count_document(trace.counter, trace.value)
        print_json_line(document | {"change_per_second": trace.change_per_s})
