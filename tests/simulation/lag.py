"""I8 as a server keeps it: writes are refused when folds are far behind, and not before.

The server looks at the watermarks every now and then, and goes by what it saw last. Here stands
what it must make of that, computed anew: none are refused below a quarter of log_retention, some
above it, and all from half of it on.
"""

from collections.abc import Awaitable
from typing import Any

from counter.settings import Platform
from counter.v1 import counter_service_pb2 as pb
from counter.windows import Layout
from counter_server.app import CounterServer
from tests.simulation.machines import MachineClock
from tests.simulation.witness import Witness
from tests.unit.counter_server.served import Aborted

_WRITES = frozenset({"AddCount", "AddAndGetCount", "ClearCount", "AdjustCount"})


class LagWatch:
    def __init__(
        self,
        server: CounterServer,
        platform: Platform,
        layout: Layout,
        clock: MachineClock,
        witness: Witness,
    ) -> None:
        self._retention_ns = platform.log_retention_ns
        self._layout = layout
        self._clock = clock
        self._witness = witness
        self._lags_ns: list[int] = [0]  # as of each look
        watch = server._watch
        look = watch.look

        async def noted() -> None:
            await look()
            oldest = min(watch._watermarks)
            self._lags_ns.append(self._clock.now_ns() - self._layout.end_ns(oldest))

        watch.look = noted  # type: ignore[method-assign]

    async def judged(self, method: str, call: Awaitable[Any]) -> Any:
        """Makes the call: was it right to take it, or to refuse it?"""
        began = len(self._lags_ns) - 1
        try:
            response = await call
        except Aborted as aborted:
            if aborted.reason == "FOLD_LAGGING":
                self._refused(max(self._lags_ns[began:]))
            raise
        if method in _WRITES or (method == "BatchAddCount" and _some_taken(response)):
            self._taken(method, min(self._lags_ns[began:]))
        return response

    def _taken(self, method: str, lag_ns: int) -> None:
        if lag_ns * 4 > self._retention_ns:
            self._witness.counted["writes taken over a quarter of log_retention behind"] += 1
        if lag_ns * 2 >= self._retention_ns:
            self._witness.violate(
                "I8", f"{method} was taken when folds were {lag_ns / 1e9:.1f} s behind"
            )

    def _refused(self, lag_ns: int) -> None:
        over = "half" if lag_ns * 2 >= self._retention_ns else "a quarter"
        self._witness.counted[f"writes refused over {over} of log_retention behind"] += 1
        if lag_ns * 4 < self._retention_ns:
            self._witness.violate(
                "I8", f"a write was refused when folds were only {lag_ns / 1e9:.1f} s behind"
            )


def _some_taken(response: pb.BatchAddCountResponse) -> bool:
    return any(not outcome.code for outcome in response.outcomes)
