import io
import json
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Figure, at_least, over_rounds
from benchmarks.report import Report
from benchmarks.series import Series, Throughput

_MET = over_rounds(
    "A / B", [2.5, 3.0, 2.0], unit="x", target=at_least(2), explains={"per_s": 12_345.678}
)
_MISSED = Figure(name="C / D", value=0.5, unit="x", target=at_least(1))


def _report(*figures: Figure) -> Report:
    return Report(
        title="A title",
        figures=figures,
        quick=True,
        elapsed_s=1.0,
        notes=["Redis is ahead in reads."],
        systems=[{"system": "Redis", "durability": "a second is lost"}],
        series=Series(throughputs=[Throughput(system="Redis", workload="zipf", per_s=1_234.56789)]),
        versions={"tally": "1.2.3"},
        machine={"cores": 2, "memory_gb": 4, "system": "Linux"},
    )


def _printed(report: Report) -> str:
    console = Console(file=io.StringIO(), width=140)
    report.print(console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_the_json_has_ratios_spread_targets_versions_and_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "results" / "peers.local.json"
    _report(_MET, _MISSED).write(path)
    written = json.loads(path.read_text())
    assert written["versions"] == {"tally": "1.2.3"}
    assert written["machine"]["cores"] == 2
    assert written["quick"] is True
    assert written["notes"] == ["Redis is ahead in reads."]
    assert written["systems"][0]["durability"] == "a second is lost"
    assert written["series"]["throughputs"][0]["per_s"] == 1_235
    assert written["figures"] == [
        {
            "name": "A / B",
            "value": 2.5,
            "unit": "x",
            "rounds": [2.0, 3.0],
            "target": {"bound": "at least", "value": 2},
            "met": True,
            "explained_by": {"per_s": 12_346},
        },
        {
            "name": "C / D",
            "value": 0.5,
            "unit": "x",
            "rounds": None,
            "target": {"bound": "at least", "value": 1},
            "met": False,
            "explained_by": {},
        },
    ]


def test_the_table_says_what_was_missed_and_where_a_peer_is_ahead() -> None:
    printed = _printed(_report(_MET, _MISSED))
    assert "1 of 2 targets missed: C / D" in printed
    assert "Redis is ahead in reads." in printed
    assert "2 to 3" in printed
    assert "A quick run" in printed


def test_the_table_says_that_all_is_met() -> None:
    assert "All 1 targets met." in _printed(_report(_MET))
