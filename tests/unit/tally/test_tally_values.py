import pytest
import typer

from counter.tokens import Token
from tally.commands.values import (
    format_age,
    format_duration,
    format_setting_ms,
    format_time,
    parse_delta,
    parse_duration_ms,
    parse_moment_ns,
    parse_time_ns,
    token_options,
)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("5s", 5_000),
        ("1.5s", 1_500),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("0s", 0),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 days", "1e3s", "0.5ms", "999999999h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        parse_duration_ms(text)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1700000000123456789", 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000_000),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20.5Z", 1_700_000_000_500_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000_000_000),
    ],
)
def test_times(text: str, time_ns: int) -> None:
    assert parse_time_ns(text) == time_ns


@pytest.mark.parametrize(
    "text",
    ["now", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "1969-01-01T00:00:00Z"],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        parse_time_ns(text)
    assert repr(text) in caught.value.message


def test_a_printed_time_reads_back_to_the_same_nanosecond() -> None:
    for time_ns in (0, 1, 1_700_000_000_000_000_001, 1_799_999_999_999_999_999):
        assert parse_time_ns(format_time(time_ns) or "") == time_ns


def test_ages() -> None:
    now_ns = 1_700_000_000_000_000_000
    assert format_age(now_ns - 6_200_000_000, now_ns) == "6.2 s ago"
    assert format_age(now_ns + 2_000_000_000, now_ns) == "in 2.0 s"
    assert format_age(None, now_ns) == "unknown"
    assert format_duration(0.25) == "250 ms"
    assert format_duration(125) == "2 min 5 s"
    assert format_duration(3 * 3600 + 120) == "3 h 2 min"


@pytest.mark.parametrize("text", ["0s", "1ms", "500ms", "1500ms", "5s", "90s", "2m", "36h", "1d"])
def test_a_printed_setting_reads_back(text: str) -> None:
    assert format_setting_ms(parse_duration_ms(text)) == text


def test_deltas() -> None:
    assert parse_delta("-5") == -5
    for text in ("five", "1.5", str(2**63)):
        with pytest.raises(typer.BadParameter):
            parse_delta(text)


def test_a_token_is_printed_so_that_a_shell_reads_it_back() -> None:
    token = Token(token="it's", generation_time_ns=1_700_000_000_000_000_001)
    assert token_options(token) == ("""--token 'it'"'"'s' --at 2023-11-14T22:13:20.000000001Z""")


NOW_NS = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("now", NOW_NS),
        ("-1h", NOW_NS - 3_600_000_000_000),
        ("now-90m", NOW_NS - 5_400_000_000_000),
        ("now - 1.5s", NOW_NS - 1_500_000_000),
        ("-7d", NOW_NS - 7 * 86_400_000_000_000),
        ("2023-11-14T22:13:20Z", NOW_NS),
        ("2023-11-14T22:13:20", NOW_NS),
        ("2023-11-14 22:13:20.5", NOW_NS + 500_000_000),
        ("2023-11-14T22:13", NOW_NS - 20_000_000_000),
        ("2023-11-14T23:13+01:00", NOW_NS - 20_000_000_000),
        ("2023-11-14", NOW_NS - 80_000_000_000_000),
        ("1700000000000000001", NOW_NS + 1),
    ],
)
def test_moments(text: str, time_ns: int) -> None:
    assert parse_moment_ns(text, NOW_NS) == time_ns


@pytest.mark.parametrize(
    "text", ["", "-", "-5", "+1h", "1h", "yesterday", "2023-11", "2023-11-14T25:00", "now+1h"]
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_moment_ns(text, NOW_NS)
