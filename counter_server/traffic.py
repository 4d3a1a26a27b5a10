"""How much of what came through a namespace lately. A call costs one addition."""

from collections import deque
from typing import NamedTuple

from counter.clock import NS_PER_S

SAMPLE_EVERY_S = 1.0
SAMPLES_KEPT = 10


class Rates(NamedTuple):
    adds_per_s: float
    reads_per_s: float
    limited_per_s: float


class Traffic:
    """Counts since the start, to be added to by whoever takes calls."""

    __slots__ = ("_samples", "adds", "limited", "reads")

    def __init__(self, now_ns: int) -> None:
        self.adds = 0
        self.reads = 0
        self.limited = 0  # adds and reads that were refused
        self._samples = deque([(now_ns, 0, 0, 0)], maxlen=SAMPLES_KEPT)

    def sample(self, now_ns: int) -> None:
        """To be called every SAMPLE_EVERY_S."""
        self._samples.append((now_ns, self.adds, self.reads, self.limited))

    def rates(self, now_ns: int) -> Rates:
        """Over the last SAMPLES_KEPT samples, or the time since the start if that is less."""
        since_ns, adds, reads, limited = self._samples[0]
        # What came in the first moment is no rate yet.
        seconds = max(SAMPLE_EVERY_S, (now_ns - since_ns) / NS_PER_S)
        return Rates(
            (self.adds - adds) / seconds,
            (self.reads - reads) / seconds,
            (self.limited - limited) / seconds,
        )
