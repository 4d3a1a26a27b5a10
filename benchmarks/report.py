"""The figures as a table for people and as JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.charts.terminal import show_series
from benchmarks.figures import Figure
from benchmarks.machine import machine, versions
from benchmarks.series import Series

# A terminal may be narrower, and a pipe has no width at all.
_COLUMNS_MIN = 120
_MET = {True: "[green]yes[/green]", False: "[bold red]MISSED[/bold red]", None: ""}


@dataclass(frozen=True, kw_only=True)
class Report:
    title: str
    figures: Sequence[Figure]
    quick: bool
    elapsed_s: float
    series: Series = field(default_factory=Series)
    notes: Sequence[str] = ()  # in sentences: where a peer is ahead, what was not measured
    systems: Sequence[dict[str, str]] = ()  # how each was used, and what it promises
    versions: dict[str, str] = field(default_factory=versions)
    machine: dict[str, Any] = field(default_factory=machine)

    def print(self, console: Console | None = None) -> None:
        console = console or Console()
        console.width = max(console.width, _COLUMNS_MIN)
        console.print()
        console.print(self._table())
        console.print(self._verdict())
        show_series(self.series, console)
        for note in self.notes:
            console.print(f"- {note}", highlight=False)
        console.print(
            f"[dim]{self.machine['cores']} cores, {self.machine['memory_gb']} GB, "
            f"{self.machine['system']}; "
            + ", ".join(f"{name} {number}" for name, number in self.versions.items())
            + f"; {self.elapsed_s:.0f} s[/dim]",
            highlight=False,
        )
        if self.quick:
            console.print("A quick run: fewer rounds, fewer counters. Compare full runs only.")

    def _table(self) -> Table:
        table = Table(title=self.title, title_justify="left", title_style="bold")
        table.add_column("what")
        table.add_column("figure", justify="right", no_wrap=True)
        table.add_column("rounds", justify="right", no_wrap=True)
        table.add_column("target", justify="right", no_wrap=True)
        table.add_column("met", no_wrap=True)
        for figure in self.figures:
            table.add_row(
                _described(figure),
                f"[bold]{shown(figure)}[/bold]",
                "" if figure.spread is None else " to ".join(map(_number, figure.spread)),
                ""
                if figure.target is None
                else f"{figure.target.bound} {_number(figure.target.value)}",
                _MET[figure.met],
            )
            table.add_section()
        return table

    def _verdict(self) -> str:
        judged = [figure for figure in self.figures if figure.target is not None]
        missed = [figure.name for figure in judged if not figure.met]
        if not judged:
            return ""
        if not missed:
            return f"[green]All {len(judged)} targets met.[/green]"
        return f"[bold red]{len(missed)} of {len(judged)} targets missed:[/bold red] " + "; ".join(
            missed
        )

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")

    def as_json(self) -> dict[str, Any]:
        return {
            "measured_on": datetime.now(UTC).date().isoformat(),
            "what": self.title,
            "quick": self.quick,
            "versions": self.versions,
            "machine": self.machine,
            "figures": [
                {
                    "name": figure.name,
                    "value": _rounded(figure.value),
                    "unit": figure.unit,
                    "rounds": None if figure.spread is None else [*map(_rounded, figure.spread)],
                    "target": None
                    if figure.target is None
                    else {"bound": figure.target.bound, "value": figure.target.value},
                    "met": figure.met,
                    "explained_by": {
                        name: _rounded(value) for name, value in figure.explains.items()
                    },
                }
                for figure in self.figures
            ],
            "notes": list(self.notes),
            "systems": list(self.systems),
            "series": _all_rounded(self.series.as_json()),
        }


def shown(figure: Figure) -> str:
    return f"{_number(figure.value)} {figure.unit}"


def _described(figure: Figure) -> str:
    explained = ", ".join(f"{name} {_number(value)}" for name, value in figure.explains.items())
    return f"{figure.name}\n  [dim]{explained}[/dim]" if explained else figure.name


def _all_rounded(value: Any) -> Any:
    if isinstance(value, float):
        return _rounded(value)
    if isinstance(value, dict):
        return {name: _all_rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_all_rounded(each) for each in value]
    return value


def _rounded(value: float) -> float:
    """Three digits after the point for ratios and times; none where they would be noise."""
    return round(value, 3) if abs(value) < 100 else round(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
