"""Charts as PNG, drawn from the JSON of a run: `python -m benchmarks.charts` draws them again.

Colours are of the palette by Okabe and Ito, which people with any colour vision can tell apart;
lines also differ in their markers, and those of Tally are not dashed.
"""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from benchmarks.charts.terminal import about, is_tally
from benchmarks.series import Curve, Series, Throughput, Trace

matplotlib.use("Agg")

_BLUE, _ORANGE, _GREY = "#0072B2", "#E69F00", "#999999"
_LINES = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"),
    *("#56B4E9", "#000000", "#8C6D00", "#7A4FBF", "#999999"),
)
_MARKERS = "osD^vPX*<>"
_DPI = 150
_PANELS_PER_ROW = 2
_HEADINGS = {
    "throughput": "How much each system does: closed loop, the median of the rounds",
    "latency": "How long a call takes: latency against offered load, open loop",
    "memory": "Memory at full load",
}
_PERCENTILES = {"p50": "p50_ms", "p99": "p99_ms", "p99.9": "p999_ms"}
_KINDS = {
    "Tally": _BLUE,
    "what one could use instead": _ORANGE,
    "limit of a part (» the bar is cut off)": _GREY,
}
_SMALL_CHARACTERS_PER_INCH = 14.5
_TITLE_CHARACTERS = 53
_BARS_BESIDE_MAX = 8

Panel = tuple[str, list[Throughput]]  # its title and its bars


def draw(results: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """One image for each kind of series that the results have; where they were written."""
    series = Series.from_json(results.get("series", {}))
    drawn: dict[str, Image] = {}
    if series.throughputs:
        drawn["throughput"] = _throughputs(series)
    if any(curve.points for curve in series.curves):
        drawn["latency"] = _latencies([curve for curve in series.curves if curve.points])
    if series.traces:
        drawn["memory"] = _memory(series.traces)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, image in drawn.items():
        _label(image, _HEADINGS[kind], results)
        path = folder / (f"{name}.png" if kind == name else f"{name}-{kind}.png")
        image.savefig(path, dpi=_DPI, facecolor="white", metadata={"Software": None})
        written.append(path)
    return written


def _throughputs(series: Series) -> Image:
    """A panel for what may be compared with each other, its systems in the order of their rates."""
    rows = panel_rows(series)
    heights = [0.27 * max(len(bars) for _, bars in row) + 1.0 for row in rows]
    image = Image(figsize=(7.4 * _PANELS_PER_ROW, sum(heights) + 1.5))
    image.set_layout_engine("constrained", w_pad=0.15, h_pad=0.08)
    grid = image.add_gridspec(len(rows), _PANELS_PER_ROW, height_ratios=heights)
    for number, row in enumerate(rows):
        most = max(len(bars) for _, bars in row)
        for column, (title, bars) in enumerate(row):
            whole_row = len(row) == 1 and len(bars) > _BARS_BESIDE_MAX
            axes = image.add_subplot(grid[number, :] if whole_row else grid[number, column])
            wrapped = textwrap.fill(title, _TITLE_CHARACTERS * (2 if whole_row else 1))
            axes.set_title(wrapped, fontsize=10.5, loc="left", fontweight="bold")
            _bars(axes, bars)
            # As many places as the largest panel of the row: all bars are equally thick.
            axes.set_ylim(len(bars) - most - 0.6, len(bars) - 0.4)
    swatches = [Patch(color=colour, label=kind) for kind, colour in _KINDS.items()]
    image.legend(handles=swatches, loc="outside lower left", ncols=3, frameon=False, fontsize=9.5)
    return image


def panel_rows(series: Series) -> list[list[Panel]]:
    """Two panels beside each other, but for large ones, which have a row of their own."""
    rows: list[list[Panel]] = []
    for (place, workload), bars in series.panels().items():
        panel = (about(workload, place), bars)
        last = rows[-1] if rows else []
        beside = len(bars) <= _BARS_BESIDE_MAX and 0 < len(last) < _PANELS_PER_ROW
        if beside and len(last[0][1]) <= _BARS_BESIDE_MAX:
            last.append(panel)
        else:
            rows.append([panel])
    return rows


def _bars(axes: Axes, bars: Sequence[Throughput]) -> None:
    """The scale is that of the systems; the bar of a limit that is far beyond them is cut off."""
    ranked = sorted(bars, key=lambda each: each.per_s)
    system_rates = [each.per_s for each in ranked if not each.limit]
    end = max(system_rates or [each.per_s for each in ranked]) * 1.08
    drawn = axes.barh(
        [each.system for each in ranked],
        [min(each.per_s, end) for each in ranked],
        color=[_colour(each) for each in ranked],
        height=0.72,
    )
    labels = [f" {'» ' if each.per_s > end else ''}{each.per_s:,.0f}" for each in ranked]
    axes.bar_label(drawn, labels, fontsize=8)
    axes.set_xlim(0, end * 1.2)
    axes.set_xlabel(ranked[0].unit, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
    axes.tick_params(labelsize=9)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    for label, each in zip(axes.get_yticklabels(), ranked, strict=True):
        label.set_fontweight("bold" if is_tally(each.system) else "normal")
    _plain(axes, grid="x")


def _latencies(curves: Sequence[Curve]) -> Image:
    image = Image(figsize=(17.0, 6.4))
    image.set_layout_engine("constrained", w_pad=0.15)
    whole: Axes | None = None
    for number, (title, field) in enumerate(_PERCENTILES.items()):
        axes = image.add_subplot(1, 3, number + 1, sharey=whole)
        whole = whole or axes
        for at, curve in enumerate(curves):
            axes.plot(
                [point.offered_per_s for point in curve.points],
                [getattr(point, field) for point in curve.points],
                color=_LINES[at % len(_LINES)],
                marker=_MARKERS[at % len(_MARKERS)],
                markersize=5.5,
                linewidth=2.2 if is_tally(curve.system) else 1.3,
                linestyle="-" if is_tally(curve.system) else "--",
                label=curve.system,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"{title}", fontsize=11, loc="left", fontweight="bold")
        axes.set_xlabel("offered load, calls/s, log scale")
        axes.set_ylabel("ms from when a call was due, log scale")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=20))
            axis.set_major_formatter(FuncFormatter(_short))
            axis.set_minor_formatter(NullFormatter())
        _plain(axes, grid="both")
    assert whole is not None
    handles, labels = whole.get_legend_handles_labels()
    image.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)
    return image


def _memory(traces: Sequence[Trace]) -> Image:
    image = Image(figsize=(10.0, 5.0))
    image.set_layout_engine("constrained")
    axes = image.add_subplot(1, 1, 1)
    for at, trace in enumerate(traces):
        axes.plot(
            [second / 60 for second in trace.seconds],
            trace.memory_mb,
            color=_LINES[at % len(_LINES)],
            linewidth=1.8,
            label=trace.process,
        )
    axes.set_ylim(0, max(max(trace.memory_mb) for trace in traces) * 1.15)
    axes.set_xlim(0, math.ceil(max(trace.seconds[-1] for trace in traces) / 6) / 10)
    axes.set_xlabel("minutes at full load")
    axes.set_ylabel("resident memory, MB")
    _plain(axes, grid="y")
    image.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    return image


def _label(image: Image, heading: str, results: dict[str, Any]) -> None:
    """A title, and under it what it was measured on, as many lines as that takes."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    about = (
        f"{machine['cores']} cores that also run the clients and the stores, "
        f"{machine['memory_gb']} GB, {machine['system']}; {versions}; {results['measured_on']}"
        f"{'; a quick run' if results.get('quick') else ''}"
    )
    lines = textwrap.wrap(about, int(image.get_figwidth() * _SMALL_CHARACTERS_PER_INCH))
    # The empty lines keep the room for the small ones: the layout knows the title only.
    image.suptitle(
        heading + "\n" * math.ceil(len(lines) * 0.75),
        fontsize=14,
        fontweight="bold",
        x=0.01,
        ha="left",
    )
    image.text(
        0.01,
        1.0 - 0.36 / image.get_figheight(),
        "\n".join(lines),
        fontsize=8,
        color="#555555",
        ha="left",
        va="top",
        linespacing=1.4,
    )


def _colour(throughput: Throughput) -> str:
    if throughput.limit:
        return _GREY
    return _BLUE if is_tally(throughput.system) else _ORANGE


def _plain(axes: Axes, *, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, which="major", color="#DDDDDD", linewidth=0.7)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def _short(value: float, _: object) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if value >= 1_000:
        return f"{value / 1_000:g}k"
    return f"{value:g}"
