import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.files.durations import format_ms, meant_ms, parse_ms


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    assert parse_ms(format_ms(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("5s", 5_000),
        ("2m", 120_000),
        ("23h", 82_800_000),
        ("1d", 86_400_000),
        ("730d", 63_072_000_000),
    ],
)
def test_the_largest_unit_that_fits_is_written(text: str, milliseconds: int) -> None:
    assert parse_ms(text) == milliseconds
    assert format_ms(milliseconds) == text


@given(st.text(alphabet="0123456789. mshdMSn", max_size=12))
def test_what_is_exact_is_also_what_is_meant(text: str) -> None:
    if parse_ms(text) is not None:
        assert meant_ms(text) == parse_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1.5s", 1_500),
        ("0.5 ms", None),
        ("1h 30m", 5_400_000),
        ("2 days", 172_800_000),
        ("5", None),
        ("", None),
        ("5 weeks", None),
        ("-5s", None),
        ("1.1.1s", None),
    ],
)
def test_what_is_meant(text: str, milliseconds: int | None) -> None:
    assert parse_ms(text) is None
    assert meant_ms(text) == milliseconds
