"""`python -m tests.simulation`: one seed, many seeds, or a scenario that was written down.

Hashes of strings order sets, so they are fixed for the whole process: the same seed makes the same
run everywhere.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import monotonic

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.planted import PLANTED, SEEDS_MAX, Found, find, planted
from tests.simulation.run import Result, run
from tests.simulation.scenario import Scenario, scenario_from_json, scenario_of
from tests.simulation.shrink import shrink

_SHOWN_MAX = 5


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, environment)
    warnings.simplefilter("ignore", RuntimeWarning)
    options = _options()
    if options.planted:
        sys.exit(_run_planted(options))
    with planted(options.bug):
        if options.scenario is not None:
            text = Path(options.scenario).read_text()
            sys.exit(_run_one(scenario_from_json(text), options))
        if options.runs == 1:
            sys.exit(_run_one(scenario_of(options.seed), options))
    sys.exit(_run_many(range(options.seed, options.seed + options.runs), options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scenario", help="a JSON file, as a failure prints it")
    parser.add_argument("--shrink", action="store_true", help="make what fails smaller")
    parser.add_argument("--statistics", action="store_true", help="say what took place")
    parser.add_argument(
        "--bug", choices=sorted(PLANTED), help="with a mistake put into the product"
    )
    parser.add_argument(
        "--planted", action="store_true", help="which promise finds each such mistake, and when"
    )
    return parser.parse_args()


def _run_one(scenario: Scenario, options: argparse.Namespace) -> int:
    result = run(scenario)
    print(f"seed {scenario.seed}: {len(result.history)} calls, trace {result.trace_hash}")
    if options.statistics:
        _print_counted(result.counted)
    if not result.violations:
        print("every promise held")
        return 0
    _print_failure(result)
    if options.shrink:
        smaller, runs = shrink(scenario, run)
        print(f"\nThe smallest of {runs} runs that still fails:\n{smaller.to_json()}")
        _print_failure(run(smaller))
    return 1


def _run_many(seeds: range, options: argparse.Namespace) -> int:
    counted: Counter[str] = Counter()
    failures: list[Result] = []
    began_s = monotonic()
    context = multiprocessing.get_context("fork")
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with context.Pool(options.processes, _begin, (options.bug,)) as pool, Progress(*columns) as bar:
        task = bar.add_task("", total=len(seeds))
        for result in _results(pool, seeds):
            counted += result.counted
            bar.advance(task)
            if result.violations:
                failures.append(result)
                if len(failures) <= _SHOWN_MAX:
                    bar.console.print(f"seed {result.scenario.seed}: {result.violations[0]}")
    _print_counted(counted)
    seconds = monotonic() - began_s
    print(f"{len(seeds)} seeds from {seeds[0]} in {seconds:.0f} s: {len(failures)} failed")
    for failed in sorted(failures, key=lambda each: each.scenario.seed)[:_SHOWN_MAX]:
        _print_failure(failed)
    return 1 if failures else 0


def _run_planted(options: argparse.Namespace) -> int:
    """A table, as docs/correctness.md has it."""
    context = multiprocessing.get_context("fork")
    missed = 0
    print("| planted | found by | seeds |\n|---|---|---|")
    with context.Pool(options.processes, _begin, (None,)) as pool:
        for name, found in pool.imap(_find, PLANTED):
            missed += found is None
            told = f"{found.rule} | {found.seeds}" if found else f"nothing | {SEEDS_MAX}"
            print(f"| {name} | {told} |", flush=True)
            if found is not None and options.statistics:
                print(f"    {found.what}")
    return 1 if missed else 0


def _find(name: str) -> tuple[str, Found | None]:
    return name, find(name)


def _results(pool: "multiprocessing.pool.Pool", seeds: range) -> Iterable[Result]:
    return pool.imap_unordered(_run_seed, seeds, chunksize=4)


def _begin(bug: str | None) -> None:
    """In each process. What is planted stays until the process ends."""
    warnings.simplefilter("ignore", RuntimeWarning)
    planted(bug).__enter__()


def _run_seed(seed: int) -> Result:
    result = run(scenario_of(seed))
    return result if result.violations else replace(result, history=())


def _print_failure(result: Result) -> None:
    seed = result.scenario.seed
    print(f"\nseed {seed} fails on commit {_commit()}; again: make sim SEED={seed}")
    for rule, what in result.violations[:_SHOWN_MAX]:
        print(f"  {rule}: {what}")
    print(f"  trace {result.trace_hash}, {len(result.violations)} violations")


def _print_counted(counted: Counter[str]) -> None:
    for what, number in sorted(counted.items()):
        print(f"  {number:>9,} {what}")


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"
