import pytest

from benchmarks.latency import half_figure, latency_figure, quicker
from benchmarks.open_loop import OpenLoad
from benchmarks.series import Curve, LoadPoint
from benchmarks.store_writes import StoreWrite


def _load(p99_ms: float) -> OpenLoad:
    return OpenLoad(offered_per_s=100, elapsed_s=1, latencies_s=[p99_ms / 1_000] * 100)


def _curve(system: str, p99_ms: float, share: float = 0.5) -> Curve:
    point = LoadPoint(
        share_of_peak=share,
        offered_per_s=share * 1_000,
        done_per_s=share * 1_000,
        p50_ms=1,
        p99_ms=p99_ms,
        p999_ms=2 * p99_ms,
    )
    return Curve(system=system, peak_per_s=1_000, points=[point])


@pytest.mark.parametrize(("p99_ms", "met"), [(11.0, True), (13.0, False)])
def test_an_add_may_take_two_empty_calls_and_a_write(p99_ms: float, met: bool) -> None:
    rounds = [(_load(5.0), _load(p99_ms), StoreWrite([0.002] * 10))]
    figure = half_figure("embedded", 100, rounds)
    assert figure.value == pytest.approx(p99_ms / 12)
    assert figure.met is met


def test_of_a_curve_the_load_nearest_to_half_of_the_peak_is_shown() -> None:
    points = [*_curve("", 3, 0.1).points, *_curve("", 7, 0.45).points, *_curve("", 9, 0.9).points]
    figure = latency_figure(Curve(system="x", peak_per_s=1_000, points=points))
    assert figure.value == 7
    assert "45%" in figure.name


def test_who_answers_sooner_is_said() -> None:
    curves = [
        _curve("empty handler", 1),
        _curve("Tally embedded, unary", 10),
        _curve("Redis", 4),
        _curve("PostgreSQL", 20),
    ]
    assert quicker(curves) == [
        "Quicker than Tally embedded, unary (p99 10.0 ms at 500 calls/s), each at half of its own "
        "peak: Redis (p99 4.0 ms at 500 calls/s)."
    ]


def test_nothing_is_said_where_nobody_is_quicker() -> None:
    assert quicker([_curve("Tally embedded, unary", 10), _curve("PostgreSQL", 20)]) == []
