"""How numbers with units are shown, and how rates and sizes are typed."""

import math
import re
from fractions import Fraction

# Decimal, as disks and prices are.
_BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_MEBIBYTE = 2**20
_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
# Commas and underscores only between thousands: 1,5k may mean anything.
_NUMBER = re.compile(r"((?:[0-9]{1,3}(?:[_,][0-9]{3})+|[0-9]+)(?:\.[0-9]+)?)\s*([A-Za-z]?)")
_DIGITS_MAX = 20


def plain(value: float) -> str:
    """About three digits that tell something, never an exponent: 1,234,567, 61.4, 0.0123."""
    size = abs(value)
    if size == 0 or not math.isfinite(size):
        return f"{value:g}"
    if size >= 100 or (value == int(value) and size >= 1):
        return f"{value:,.0f}"
    decimals = min(6, 2 - math.floor(math.log10(size)))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".")


def shown(value: float, unit: str) -> str:
    """The value with its unit, short enough for a formula."""
    if unit == "B":
        return _shown_bytes(value)
    if unit == "B/s":
        return f"{_shown_bytes(value)}/s"
    if unit == "/s":
        return f"{plain(value)}/s"
    return f"{plain(value)} {unit}" if unit else plain(value)


def _shown_bytes(value: float) -> str:
    if _MEBIBYTE <= value < 1_000 * _MEBIBYTE and value % _MEBIBYTE == 0:
        return f"{plain(value / _MEBIBYTE)} MiB"  # limits are set in these
    for size, unit in _BYTES:
        if value >= size:
            return f"{plain(value / size)} {unit}"
    return f"{plain(value)} B"


def parse_number(text: str) -> float | None:
    """50000, 50_000, 50k, 2M or 1.5G; None if it is none of these."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or len(match[1]) > _DIGITS_MAX or match[2].lower() not in _SCALES:
        return None
    digits = match[1].replace("_", "").replace(",", "")
    return float(Fraction(digits) * _SCALES[match[2].lower()])


def parse_bytes(text: str) -> float | None:
    """500GB, 2TB or 2T; None if it is none of these."""
    match = _NUMBER.fullmatch(text.strip().upper().removesuffix("B"))
    scales = {"G": 10**9, "T": 10**12}
    if match is None or len(match[1]) > _DIGITS_MAX or match[2] not in scales:
        return None
    return float(Fraction(match[1].replace("_", "").replace(",", "")) * scales[match[2]])
