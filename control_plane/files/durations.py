"""Durations as admins write them: a whole number and a unit, like `500ms`, `5s`, `2m` or `7d`."""

import re
from fractions import Fraction

EXAMPLES = "500ms, 5s, 2m, 1h or 7d"
DIGITS_MAX = 12
PATTERN = rf"^[0-9]{{1,{DIGITS_MAX}}}(ms|s|m|h|d)$"

# A day is 24 hours.
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LOOSE_UNITS_MS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_EXACT = re.compile(rf"([0-9]{{1,{DIGITS_MAX}}})(ms|s|m|h|d)")
_PART = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([A-Za-z]{1,12})\s*")


def parse_ms(text: str) -> int | None:
    """Milliseconds; None if the text is not exactly a whole number and a unit."""
    match = _EXACT.fullmatch(text)
    return int(match[1]) * UNITS_MS[match[2]] if match else None


def format_ms(milliseconds: int) -> str:
    """The shortest way to write a duration, in the largest unit that fits it."""
    if milliseconds == 0:
        return "0s"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if milliseconds % UNITS_MS[unit] == 0)
    return f"{milliseconds // UNITS_MS[unit]}{unit}"


def format_span(min_ms: int, max_ms: int) -> str:
    return f"{format_ms(min_ms)} to {format_ms(max_ms)}"


def meant_ms(text: str) -> int | None:
    """What `1.5s`, `5 sec` or `1m30s` are meant to be; None if that cannot be told."""
    total = Fraction(0)
    at = 0
    while match := _PART.match(text, at):
        unit_ms = _LOOSE_UNITS_MS.get(match[2].lower())
        if unit_ms is None:
            return None
        total += Fraction(match[1]) * unit_ms
        at = match.end()
    complete = at == len(text) and at > 0 and total.denominator == 1
    return int(total) if complete else None
