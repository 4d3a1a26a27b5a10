"""What people type and what they read: durations, times, deltas and tokens as text."""

import re
import shlex
import time
from datetime import UTC, datetime, timedelta

import typer

from counter.clock import NS_PER_MS, NS_PER_S
from counter.tokens import Token

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
PORT_MAX = 65_535
DURATION_MS_MAX = 10 * 365 * 86_400_000
# More than any number that is meant; int() itself refuses thousands of them.
_DIGITS_MAX = 100

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_LOOSE_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](\d\d:\d\d)(?:(:\d\d)(?:[.,](\d{1,9}))?)?\s*(Z|z|[+-]\d\d:?\d\d)?)?"
)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|z|[+-]\d\d:?\d\d)")


def parse_duration_ms(text: str | int) -> int:
    """Milliseconds from a number with a unit: 500ms, 5s, 2m, 1h, 7d.

    An option's default comes here too, and is in milliseconds already.
    """
    if isinstance(text, int):
        return text
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is not a duration. Write a number and a unit, like 500ms, 5s, 2m, 1h or 7d."
        )
    milliseconds = float(match[1]) * _UNIT_MS[match[2]]
    if milliseconds > DURATION_MS_MAX:
        raise typer.BadParameter(f"{text!r} is longer than ten years.")
    if milliseconds != int(milliseconds):
        raise typer.BadParameter(f"{text!r} is not a whole number of milliseconds.")
    return int(milliseconds)


def parse_time_ns(text: str) -> int:
    """Nanoseconds since 1970 from ISO 8601 with up to nine decimals, or from just that number."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return _within_64_bits(int(text) if len(text) < _DIGITS_MAX else INT64_MAX + 1, text)
    match = _TIME.fullmatch(text)
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is not a time. Write it like 2026-01-31T12:00:00.123456789Z, "
            "with its zone, or as nanoseconds since 1970."
        )
    date, clock, decimals, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{zone.upper()}")
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time: {error}.") from error
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    if seconds < 0:
        raise typer.BadParameter(f"{text!r} is before 1970.")
    return _within_64_bits(seconds * NS_PER_S + int((decimals or "").ljust(9, "0")), text)


def _within_64_bits(time_ns: int, text: str) -> int:
    if time_ns > INT64_MAX:
        raise typer.BadParameter(f"{text!r} is too far in the future.")
    return time_ns


def parse_moment_ns(text: str, now_ns: int | None = None) -> int:
    """Nanoseconds since 1970 from how people write a time: ISO 8601, a date, now, or -1h.

    Without a zone it is UTC, as everything that is printed.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    text = text.strip()
    ago = text.removeprefix("now").strip()
    if not ago and text:
        return now_ns
    if ago.startswith("-"):
        return max(0, now_ns - parse_duration_ms(ago.removeprefix("-")) * NS_PER_MS)
    match = _LOOSE_TIME.fullmatch(text)
    if match is None:
        if text.isascii() and text.isdigit():
            return parse_time_ns(text)
        raise typer.BadParameter(
            f"{text!r} is not a time. Write it like 2026-01-31T12:00 (UTC, or with a zone like "
            "+01:00), 2026-01-31, -90m or now."
        )
    date, clock, seconds, decimals, zone = match.groups()
    return parse_time_ns(
        f"{date}T{clock or '00:00'}{seconds or ':00'}.{decimals or '0'}{zone or 'Z'}"
    )


def require_address(option: str, text: str) -> None:
    """Where to listen: HOST:PORT, with port 0 for a free one."""
    host, _, port = text.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) < _DIGITS_MAX
    if not host or not is_number or int(port) > PORT_MAX:
        raise typer.BadParameter(f"{option} {text!r} is not an address. Write it as HOST:PORT.")


def parse_delta(text: str) -> int:
    try:
        delta = int(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a whole number. Write it like 5 or -5."
        ) from error
    if not INT64_MIN <= delta <= INT64_MAX:
        raise typer.BadParameter(f"{text} does not fit in 64 bits. Add it in smaller parts.")
    return delta


def format_time(time_ns: int | None) -> str | None:
    """ISO 8601 with all nine decimals: reads back to the same nanosecond."""
    if time_ns is None:
        return None
    seconds, rest_ns = divmod(time_ns, NS_PER_S)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns:09d}Z"


def format_moment(time_ns: int | None) -> str:
    """A time for people, in UTC, to the second; rounded down."""
    return "unknown" if time_ns is None else f"{format_time(time_ns):.19}Z"


def format_setting_ms(milliseconds: int) -> str:
    """A configured duration as it is written in files and options: 500ms, 5s, 2m, 7d."""
    if not milliseconds:
        return "0s"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if not milliseconds % _UNIT_MS[unit])
    return f"{milliseconds // _UNIT_MS[unit]}{unit}"


def format_duration(duration_s: float) -> str:
    """A duration for people, in the largest unit that still tells something."""
    if duration_s < 1:
        return f"{duration_s * 1_000:.0f} ms"
    if duration_s < 120:
        return f"{duration_s:.1f} s"
    minutes, seconds = divmod(round(duration_s), 60)
    if minutes < 120:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} days"


def format_age(time_ns: int | None, now_ns: int) -> str:
    """How long ago, for people. Clocks differ, so it may also be ahead."""
    if time_ns is None:
        return "unknown"
    age_s = (now_ns - time_ns) / NS_PER_S
    return f"{format_duration(age_s)} ago" if age_s >= 0 else f"in {format_duration(-age_s)}"


def milliseconds_of(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def format_count(count: int) -> str:
    return f"{count:,}"


def token_options(token: Token) -> str:
    """The token as the options that bring it back: `--token X --at TIME`."""
    return f"--token {shlex.quote(token.token)} --at {format_time(token.generation_time_ns)}"


def token_from(text: str | None, at_ns: int | None) -> Token | None:
    """The token of `--token` and `--at`, which come together or not at all."""
    if text is None and at_ns is None:
        return None
    if text is None or at_ns is None:
        raise typer.BadParameter(
            "--token and --at come together: a token is its string and its generation time. "
            "Make one with: tally token new"
        )
    return Token(token=text, generation_time_ns=at_ns)


def token_document(token: Token) -> dict[str, str | None]:
    return {
        "token": token.token,
        "generation_time": format_time(token.generation_time_ns),
    }
