"""Looks at the ledger now and then, so that an idle server too knows where it stands:
how far windows are closed, whether its clock agrees with the store's, how far folds are behind."""

import asyncio
from functools import partial

import structlog

from counter.clock import NS_PER_S, Clock
from counter.errors import TallyError
from counter.metrics import CLOSE_LAG_SECONDS, FOLD_LAG_SECONDS
from counter.settings import Platform
from counter.storage.ports import Ledger
from counter.windows import Layout
from counter_server.admission import LAG_SLOWED_FRACTION, Admission

log = structlog.get_logger()


class LedgerWatch:
    def __init__(
        self,
        ledger: Ledger,
        admission: Admission,
        layout: Layout,
        platform: Platform,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._admission = admission
        self._layout = layout
        self._platform = platform
        self._clock = clock
        self._alarmed = False
        self._watermarks: list[int] = []
        CLOSE_LAG_SECONDS.at().watch(
            self, lambda watch: watch._behind_s(watch._admission.closed_through)
        )
        for shard in range(layout.shards):
            FOLD_LAG_SECONDS.at(shard=str(shard)).watch(self, partial(_fold_lag_s, shard))

    async def look(self) -> None:
        self._admission.observe(await self._ledger.closed())
        self._watermarks = await self._ledger.watermarks()
        oldest = min(self._watermarks)
        lag_ns = max(0, self._clock.now_ns() - self._layout.end_ns(oldest))
        self._admission.observe_fold_lag(lag_ns)
        alarming = lag_ns > self._platform.log_retention_ns // LAG_SLOWED_FRACTION
        if alarming and not self._alarmed:
            log.error(
                "folds are far behind: some writes are refused, and all at half of log_retention",
                action="fold_lag_alarm",
                lag_s=lag_ns // NS_PER_S,
                log_retention_s=self._platform.log_retention_s,
            )
        self._alarmed = alarming

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._layout.window_ms / 1_000)
            try:
                await self.look()
            except TallyError as error:
                log.warning(
                    "the ledger cannot be read", action="ledger_unreadable", problem=error.message
                )

    def _behind_s(self, window: int) -> float:
        """How far the window's end is behind now, whenever it is asked: a ledger that cannot be
        read shows as a lag that grows."""
        return (self._clock.now_ns() - self._layout.end_ns(window)) / NS_PER_S


def _fold_lag_s(shard: int, watch: LedgerWatch) -> float | None:
    watermarks = watch._watermarks
    return watch._behind_s(watermarks[shard]) if watermarks else None
