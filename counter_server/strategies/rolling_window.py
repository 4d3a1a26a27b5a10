"""rolling_window: the hits in the last N seconds, and their rate.

The rolling window is made of as many whole windows as fit in `length`; the last of them is the
window of now, which is not over. So the count is exact to the window, and no event that is older
than `length` counts. Events of callers whose clocks are a little ahead count too.

The deltas of recent windows are in the rollup row itself, and those that are not folded yet in the
tail: a read is one row and a look at the tail, as in accurate. The ring in the row may be old,
because only a fold with events of the counter writes it. That is no problem: only its windows that
are still in the rolling window count, so a counter that nobody adds to falls back to 0.

A clear ends what was before it, here too. What the row does not know, because the namespace had
another strategy or a shorter length then, or because the clock of this server is far behind what is
folded, is not guessed: the value says from when on it counts.
"""

from collections.abc import Sequence

from counter.clock import NS_PER_S
from counter.namespaces import Namespace
from counter.rollups import Recent, Rollup
from counter.windows import Layout
from counter_server.strategies.logged import Logged
from counter_server.strategies.strategy import ANY_FRESHNESS, Freshness, Source, Value


class RollingWindow(Logged):
    async def read(self, counters: Sequence[str], freshness: Freshness) -> list[Value]:
        return await self.read_accurately(counters, freshness)

    async def read_accurately(
        self, counters: Sequence[str], freshness: Freshness = ANY_FRESHNESS
    ) -> list[Value]:
        rollups = await self._reads.with_tail(self.namespace, counters)
        through_ns = [self._layout.complete_through_ns(each.through_window) for each in rollups]
        self._check_freshness(through_ns, freshness)
        # After the read, as late as it may be: what the wait let fall out of the window is out.
        now_ns = self._admission.now_ns()
        return [
            hits(self.namespace, rollup, complete_through_ns, now_ns, self._layout)
            for rollup, complete_through_ns in zip(rollups, through_ns, strict=True)
        ]


def hits(
    namespace: Namespace,
    rollup: Rollup,
    complete_through_ns: int,
    now_ns: int,
    layout: Layout,
    source: Source = Source.ROLLUP_AND_TAIL,
) -> Value:
    """What a rollup says of the rolling window that ends now."""
    first_window = layout.window_of(now_ns) - namespace.recent_windows(layout.window_ms) + 1
    recent = rollup.recent
    if recent is None:  # never added to, or last with another strategy: nothing since
        recent = Recent(rollup.changed_window + 1)
    count = recent.since(first_window)
    window_start_ns = layout.start_ns(max(first_window, recent.from_window))
    seconds = (now_ns - window_start_ns) / NS_PER_S
    return Value(
        count,
        complete_through_ns,
        rollup.epoch,
        rollup.cleared_at_ns,
        source,
        window_start_ns,
        count / seconds if seconds > 0 else 0.0,
    )
