"""A figure: what was measured, what it should be, and what explains it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median


class Bound(StrEnum):
    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True, kw_only=True)
class Target:
    bound: Bound
    value: float

    def met_by(self, value: float) -> bool:
        return value >= self.value if self.bound is Bound.AT_LEAST else value <= self.value


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    value: float
    unit: str
    target: Target | None = None  # None: shown because it explains others
    spread: tuple[float, float] | None = None  # the lowest and the highest round
    explains: Mapping[str, float] = field(default_factory=dict)  # further values, units last

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met_by(self.value)


def at_least(value: float) -> Target:
    return Target(bound=Bound.AT_LEAST, value=value)


def at_most(value: float) -> Target:
    return Target(bound=Bound.AT_MOST, value=value)


def over_rounds(
    name: str,
    values: Sequence[float],
    *,
    unit: str,
    target: Target | None = None,
    explains: Mapping[str, float],
) -> Figure:
    """The median of the rounds: one round that the machine spoilt does not move it."""
    return Figure(
        name=name,
        value=median(values),
        unit=unit,
        target=target,
        spread=(min(values), max(values)),
        explains=explains,
    )


def percentile_ms(latencies_s: Sequence[float], percent: float) -> float:
    """By linear interpolation between the two nearest; `percent` is 0 to 100."""
    if not latencies_s:
        raise ValueError("no latencies: nothing was answered, so there is no percentile")
    ordered = sorted(latencies_s)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return (ordered[below] + (ordered[above] - ordered[below]) * (position - below)) * 1_000
