"""How long to wait before a process that ended is started again."""

from random import Random

FIRST_S = 0.1
MOST_S = 10.0
# One that served for this long was well: its end is the first one again.
WELL_AFTER_S = 30.0
# So that processes that ended together do not all come back at the same moment.
JITTER = 0.2


class Backoff:
    """Of one process: 0.1 s after the first end in a row, twice as long after each further one."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ends = 0

    def after(self, served_s: float) -> float:
        """Seconds to wait, after an end that followed this many seconds of serving."""
        if served_s >= WELL_AFTER_S:
            self._ends = 0
        wait_s = min(MOST_S, FIRST_S * 2.0 ** min(self._ends, 32))
        self._ends += 1
        return wait_s * self._random.uniform(1 - JITTER, 1)
