"""What a test and a process that it disturbs share: one page of memory, in a small file.

Each value is eight bytes, written at once. The order of writes is such that the other side never
acts on half of a change: what switches a thing on is written last, and taken away first.
"""

import mmap
import struct
from collections.abc import Callable
from pathlib import Path

_VALUE = struct.Struct("<q")
_VALUES = ("offset_ns", "rate_ppm", "rate_since_ns", "armed_step", "deed", "countdown")
_BYTES = len(_VALUES) * _VALUE.size


class _Value:
    """One number of a page, as an attribute."""

    def __init__(self, number: int) -> None:
        self._start = number * _VALUE.size
        self._end = self._start + _VALUE.size

    def __get__(self, page: "Page", _: type) -> int:
        value: int = _VALUE.unpack_from(page.memory, self._start)[0]
        return value

    def __set__(self, page: "Page", value: int) -> None:
        page.memory[self._start : self._end] = _VALUE.pack(value)


class Page:
    # The clock: how far it is ahead, and how much faster it goes since when (by a steady clock).
    offset_ns, rate_ppm, rate_since_ns = (_Value(number) for number in range(3))
    # The failpoint: which step (0: none), what to do there, and how many times to pass it before.
    armed_step, deed, countdown = (_Value(number) for number in range(3, 6))

    def __init__(self, path: Path) -> None:
        """All values of a new page are 0: nothing is disturbed."""
        with path.open("a+b") as file:
            if file.seek(0, 2) < _BYTES:
                file.truncate(_BYTES)
            self.memory = mmap.mmap(file.fileno(), _BYTES)

    def set_clock(self, offset_ns: int, rate_ppm: int, now_ns: int) -> None:
        """`now_ns` is of the steady clock that `ahead_ns` is asked with."""
        self.rate_ppm = 0
        self.offset_ns = offset_ns
        self.rate_since_ns = now_ns
        self.rate_ppm = rate_ppm

    def ahead_ns(self, steady_ns: Callable[[], int]) -> int:
        """How far the clock is ahead of the right time now; negative: behind."""
        rate_ppm = self.rate_ppm
        if rate_ppm == 0:
            return self.offset_ns
        return self.offset_ns + (steady_ns() - self.rate_since_ns) * rate_ppm // 1_000_000

    def arm(self, step: int, deed: int, countdown: int) -> None:
        self.armed_step = 0
        self.deed, self.countdown = deed, countdown
        self.armed_step = step

    def is_due(self, step: int) -> bool:
        """Whether the armed step is reached for the last time; then it is armed no more."""
        if self.armed_step != step:
            return False
        self.countdown -= 1
        if self.countdown > 0:
            return False
        self.armed_step = 0
        return True
