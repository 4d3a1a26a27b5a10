"""Charts in the terminal: bars of throughput, latencies against load, memory over time."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.series import Curve, Series, Throughput, Trace
from benchmarks.workloads import WORKLOADS

_BAR_COLUMNS = 60
_SPARK_COLUMNS = 60
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
# From here on the short bars of a linear scale could not be told apart.
LOG_FROM_RATIO = 20.0


def show_series(series: Series, console: Console) -> None:
    for (place, workload), bars in series.panels().items():
        ranked = sorted(bars, key=lambda each: -each.per_s)
        scale = ", log scale" if _is_logarithmic(ranked) else ""
        _show(f"{about(workload, place)} ({ranked[0].unit}{scale})", _bars(ranked), console)
    if series.curves:
        title = "p50/p99/p99.9 in ms, open loop, at shares of each system's own peak"
        _show(title, _latencies(series.curves), console)
    if series.traces:
        minutes = max(trace.seconds[-1] for trace in series.traces) / 60
        _show(f"memory over {minutes:.0f} min, from 0", _memory(series.traces), console)


def _show(title: str, table: Table, console: Console) -> None:
    # Not as the table's own title, which would be wrapped at its width.
    console.print(f"\n[bold]{title}[/bold]", highlight=False)
    console.print(table)


def bar(value: float, lowest: float, highest: float, columns: int = _BAR_COLUMNS) -> str:
    """Linear, unless the values are so far apart that it would hide the small ones: then the
    length is by the logarithm, from a tenth of the lowest on."""
    if highest / lowest >= LOG_FROM_RATIO:
        share = math.log10(value / lowest * 10) / math.log10(highest / lowest * 10)
    else:
        share = value / highest
    eighths = max(1, round(share * columns * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def spark(values: Sequence[float], columns: int = _SPARK_COLUMNS) -> str:
    """From 0 on, so that a flat line looks flat and a doubling like one."""
    highest = max(values)
    chosen = [values[at * len(values) // columns] for at in range(columns)]
    if len(values) <= columns:
        chosen = list(values)
    return "".join(_SPARKS[min(7, int(value / highest * 7.999))] for value in chosen)


def is_tally(system: str) -> bool:
    return system.startswith("Tally")


def about(workload: str, place: str) -> str:
    """Its name, what it is if it is one of the shared ones, and beside what it was measured."""
    known = WORKLOADS.get(workload)
    said = workload if known is None else f"{workload}: {known.says}"
    return f"{said}; on Cassandra, {place}" if place else said


def _is_logarithmic(ranked: Sequence[Throughput]) -> bool:
    return ranked[0].per_s / ranked[-1].per_s >= LOG_FROM_RATIO


def _bars(ranked: Sequence[Throughput]) -> Table:
    lowest, highest = ranked[-1].per_s, ranked[0].per_s
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("system", no_wrap=True)
    table.add_column("rate", justify="right", no_wrap=True)
    table.add_column("bar", no_wrap=True)
    for each in ranked:
        style = "dim" if each.limit else "cyan" if is_tally(each.system) else "yellow"
        table.add_row(
            each.system, f"{each.per_s:,.0f}", Text(bar(each.per_s, lowest, highest), style=style)
        )
    return table


def _latencies(curves: Sequence[Curve]) -> Table:
    shares = sorted({point.share_of_peak for curve in curves for point in curve.points})
    table = Table()
    table.add_column("system", no_wrap=True)
    table.add_column("peak/s", justify="right", no_wrap=True)
    for share in shares:
        table.add_column(f"{share:.0%}", justify="right", no_wrap=True)
    for curve in curves:
        at = {point.share_of_peak: point for point in curve.points}
        cells = []
        for share in shares:
            if (point := at.get(share)) is None:
                cells.append("-")
            else:
                values = (point.p50_ms, point.p99_ms, point.p999_ms)
                cells.append("/".join(_ms(value) for value in values))
        table.add_row(curve.system, f"{curve.peak_per_s:,.0f}", *cells)
    return table


def _memory(traces: Sequence[Trace]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("process", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("last MB", justify="right")
    table.add_column("most MB", justify="right")
    for trace in traces:
        table.add_row(
            trace.process,
            Text(spark(trace.memory_mb), style="cyan"),
            f"{trace.memory_mb[-1]:,.0f}",
            f"{max(trace.memory_mb):,.0f}",
        )
    return table


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
