"""Time as it is injected everywhere: nanoseconds since 1970, UTC."""

import time
from typing import Protocol

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Clock(Protocol):
    def now_ns(self) -> int:
        """The wall clock, as this process sees it. It may be wrong, and it may step."""
        ...


class SystemClock:
    def now_ns(self) -> int:
        return time.time_ns()


class SteadyClock:
    """Wall time as it was at the start, carried on by a clock that nobody can set.

    The embedded store has no second machine to compare its process's clock with, so it compares
    with this: a wall clock that is stepped while the process runs shows as skew, while slewing and
    suspends, which both clocks see alike, do not.
    """

    def __init__(self) -> None:
        self._steady = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(self._steady)

    def now_ns(self) -> int:
        return self._offset_ns + time.clock_gettime_ns(self._steady)


def skew_ns_between(clock_ns: int, store_ns: int, *, age_ns_max: int = 0) -> int:
    """How far a process's clock is ahead of the store's; negative: behind.

    The store's reading may be up to `age_ns_max` old: only what that cannot explain is skew.
    """
    skew_ns = clock_ns - store_ns
    return max(0, skew_ns - age_ns_max) if skew_ns > 0 else skew_ns


def skew_between(clock_ns: int, store_ns: int, *, age_ns_max: int = 0, limit_ns: int) -> str | None:
    """Which way and how far a process's clock is off the store's; None within the limit."""
    skew_ns = skew_ns_between(clock_ns, store_ns, age_ns_max=age_ns_max)
    if abs(skew_ns) <= limit_ns:
        return None
    side = "ahead of" if skew_ns > 0 else "behind"
    return f"{abs(skew_ns) / NS_PER_S:.1f} s {side} the store's"


class ManualClock:
    """A clock that moves only when told to: for tests and simulation."""

    def __init__(self, now_ns: int = 1_700_000_000 * NS_PER_S) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance_ms(self, milliseconds: int) -> None:
        self._now_ns += milliseconds * NS_PER_MS
