"""Numbers that know how they came about.

A formula is plain Python over quantities. Its value and its text come from the same expression, so
the formula that a person is shown cannot differ from the one that was computed:

    log = sheet.named("log_bytes", "B", adds * event_bytes * kept)

is shown in names, `adds_per_s * event_bytes * log_kept_s`, and in numbers, `50,000/s * 62 B *
100,800 s`, with the sign of multiplication.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from control_plane.capacity.units import shown

_TIMES = "\u00d7"


class _Binding(IntEnum):
    """How tightly the parts of a text hold together: whether it needs brackets in another."""

    SUM = 0
    PRODUCT = 1
    WHOLE = 2  # a name, a number, a call


@dataclass(frozen=True, slots=True)
class Quantity:
    value: float
    text: str  # the formula, in names
    filled: str  # the same, in numbers
    binding: _Binding = _Binding.WHOLE

    def __add__(self, other: object) -> "Quantity":
        return _joined(self, "+", _of(other), self.value + _of(other).value, _Binding.SUM)

    def __sub__(self, other: object) -> "Quantity":
        return _joined(self, "-", _of(other), self.value - _of(other).value, _Binding.SUM)

    def __rsub__(self, other: object) -> "Quantity":
        return _of(other) - self

    def __mul__(self, other: object) -> "Quantity":
        return _joined(self, _TIMES, _of(other), self.value * _of(other).value, _Binding.PRODUCT)

    def __truediv__(self, other: object) -> "Quantity":
        return _joined(self, "/", _of(other), self.value / _of(other).value, _Binding.PRODUCT)


def _of(value: object) -> Quantity:
    if isinstance(value, Quantity):
        return value
    assert isinstance(value, int | float), value
    text = shown(value, "")
    return Quantity(float(value), text, text)


def _joined(
    left: Quantity, sign: str, right: Quantity, value: float, binding: _Binding
) -> Quantity:
    # What stands right of - or / is bracketed where it binds no tighter: a - (b - c).
    strict = sign in "-/"

    def side(text: str, of: _Binding, *, is_right: bool) -> str:
        loose = of < binding or (is_right and strict and of == binding)
        return f"({text})" if loose else text

    def both(one: str, other: str) -> str:
        parts = side(one, left.binding, is_right=False), side(other, right.binding, is_right=True)
        return f" {sign} ".join(parts)

    text = both(left.text, right.text)
    return Quantity(value, text, both(left.filled, right.filled), binding)


def _call(name: str, value: float, *of: Quantity) -> Quantity:
    text = ", ".join(each.text for each in of)
    filled = ", ".join(each.filled for each in of)
    return Quantity(value, f"{name}({text})", f"{name}({filled})")


def largest(*of: Quantity | float) -> Quantity:
    each = [_of(value) for value in of]
    return _call("max", max(one.value for one in each), *each)


def smallest(*of: Quantity | float) -> Quantity:
    each = [_of(value) for value in of]
    return _call("min", min(one.value for one in each), *each)


# What a sum of fractions may be off by: 0.1 + 0.2 cores are 0.3 cores, and need no further process.
_ROUNDING = 1e-9


def round_up(of: Quantity) -> Quantity:
    return _call("ceil", math.ceil(of.value - _ROUNDING), of)


def round_down(of: Quantity) -> Quantity:
    return _call("floor", math.floor(of.value + _ROUNDING), of)


def power_of_two(of: Quantity) -> Quantity:
    """The next one that is not less."""
    exponent = math.ceil(math.log2(max(1.0, of.value)) - _ROUNDING)
    return _call("next_power_of_2", 2.0**exponent, of)


NOTHING = Quantity(0.0, "0", "0")


def total(first: Quantity, *others: Quantity) -> Quantity:
    for each in others:
        first = first + each
    return first


class Kind(StrEnum):
    GIVEN = "given"
    CONSTANT = "constant"
    COMPUTED = "computed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A named number of a sheet."""

    name: str
    value: float
    unit: str
    kind: Kind
    meaning: str
    formula: str = ""  # computed only, in names
    filled: str = ""  # and in numbers
    source: str = ""  # constants only: where it is from

    @property
    def shown(self) -> str:
        return shown(self.value, self.unit)


class Sheet:
    """All numbers of one plan, each under its name, in the order in which they came about."""

    def __init__(self, lines: Mapping[str, Line] = MappingProxyType({})) -> None:
        """Goes on from lines that are there already."""
        self._lines = dict(lines)

    @property
    def lines(self) -> Mapping[str, Line]:
        return MappingProxyType(self._lines)

    def __getitem__(self, name: str) -> Quantity:
        line = self._lines[name]
        return Quantity(line.value, line.name, line.shown)

    def given(self, name: str, unit: str, value: float, meaning: str) -> Quantity:
        return self._put(Line(name=name, value=value, unit=unit, kind=Kind.GIVEN, meaning=meaning))

    def constant(self, name: str, unit: str, value: float, meaning: str, source: str) -> Quantity:
        """Of a constant that is there already, the same again."""
        return self._put(
            Line(
                name=name,
                value=value,
                unit=unit,
                kind=Kind.CONSTANT,
                meaning=meaning,
                source=source,
            )
        )

    def named(self, name: str, unit: str, of: Quantity, meaning: str) -> Quantity:
        return self._put(
            Line(
                name=name,
                value=of.value,
                unit=unit,
                kind=Kind.COMPUTED,
                meaning=meaning,
                formula=of.text,
                filled=of.filled,
            )
        )

    def _put(self, line: Line) -> Quantity:
        assert math.isfinite(line.value), line
        assert self._lines.setdefault(line.name, line) == line, f"{line.name} is there twice"
        return self[line.name]
