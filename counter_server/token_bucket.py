"""A token bucket that may run into debt.

It fills at a steady rate up to one second's worth. A call passes while there is anything in it, and
takes what it costs, even if that is more than there is: a batch larger than the bucket passes now
and then, and whoever comes next waits until its debt is paid. So over any time t no more passes
than rate * t, one second's worth and the debt of one call, and a load that is steady and below the
rate is never held up.
"""

from counter.clock import NS_PER_S


class TokenBucket:
    """The rate may be another one each time: a server's share changes with their number."""

    __slots__ = ("_at_ns", "_level")

    def __init__(self, *, now_ns: int, rate_per_s: float) -> None:
        self._level = rate_per_s  # full
        self._at_ns = now_ns

    def wait_ns(self, now_ns: int, rate_per_s: float) -> int:
        """How long until a call may pass; 0: it may now."""
        filled = max(0, now_ns - self._at_ns) * rate_per_s / NS_PER_S
        self._level = min(rate_per_s, self._level + filled)
        self._at_ns = now_ns
        if self._level > 0:
            return 0
        return int(-self._level / rate_per_s * NS_PER_S) + 1

    def take(self, cost: int) -> None:
        """For a call that may pass."""
        self._level -= cost
