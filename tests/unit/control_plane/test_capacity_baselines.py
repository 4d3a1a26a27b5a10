"""Golden plans: what `tally capacity` answers for loads of all kinds, line by line.

A change of a constant or a formula shows here, in all numbers that it moves. If it is meant, write
the files anew and read the difference: CAPACITY_BASELINES=write pytest FILE.
"""

import os
import shlex
from pathlib import Path

import pytest

from tally.main import main

BASELINES = Path(__file__).parents[2] / "capacity_baselines"
PRICES = Path(__file__).parents[3] / "configs" / "prices.yaml"
CASES = {
    "embedded_size": "--adds-per-s 200 --reads-per-s 500 --counters 50k --batch 1",
    "medium": "--adds-per-s 50k --reads-per-s 100k --counters 2M --retention 1d --prices PRICES",
    "million_adds_per_s": "--adds-per-s 1M --reads-per-s 200k --counters 10M --batch 1000"
    " --read-batch 20 --hot-share 0.01 --node-cores 16",
    "hundred_million_counters": "--adds-per-s 100k --reads-per-s 50k --counters 100M"
    " --hot-share 0.001",
    "history_heavy": "--adds-per-s 20k --reads-per-s 5k --counters 1M"
    " --history 1m:30d,1h:365d,1d:3650d --prices PRICES",
    "accurate": "--adds-per-s 5k --reads-per-s 5k --counters 100k --strategy accurate --batch 10",
    "rolling_window": "--adds-per-s 5k --reads-per-s 1k --counters 10k --strategy rolling_window"
    " --rolling-window 300s --window 1s",
    "best_effort": "--adds-per-s 100k --reads-per-s 100k --counters 5M --strategy best_effort"
    " --dedupe-ttl 10m",
    "refused_hot_counter": "--adds-per-s 20M --reads-per-s 1k --counters 1M --hot-share 0.5",
    "refused_lanes": "--adds-per-s 10M --reads-per-s 1k --counters 1M --hot-share 0.01",
    "refused_counters": "--adds-per-s 1k --reads-per-s 1k --counters 1G",
}


@pytest.mark.parametrize("name", CASES)
def test_plan_is_as_it_was(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = CASES[name]
    arguments = shlex.split(options.replace("PRICES", str(PRICES)))
    code = main(["capacity", *arguments, "--explain"])
    printed = capsys.readouterr()
    plan = f"$ tally capacity {options} --explain\n{printed.out}{printed.err}exit code {code}\n"
    file = BASELINES / f"{name}.txt"
    if os.environ.get("CAPACITY_BASELINES") == "write":
        file.write_text(plan, encoding="utf-8")
    assert plan == file.read_text(encoding="utf-8")


def test_every_baseline_has_its_case() -> None:
    assert {each.stem for each in BASELINES.glob("*.txt")} == set(CASES)
