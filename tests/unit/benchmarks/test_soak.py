import pytest

from benchmarks.soak import memory_figure


def _figure(memory_mb: list[float]) -> tuple[float, bool | None]:
    at_s = [float(number) for number in range(len(memory_mb))]
    figure = memory_figure("server", 10, at_s, memory_mb, {})
    return figure.value, figure.met


def test_memory_that_grows_in_the_warm_up_only_is_flat() -> None:
    value, met = _figure([100.0 + number for number in range(30)] + [130.0, 131.0] * 30)
    assert value == pytest.approx(1.0)
    assert met


def test_a_leak_is_not_flat() -> None:
    value, met = _figure([100.0 + number for number in range(90)])
    assert value > 1.1
    assert met is False


def test_few_samples_tell_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        _figure([100.0] * 5)
