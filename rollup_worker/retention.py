"""Retention: forgets what is old enough, and nothing else.

Events when they are folded and older than log_retention (I8), history when it has expired, whatever
became of its namespace since.
"""

import structlog

from counter.clock import Clock
from counter.metrics import HISTORY_ROWS_FORGOTTEN, SEGMENTS_FORGOTTEN
from counter.settings import Platform
from counter.storage.ports import EventLog, HistoryStore, Ledger
from counter.windows import NS_PER_DAY, Layout

log = structlog.get_logger()


class Retention:
    def __init__(
        self,
        event_log: EventLog,
        ledger: Ledger,
        history_store: HistoryStore,
        layout: Layout,
        platform: Platform,
        clock: Clock,
    ) -> None:
        self._event_log = event_log
        self._ledger = ledger
        self._history_store = history_store
        self._layout = layout
        self._platform = platform
        self._clock = clock
        self._segments_forgotten = SEGMENTS_FORGOTTEN.at()
        self._history_rows_forgotten = HISTORY_ROWS_FORGOTTEN.at()

    async def forget(self) -> None:
        """Fold records stay a day longer than their segments: what is gone can then be told
        from what never was."""
        kept_from_ns = self._clock.now_ns() - self._platform.log_retention_ns
        folded = min(await self._ledger.watermarks())
        segments_through = min(self._layout.window_of(kept_from_ns) - 1, folded)
        records_through = min(self._layout.window_of(kept_from_ns - NS_PER_DAY) - 1, folded)
        forgotten = 0
        while dropped := await self._event_log.drop_through(segments_through):
            forgotten += dropped
            self._segments_forgotten.add(dropped)
        while await self._ledger.drop_folds_through(records_through):
            pass
        if forgotten:
            log.info("forgot folded segments", action="segments_forgotten", segments=forgotten)

    async def forget_history(self) -> None:
        while dropped := await self._history_store.drop_expired(self._clock.now_ns()):
            self._history_rows_forgotten.add(dropped)
