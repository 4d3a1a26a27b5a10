"""Durations in a range as regular expressions, for the JSON Schema: it cannot compute.

Only what every dialect of regular expressions knows is used.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby

from control_plane.files.durations import DIGITS_MAX, UNITS_MS


def durations_between(min_ms: int, max_ms: int) -> str:
    """Matches all ways to write the durations of the range, `60s` like `1m` and `001m`."""
    ranges = {
        unit: _numbers_between(-(-min_ms // unit_ms), max_ms // unit_ms)
        for unit, unit_ms in UNITS_MS.items()
    }
    return _with_units(ranges)


def durations_of(values_ms: Collection[int]) -> str:
    """Matches all ways to write just these durations."""
    numbers: dict[str, dict[int, list[str]]] = {}
    for unit, unit_ms in UNITS_MS.items():
        fitting = [str(each // unit_ms) for each in sorted(values_ms) if each % unit_ms == 0]
        numbers[unit] = {
            digits: list(each) for digits, each in groupby(fitting, key=len) if digits <= DIGITS_MAX
        }
    return _with_units(numbers)


def _with_units(numbers: Mapping[str, Mapping[int, list[str]]]) -> str:
    """`numbers`: by unit and number of digits. Zeros may come first, as far as digits are left."""
    choices = []
    for unit, by_digits in numbers.items():
        padded = [
            f"0{{0,{DIGITS_MAX - digits}}}({'|'.join(patterns)})"
            for digits, patterns in by_digits.items()
        ]
        if padded:
            choices.append(f"({'|'.join(padded)}){unit}")
    return f"^({'|'.join(choices)})$"


def _numbers_between(least: int, most: int) -> dict[int, list[str]]:
    patterns = {}
    for digits in range(1, DIGITS_MAX + 1):
        first = max(least, 10 ** (digits - 1) if digits > 1 else 0)
        last = min(most, 10**digits - 1)
        if first <= last:
            patterns[digits] = list(_same_length(str(first), str(last)))
    return patterns


def _same_length(first: str, last: str) -> Iterator[str]:
    """Patterns that together match the numbers from first to last, which have as many digits."""
    more = len(first) - 1
    low, high = int(first[0]), int(last[0])
    if more and low == high:
        yield from (f"{low}{each}" for each in _same_length(first[1:], last[1:]))
        return
    if more and first[1:] != "0" * more:
        yield from (f"{low}{each}" for each in _same_length(first[1:], "9" * more))
        low += 1
    is_cut = bool(more) and last[1:] != "9" * more
    if low <= high - is_cut:
        yield _digit(low, high - is_cut) + _any_digits(more)
    if is_cut:
        yield from (f"{high}{each}" for each in _same_length("0" * more, last[1:]))


def _digit(low: int, high: int) -> str:
    return str(low) if low == high else f"[{low}-{high}]"


def _any_digits(count: int) -> str:
    return "" if count == 0 else "[0-9]" if count == 1 else f"[0-9]{{{count}}}"
