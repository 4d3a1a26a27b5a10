import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.charts.images import draw, panel_rows
from benchmarks.charts.terminal import bar, show_series, spark
from benchmarks.series import Curve, LoadPoint, Series, Throughput, Trace

_PNG = b"\x89PNG\r\n\x1a\n"


def _bar(system: str, per_s: float, workload: str = "zipf", place: str = "") -> Throughput:
    limit = system.startswith("limit")
    return Throughput(system=system, workload=workload, place=place, per_s=per_s, limit=limit)


def _series() -> Series:
    point = LoadPoint(
        share_of_peak=0.5, offered_per_s=100, done_per_s=99, p50_ms=1.5, p99_ms=12, p999_ms=40
    )
    return Series(
        throughputs=[
            _bar("Tally embedded", 50_000),
            _bar("limit", 1_000_000),
            _bar("Redis", 25_000),
            _bar("Redis", 24_000, place="commitlog_sync: batch"),
            _bar("Redis", 20_000, workload="hot"),
        ],
        curves=[Curve(system="Tally embedded", peak_per_s=200, points=[point])],
        traces=[Trace(process="embedded", seconds=[0, 60, 120], memory_mb=[100, 120, 121])],
    )


def _results(series: Series) -> dict[str, Any]:
    return {
        "measured_on": "2026-01-01",
        "versions": {"tally": "1"},
        "machine": {"cores": 2, "memory_gb": 4, "system": "Linux"},
        "series": series.as_json(),
    }


def test_an_image_for_each_kind_of_series(tmp_path: Path) -> None:
    written = draw(_results(_series()), tmp_path, "peers")
    assert {path.name for path in written} == {
        "peers-throughput.png",
        "peers-latency.png",
        "peers-memory.png",
    }
    for path in written:
        assert path.read_bytes().startswith(_PNG)


def test_an_image_that_is_called_like_its_suite_is_called_once(tmp_path: Path) -> None:
    series = Series(curves=_series().curves)
    [path] = draw(_results(series), tmp_path, "latency")
    assert path.name == "latency.png"


def test_without_series_there_is_no_image(tmp_path: Path) -> None:
    assert draw(_results(Series()), tmp_path, "calls") == []


def test_series_survive_being_written_down() -> None:
    series = _series()
    assert Series.from_json(series.as_json()) == series


def test_only_what_ran_together_shares_a_panel() -> None:
    assert {key: len(bars) for key, bars in _series().panels().items()} == {
        ("", "zipf"): 3,
        ("commitlog_sync: batch", "zipf"): 1,
        ("", "hot"): 1,
    }


def test_large_panels_have_a_row_of_their_own() -> None:
    large = [_bar(f"system {number}", 1) for number in range(12)]
    small = [_bar("system", 1, workload=name) for name in ("a", "b", "c")]
    rows = panel_rows(Series(throughputs=large + small))
    assert [[title for title, _ in row] for row in rows] == [
        ["zipf: adds to 100,000 counters by Zipf's law, s = 1.1"],
        ["a", "b"],
        ["c"],
    ]


@pytest.mark.parametrize(("value", "columns"), [(100, 40), (50, 20), (25, 10)])
def test_bars_are_as_long_as_their_values(value: float, columns: int) -> None:
    assert bar(value, lowest=25, highest=100, columns=40) == "█" * columns


def test_values_far_apart_are_drawn_by_their_logarithm() -> None:
    lengths = [len(bar(value, 10, 100_000, columns=50)) for value in (10, 1_000, 100_000)]
    assert lengths == [10, 30, 50]


def test_the_smallest_value_can_still_be_seen() -> None:
    assert bar(0.001, lowest=100, highest=100) != ""


def test_sparks_begin_at_zero() -> None:
    assert spark([100, 100, 100]) == "███"
    assert spark([0, 50, 100]) == "▁▄█"


def test_a_long_trace_is_thinned_out() -> None:
    assert len(spark([1.0] * 500, columns=60)) == 60


def test_the_terminal_shows_every_system_with_its_rate() -> None:
    console = Console(file=io.StringIO(), width=120)
    show_series(_series(), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in ("Tally embedded", "50,000", "on Cassandra, commitlog_sync: batch", "1.5/12/40"):
        assert text in shown
