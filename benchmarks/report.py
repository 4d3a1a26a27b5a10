"""The figures as a table for people and as JSON for programs."""

import json
import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure
from tally.dev.jars import CASSANDRA_VERSION

# A terminal may be narrower, and a pipe has no width at all.
_COLUMNS_MIN = 120
_GIGABYTE = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Report:
    title: str
    figures: Sequence[Figure]
    quick: bool
    elapsed_s: float

    def print(self) -> None:
        console = Console()
        console.width = max(console.width, _COLUMNS_MIN)
        table = Table(title=self.title, title_justify="left")
        table.add_column("what")
        table.add_column("figure", justify="right")
        table.add_column("rounds", justify="right")
        table.add_column("target", justify="right")
        table.add_column("met")
        for figure in self.figures:
            table.add_row(
                figure.name,
                shown(figure),
                "" if figure.spread is None else " to ".join(map(_number, figure.spread)),
                ""
                if figure.target is None
                else f"{figure.target.bound} {_number(figure.target.value)}",
                {True: "[green]yes[/green]", False: "[red]MISSED[/red]", None: ""}[figure.met],
            )
            explained = [f"{name} {_number(value)}" for name, value in figure.explains.items()]
            if explained:
                table.add_row(f"  [dim]{', '.join(explained)}[/dim]")
            table.add_section()
        console.print(table)
        machine = self._machine()
        console.print(
            f"{machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}; "
            + ", ".join(f"{name} {number}" for name, number in self._versions().items())
            + f"; {self.elapsed_s:.0f} s"
        )
        if self.quick:
            console.print("A quick run: fewer rounds, fewer counters. Compare full runs only.")

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self._json(), indent=2) + "\n")

    def _json(self) -> dict[str, Any]:
        return {
            "measured_on": datetime.now(UTC).date().isoformat(),
            "what": self.title,
            "quick": self.quick,
            "versions": self._versions(),
            "machine": self._machine(),
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
        }

    def _versions(self) -> dict[str, str]:
        return {
            "tally": version("tally"),
            "python": platform.python_version(),
            "grpcio": version("grpcio"),
            "sqlite": sqlite3.sqlite_version,
            "cassandra": CASSANDRA_VERSION,
            "cassandra-driver": version("cassandra-driver"),
        }

    def _machine(self) -> dict[str, Any]:
        """What it can do, not which one it is."""
        return {
            "cores": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / _GIGABYTE),
            "system": f"{platform.system()} {platform.machine()}",
        }


def shown(figure: Figure) -> str:
    return f"{_number(figure.value)} {figure.unit}"


def _rounded(value: float) -> float:
    """Three digits after the point for ratios and times; none where they would be noise."""
    return round(value, 3) if abs(value) < 100 else round(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
