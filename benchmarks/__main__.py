"""`python -m benchmarks`: measures, prints tables and charts, and writes them down.

Not a test: a missed target is shown, and the exit code is 0. A count that is wrong, or an answer
that is not what the figure is about, ends the run with an error.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop

from benchmarks.charts.images import draw
from benchmarks.figures import Figure
from benchmarks.progress import Progress
from benchmarks.report import Report, shown
from benchmarks.suites import ALL, QUICK, QUICK_ONES, SUITES, Context, Plan, Suite
from counter.errors import TallyError

_RESULTS = Path(__file__).parent / "results"
# Beside the code and not in /tmp, which is memory on many systems: a commit must reach a disk.
_SCRATCH = Path(__file__).parent.parent / "build"


async def _run(suite: Suite, context: Context) -> list[Figure]:
    figures: list[Figure] = []
    async for measured in suite.measure(context):
        for figure in measured:
            context.progress.say(f"  {figure.name}: {shown(figure)}")
        figures += measured
    return figures


def _measured(suite: Suite, plan: Plan, progress: Progress, *, quick: bool) -> Report:
    _SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_SCRATCH) as home:
        context = Context(plan=plan, home=Path(home), progress=progress)
        figures = uvloop.run(_run(suite, context))
    return Report(
        title=suite.title,
        figures=figures,
        quick=quick,
        elapsed_s=progress.elapsed_s(),
        series=context.series,
        notes=context.notes,
        systems=context.systems,
    )


def _write(report: Report, name: str, *, record: bool) -> None:
    """Under a name that is not committed, unless it is to be recorded."""
    for stem in (f"{name}.local", *((name,) if record else ())):
        report.write(_RESULTS / f"{stem}.json")
        for image in draw(report.as_json(), _RESULTS, stem):
            print(f"drawn: {_RESULTS.parent.name}/{_RESULTS.name}/{image.name}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--on",
        choices=SUITES,
        action="append",
        help=f"only this part; otherwise all of them, or with --quick {', '.join(QUICK_ONES)}",
    )
    parser.add_argument("--quick", action="store_true", help="some minutes, with rougher figures")
    parser.add_argument(
        "--record", action="store_true", help="also write the results that are committed"
    )
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="how long `soak` lasts, for each store"
    )
    arguments = parser.parse_args()
    if arguments.quick and arguments.record:
        parser.error("a quick run is too rough to be recorded: leave out --quick or --record")
    if arguments.minutes is not None and arguments.minutes <= 0:
        parser.error(f"--minutes must be more than 0, not {arguments.minutes:g}")
    return arguments


def main() -> int:
    arguments = _arguments()
    plan = QUICK if arguments.quick else Plan()
    if arguments.minutes is not None:
        plan = replace(plan, soak_minutes=arguments.minutes)
    names = arguments.on or (QUICK_ONES if arguments.quick else ALL)
    progress = Progress()
    missed: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        suite = SUITES[name]
        try:
            with progress.part(number, len(names), suite.title):
                report = _measured(suite, plan, progress, quick=arguments.quick)
        except TallyError as error:
            print(f"benchmarks: {error.message}", file=sys.stderr)
            return 1
        report.print()
        _write(report, name, record=arguments.record)
        missed[name] = sum(figure.met is False for figure in report.figures)
    if len(names) > 1:
        shown_missed = ", ".join(f"{name} {count}" for name, count in missed.items() if count)
        print(f"\nMissed targets: {shown_missed or 'none'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
