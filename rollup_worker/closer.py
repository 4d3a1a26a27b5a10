"""Closes windows whose time has come.

The clock decides only *when* a window closes. A clock that is wrong makes events late, never
miscounted; still, one far ahead would close windows that callers need, so a worker whose clock is
not the store's closes nothing and says so.
"""

from counter.clock import NS_PER_S, Clock, skew_between, skew_ns_between
from counter.metrics import CLOCK_SKEW_SECONDS, CLOSES
from counter.settings import Platform
from counter.storage.ports import Ledger
from counter.windows import Layout


class Closer:
    def __init__(self, ledger: Ledger, layout: Layout, platform: Platform, clock: Clock) -> None:
        self._ledger = ledger
        self._layout = layout
        self._platform = platform
        self._clock = clock
        self.problem: str | None = None
        self._clock_skew = CLOCK_SKEW_SECONDS.at()
        self._closes = CLOSES.at()

    async def close_due(self) -> int:
        """Closes what is due; answers with the last window that is closed, durably."""
        closed = await self._ledger.closed()
        now_ns = self._clock.now_ns()
        skew_ns = skew_ns_between(now_ns, closed.store_time_ns, age_ns_max=closed.age_ns_max)
        self._clock_skew.set(skew_ns / NS_PER_S)
        limit_ns = self._platform.max_clock_skew_ns
        skew = skew_between(
            now_ns, closed.store_time_ns, age_ns_max=closed.age_ns_max, limit_ns=limit_ns
        )
        if skew is not None:
            self.problem = (
                f"this worker's clock is {skew}: it closes no windows until that is set right"
            )
            return closed.through
        self.problem = None
        due = self._layout.closable_through(now_ns, grace_ns=self._platform.close_grace_ns)
        if due <= closed.through:
            return closed.through
        await self._ledger.close(due)
        self._closes.add()
        return due
