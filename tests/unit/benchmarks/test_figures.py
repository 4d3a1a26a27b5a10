import pytest

from benchmarks.figures import Figure, at_least, at_most, over_rounds, percentile_ms


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [
        (at_least(2), 2.0, True),
        (at_least(2), 1.99, False),
        (at_most(1), 1.0, True),
        (at_most(1), 1.01, False),
    ],
)
def test_a_target_is_met_at_its_value(target: object, value: float, met: bool) -> None:
    assert Figure(name="x", value=value, unit="x", target=target).met is met  # type: ignore[arg-type]


def test_a_figure_without_a_target_is_neither_met_nor_missed() -> None:
    assert Figure(name="x", value=1.0, unit="x").met is None


def test_one_spoilt_round_does_not_move_the_figure() -> None:
    figure = over_rounds("x", [2.0, 2.1, 0.1, 1.9, 2.0], unit="x", explains={})
    assert figure.value == 2.0
    assert figure.spread == (0.1, 2.1)


def test_percentiles_lie_between_the_nearest_two() -> None:
    latencies_s = [number / 1_000 for number in range(101)]  # 0 to 100 ms
    assert percentile_ms(latencies_s, 0) == 0
    assert percentile_ms(latencies_s, 50) == pytest.approx(50)
    assert percentile_ms(latencies_s, 99.9) == pytest.approx(99.9)
    assert percentile_ms(latencies_s, 100) == pytest.approx(100)


def test_the_order_of_latencies_does_not_matter() -> None:
    assert percentile_ms([0.003, 0.001, 0.002], 50) == pytest.approx(2)


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing was answered"):
        percentile_ms([], 99)
