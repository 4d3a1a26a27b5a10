import json
from typing import Any

import pytest

from benchmarks.figures import Figure
from benchmarks.ghz import GhzRun, merged, parse
from benchmarks.unary_from_go import process_figures


def _output(**fields: Any) -> str:
    report = {
        "count": 1_000,
        "rps": 500.0,
        "statusCodeDistribution": {"OK": 1_000},
        "latencyDistribution": [
            {"percentage": 50, "latency": 4_000_000},
            {"percentage": 99, "latency": 20_000_000},
        ],
    }
    return json.dumps(report | fields)


def _run(calls_per_s: float, cpu_us: float, *, calls: int = 1_000) -> GhzRun:
    return GhzRun(
        calls=calls,
        calls_per_s=calls_per_s,
        p50_ms=4.0,
        p99_ms=calls_per_s / 100,
        cpu_s=cpu_us * calls / 1_000_000,
    )


def _judged(figures: list[Figure]) -> list[bool]:
    return [figure.target is not None for figure in figures]


def test_a_report_of_ghz_is_read() -> None:
    run = parse(_output(), cpu_s=0.25)
    assert (run.calls, run.calls_per_s) == (1_000, 500.0)
    assert (run.p50_ms, run.p99_ms) == (4.0, 20.0)
    assert run.cpu_us_per_call == pytest.approx(250)


@pytest.mark.parametrize("outcomes", [{"OK": 999, "Unavailable": 1}, {}, None])
def test_a_run_with_failed_calls_is_an_error(outcomes: object) -> None:
    with pytest.raises(RuntimeError, match="not all calls of ghz succeeded"):
        parse(_output(statusCodeDistribution=outcomes), cpu_s=0.25)


def test_runs_are_merged_by_their_calls() -> None:
    both = merged([_run(1_000, 100), _run(500, 400, calls=3_000)])
    assert both.calls == 4_000
    assert both.calls_per_s == pytest.approx(4_000 / 7)
    assert both.cpu_us_per_call == pytest.approx(325)


def test_with_room_left_a_second_process_is_judged_by_its_calls() -> None:
    figures = process_figures([_run(1_000, 200)], [_run(1_600, 210)], room=1.8)
    assert _judged(figures) == [True, False]
    assert figures[0].value == pytest.approx(1.6)
    assert figures[0].met


def test_without_room_it_is_judged_by_the_processor_time_of_a_call() -> None:
    figures = process_figures([_run(1_000, 200)], [_run(1_050, 260)], room=1.1)
    assert _judged(figures) == [False, True]
    assert figures[1].value == pytest.approx(1.3)
    assert figures[1].met is False
