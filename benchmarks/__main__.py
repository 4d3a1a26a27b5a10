"""`python -m benchmarks`: measures, prints a table and writes it down.

Not a test: a missed target is shown, and the exit code is 0. A count that is wrong, or an answer
that is not what the figure is about, ends the run with an error.
"""

import argparse
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop

from benchmarks import batches, calls, cardinality, fleet, folds, rollups, surge
from benchmarks.figures import Figure
from benchmarks.progress import Progress
from benchmarks.report import Report, shown
from benchmarks.servers import empty_server, tally_server
from counter.settings import Platform
from tally.dev.cassandra_files import CommitlogSync

_RESULTS = Path(__file__).parent / "results"
# Beside the code and not in /tmp, which is memory on many systems: a commit must reach a disk.
_SCRATCH = Path(__file__).parent.parent / "build"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    call_cycles: int = 8
    batch_cycles: int = 2
    batch_s: float = 8.0
    fold_events: int = 500_000
    fold_repeats: int = 3
    counters: int = 1_000_000
    growth_steps: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    growth_s: int = 10
    fleet_cycles: int = 4
    fleet_fold_counters: int = 200_000
    surge_s: float = 60.0


Suite = Callable[[Plan, Path, Progress], AsyncIterator[list[Figure]]]

_QUICK = Plan(
    call_cycles=2,
    batch_cycles=1,
    batch_s=3.0,
    fold_events=100_000,
    fold_repeats=1,
    counters=100_000,
    growth_steps=(1_000, 100_000),
    growth_s=3,
    fleet_cycles=1,
    fleet_fold_counters=50_000,
    surge_s=15.0,
)


async def _embedded(plan: Plan, home: Path, progress: Progress) -> AsyncIterator[list[Figure]]:
    async with empty_server(home / "empty") as empty, tally_server(home / "tally") as tally:
        yield await calls.measure(empty, tally, cycles=plan.call_cycles, progress=progress)
        yield await batches.measure(
            empty, tally, cycles=plan.batch_cycles, measured_s=plan.batch_s, progress=progress
        )
    async with tally_server(home / "surge") as tally:
        yield await surge.measure(
            tally,
            tally,
            store="sqlite",
            batches_per_s=10,
            seconds=plan.surge_s,
            progress=progress,
        )
    yield await cardinality.measure_readable(
        home / "readable", counters=plan.counters, progress=progress
    )
    yield await cardinality.measure_growth(
        home / "growth", steps=plan.growth_steps, seconds=plan.growth_s, progress=progress
    )
    yield await folds.measure(
        home / "folds", events=plan.fold_events, repeats=plan.fold_repeats, progress=progress
    )
    platform = Platform()
    yield await rollups.measure(
        lambda name: folds.on_sqlite(home / "rollups" / name, platform),
        store="sqlite",
        platform=platform,
        events=plan.fold_events,
        repeats=plan.fold_repeats,
        progress=progress,
    )


async def _on_cassandra(
    plan: Plan, home: Path, progress: Progress, *, commitlog_sync: CommitlogSync
) -> AsyncIterator[list[Figure]]:
    async for measured in fleet.measure(
        home,
        commitlog_sync=commitlog_sync,
        cycles=plan.fleet_cycles,
        fold_counters=plan.fleet_fold_counters,
        surge_s=plan.surge_s,
        progress=progress,
    ):
        yield measured


# By name: the title of the table, and what measures.
_SUITES: dict[str, tuple[str, Suite]] = {
    "embedded": ("Tally, embedded", _embedded),
    "cassandra": (
        "Tally on one Cassandra node, commitlog_sync: batch",
        partial(_on_cassandra, commitlog_sync="batch"),
    ),
    "cassandra-periodic": (
        "Tally on one Cassandra node, commitlog_sync: periodic",
        partial(_on_cassandra, commitlog_sync="periodic"),
    ),
}


async def _run(measure: Suite, plan: Plan, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    _SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_SCRATCH) as home:
        async for measured in measure(plan, Path(home), progress):
            for figure in measured:
                progress.say(f"  {figure.name}: {shown(figure)}")
            figures += measured
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--on", choices=_SUITES, action="append", help="only this one; otherwise all of them"
    )
    parser.add_argument("--quick", action="store_true", help="some minutes, with rougher figures")
    parser.add_argument(
        "--record", action="store_true", help="also write the figures that are committed"
    )
    arguments = parser.parse_args()
    if arguments.quick and arguments.record:
        parser.error("a quick run is too rough to be recorded: leave out --quick or --record")
    for name in arguments.on or _SUITES:
        title, measure = _SUITES[name]
        progress = Progress()
        figures = uvloop.run(_run(measure, _QUICK if arguments.quick else Plan(), progress))
        report = Report(
            title=title, figures=figures, quick=arguments.quick, elapsed_s=progress.elapsed_s()
        )
        report.print()
        report.write(_RESULTS / f"{name}.local.json")
        if arguments.record:
            report.write(_RESULTS / f"{name}.json")


if __name__ == "__main__":
    main()
