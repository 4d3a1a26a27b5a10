"""The counts that a counter can have while some outcomes are not known.

The set of all sums over subsets grows fast, so it is kept as it is while it is small, and beyond
that as a range with a step: every sum is in the range, and not every number of the range is a sum.
A check against it then lets more pass, and never finds fault with what is right.
"""

from collections.abc import Iterable
from math import gcd
from typing import NamedTuple

EXACT_SUMS_MAX = 1_024
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class Sums:
    """Some possible sums: exactly these, or all numbers from `low` to `high` by `step`."""

    __slots__ = ("_exact", "high", "low", "step")

    def __init__(self, sums: Iterable[int]) -> None:
        exact = frozenset(sums)
        self.low, self.high = min(exact), max(exact)
        self.step = gcd(*(each - self.low for each in exact))
        self._exact = exact if len(exact) <= EXACT_SUMS_MAX else None

    def __contains__(self, count: int) -> bool:
        if self._exact is not None:
            return count in self._exact
        in_range = self.low <= count <= self.high
        return in_range and (self.step == 0 or (count - self.low) % self.step == 0)

    def __str__(self) -> str:
        if self._exact is not None and len(self._exact) <= 4:
            return " or ".join(str(each) for each in sorted(self._exact))
        return f"between {self.low} and {self.high}"

    def plus(self, delta: int) -> "Sums":
        if self._exact is not None:
            return Sums({each + delta for each in self._exact})
        return self._range(self.low + delta, self.high + delta, self.step)

    def united(self, other: "Sums") -> "Sums":
        if self._exact is not None and other._exact is not None:
            return Sums(self._exact | other._exact)
        return self._range(
            min(self.low, other.low),
            max(self.high, other.high),
            gcd(self.step, other.step, self.low - other.low),
        )

    def answered_with(self, count: int) -> "Sums | None":
        """Those of the sums that an answer of `count` leaves; None: it is none of them.

        Answers are clamped to 64 bits, so one at the limit leaves all that is beyond it.
        """
        if INT64_MIN < count < INT64_MAX:
            return Sums({count}) if count in self else None
        if self._exact is not None:
            left = {each for each in self._exact if _clamped(each) == count}
            return Sums(left) if left else None
        reaches = self.high >= count if count == INT64_MAX else self.low <= count
        return self if reaches else None

    @classmethod
    def _range(cls, low: int, high: int, step: int) -> "Sums":
        sums = cls({low})
        sums.high, sums.step, sums._exact = high, step, None
        return sums


class State(NamedTuple):
    """What is possible for a counter, by how many times it was cleared."""

    by_epoch: dict[int, Sums]

    def after(self, effects: Iterable[int | None], *, surely: bool) -> "State":
        """Once an event has had one of its effects, or if it is not sure, none."""
        after: dict[int, Sums] = dict(self.by_epoch) if not surely else {}

        def add(epoch: int, sums: Sums) -> None:
            after[epoch] = after[epoch].united(sums) if epoch in after else sums

        for effect in effects:
            if effect is None:
                for epoch in self.by_epoch:
                    add(epoch + 1, Sums({0}))
            else:
                for epoch, sums in self.by_epoch.items():
                    add(epoch, sums.plus(effect))
        return State(after)

    def answered_with(self, count: int, epoch: int | None) -> "State | None":
        """What an answer leaves; None: it was not possible."""
        epochs = self.by_epoch if epoch is None else {epoch} & self.by_epoch.keys()
        left = {each: self.by_epoch[each].answered_with(count) for each in epochs}
        possible = {each: sums for each, sums in left.items() if sums is not None}
        return State(possible) if possible else None

    def __str__(self) -> str:
        if len(self.by_epoch) == 1:
            [(epoch, sums)] = self.by_epoch.items()
            return f"{sums} (epoch {epoch})" if epoch else f"{sums}"
        return ", or ".join(f"{sums} in epoch {epoch}" for epoch, sums in self.by_epoch.items())


NOTHING = State({0: Sums({0})})


def _clamped(count: int) -> int:
    return max(INT64_MIN, min(INT64_MAX, count))
