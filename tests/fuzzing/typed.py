"""Targets: what people type. It is understood, or they are told what to write instead."""

from collections.abc import Callable
from contextlib import suppress

import typer

from control_plane.capacity.units import parse_bytes, parse_number
from control_plane.files import durations
from tally.commands.values import (
    DURATION_MS_MAX,
    format_setting_ms,
    format_time,
    parse_delta,
    parse_duration_ms,
    parse_moment_ns,
    parse_time_ns,
    require_address,
)
from tests.fuzzing.target import Target

NOW_NS = 1_700_000_000_123_456_789


def _duration(text: str) -> None:
    with suppress(typer.BadParameter):
        milliseconds = parse_duration_ms(text)
        assert 0 <= milliseconds <= DURATION_MS_MAX
        assert parse_duration_ms(format_setting_ms(milliseconds)) == milliseconds
    exact = durations.parse_ms(text)
    if exact is not None:
        assert durations.parse_ms(durations.format_ms(exact)) == exact
        assert durations.meant_ms(text) == exact
    meant = durations.meant_ms(text)
    assert meant is None or meant >= 0


def _time(text: str) -> None:
    for parse in (parse_time_ns, lambda it: parse_moment_ns(it, NOW_NS)):
        with suppress(typer.BadParameter):
            time_ns = parse(text)
            assert 0 <= time_ns < 2**63
            assert parse_time_ns(format_time(time_ns) or "") == time_ns


def _delta(text: str) -> None:
    with suppress(typer.BadParameter):
        delta = parse_delta(text)
        assert -(2**63) <= delta < 2**63
        assert parse_delta(str(delta)) == delta


def _address(text: str) -> None:
    with suppress(typer.BadParameter):
        require_address("--listen", text)
        host, _, port = text.rpartition(":")
        assert host
        assert 0 <= int(port) < 2**16


def _amount(text: str) -> None:
    for parse in (parse_number, parse_bytes):
        amount = parse(text)
        assert amount is None or 0 <= amount < float("inf")


def _text(check: Callable[[str], None]) -> Callable[[bytes], None]:
    """Arguments are bytes too: what is no UTF-8 in them are lone surrogates in Python."""
    return lambda data: check(data.decode(errors="surrogateescape"))


TARGETS = [
    Target(
        "durations",
        _text(_duration),
        "control_plane.files.durations:Fraction",
        (b"ms", b"s", b"m", b"h", b"d", b".5", b" ", b"9" * 400, "٣".encode(), b"1e9", b"inf"),
    ),
    Target(
        "times",
        _text(_time),
        "tally.commands.values:datetime",
        (b"2026-01-31", b"T12:00", b":59", b".123", b"Z", b"+23:59", b"now", b"-1h", b"9" * 4_400),
        bytes_max=8_192,
    ),
    Target(
        "deltas",
        _text(_delta),
        "tests.fuzzing.typed:parse_delta",
        (b"-", b"+", b"_", b"9" * 19, b"9" * 4_400, "٣".encode(), b" "),
        bytes_max=8_192,
    ),
    Target(
        "addresses",
        _text(_address),
        "tests.fuzzing.typed:require_address",
        (b":", b"[::1]", b"65535", b"65536", b"9" * 4_400, "²".encode()),
        bytes_max=8_192,
    ),
    Target(
        "amounts",
        _text(_amount),
        "control_plane.capacity.units:Fraction",
        (b"1,000", b"1_000", b"k", b"TB", b".5", b"9" * 400),
    ),
]
