"""The worker: closes windows when they are due, and folds what is closed as fast as is good.

Closing, beating and forgetting are periodic jobs. Folding is not: folder tasks take turns from the
queues, so that a slow or broken shard keeps one of them busy at most, and closing goes on whatever
folds do.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import structlog

from counter.errors import TallyError
from counter.metrics import (
    FOLD_BATCH_COUNTERS,
    FOLD_FAILURES,
    FOLD_PASSES_ALLOWED,
    FOLD_QUEUE_WINDOWS,
    SHARDS_RESTING,
)
from counter.storage.ports import Ledger
from counter.windows import Layout
from rollup_worker.closer import Closer
from rollup_worker.ownership import BEAT_EVERY_S, Ownership
from rollup_worker.pace import Pace
from rollup_worker.queues import Queues, Turn
from rollup_worker.report import Report, ShardReport
from rollup_worker.retention import Retention
from rollup_worker.rollup import Rollup
from rollup_worker.schedule import Schedule, details_of, problem_of

_CLOSES_PER_WINDOW = 4
_CLOSE_S_MIN, _CLOSE_S_MAX = 0.02, 0.5
_RETENTION_EVERY_S = 60.0

log = structlog.get_logger()


class Worker:
    def __init__(
        self,
        closer: Closer,
        rollup: Rollup,
        retention: Retention,
        ownership: Ownership,
        ledger: Ledger,
        layout: Layout,
        *,
        passes_in_parallel: int,
        chance: Random,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._closer = closer
        self._rollup = rollup
        self._ownership = ownership
        self._ledger = ledger
        self._passes_max = passes_in_parallel
        self._monotonic_s = monotonic_s
        self._pace = Pace(
            shards=layout.shards, passes_in_parallel=passes_in_parallel, chance=chance
        )
        self._queues = Queues(passes_max=passes_in_parallel, monotonic_s=monotonic_s)
        self._closed_through = layout.from_window - 1
        self._watermarks = [layout.from_window - 1] * layout.shards
        self._stopping = asyncio.Event()
        self._fold_failures = FOLD_FAILURES.at()
        self._schedule = Schedule()
        close_s = layout.window_ms / 1_000 / _CLOSES_PER_WINDOW
        self.add_job("beat", BEAT_EVERY_S, self._beat)
        self.add_job("close", min(max(close_s, _CLOSE_S_MIN), _CLOSE_S_MAX), self._close)
        self.add_job("retention", _RETENTION_EVERY_S, retention.forget)
        self.add_job("history_expiry", _RETENTION_EVERY_S, retention.forget_history)
        self._watch(layout.shards)

    def add_job(self, name: str, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Before `run`: something to do every so many seconds, while the worker runs."""
        self._schedule.add(name, seconds, work)

    async def run(self) -> None:
        """Until `stop`. A store that is away is tried again; nothing is lost meanwhile."""
        folders = [asyncio.create_task(self._fold_on()) for _ in range(self._passes_max)]
        self._schedule.start()
        await self._stopping.wait()
        self._queues.close()
        await self._schedule.stop()
        await asyncio.gather(*folders)
        try:
            await self._ownership.leave()
        except TallyError:
            pass  # then others take over when the membership runs out

    def stop(self) -> None:
        """Ends `run` after the passes under way; no other begins."""
        self._stopping.set()
        self._queues.close()

    async def round(self) -> None:
        """Closes what is due and folds until there is nothing left that can be folded."""
        await self._beat()
        await self._close()

        async def fold_on() -> None:
            while (turn := self._queues.pick()) is not None:
                await self._fold(turn)

        await asyncio.gather(*(fold_on() for _ in range(self._passes_max)))

    def problem(self) -> str | None:
        """What keeps windows from closing or folding, if anything does."""
        problem = self._problem_as_a_whole()
        if problem is not None:
            return problem
        for shard in self._ownership.shards:
            problem = self._rollup.progress[shard].problem
            if problem is not None:
                return f"shard {shard}: {problem}"
        return None

    def report(self) -> Report:
        """How this worker and its shards are."""
        return Report(
            passes_in_parallel=self._pace.passes,
            problem=self._problem_as_a_whole() or "",
            shards=tuple(self._report_of(shard) for shard in self._ownership.shards),
        )

    # Jobs.

    async def _beat(self) -> None:
        await self._ownership.beat(self.report())
        self._offer()

    async def _close(self) -> None:
        closed_through = await self._closer.close_due()
        if closed_through > self._closed_through:
            # Other workers fold too, after a shard has changed hands.
            self._watermarks = await self._ledger.watermarks()
            self._closed_through = closed_through
        self._offer()

    def _offer(self) -> None:
        self._queues.offer(self._ownership.shards, self._closed_through, self._watermarks)

    # Folding.

    async def _fold_on(self) -> None:
        while (turn := await self._queues.take()) is not None:
            await self._fold(turn)

    async def _fold(self, turn: Turn) -> None:
        """One pass. A shard that cannot be folded rests alone; the others go on."""
        shard = turn.shard
        progress = self._rollup.progress[shard]
        size = self._pace.size(shard)
        try:
            result = await self._rollup.fold_shard(
                shard,
                turn.closed_through,
                events_max=size.events_max,
                rollups_per_batch=size.rollups_per_batch,
            )
        except Exception as error:
            self._fold_failures.add()
            if progress.problem is None:
                log.error(
                    "a shard cannot be folded",
                    action="fold_failed",
                    shard=shard,
                    **details_of(error),
                )
            progress.problem = problem_of(error)
            rest_s = self._pace.failed(shard, error, now_s=self._monotonic_s())
            self._queues.rest(turn, rest_s)
        else:
            if progress.problem is not None:
                log.info("a shard is folded again", action="fold_resumed", shard=shard)
            progress.problem = None
            self._pace.succeeded(
                shard,
                events=result.events,
                seconds=result.seconds,
                is_full=result.is_full,
                now_s=self._monotonic_s(),
            )
            self._queues.finish(
                turn, folded_through=result.folded_through, has_more=result.has_more
            )
        self._queues.allow(self._pace.passes)

    # What there is to know.

    def _problem_as_a_whole(self) -> str | None:
        return self._schedule.problem() or self._closer.problem

    def _report_of(self, shard: int) -> ShardReport:
        progress = self._rollup.progress[shard]
        return ShardReport(
            shard=shard,
            folded_events=progress.events,
            duplicate_events=progress.counts.duplicates,
            conflicting_events=progress.counts.conflicts,
            last_pass_events=progress.last_pass_events,
            last_pass_ms=progress.last_pass_s * 1_000,
            batch_counters=self._pace.size(shard).rollups_per_batch,
            problem=progress.problem or "",
        )

    def _watch(self, shards: int) -> None:
        FOLD_PASSES_ALLOWED.at().watch(self, lambda worker: worker._pace.passes)
        SHARDS_RESTING.at().watch(self, lambda worker: worker._queues.resting())
        for shard in range(shards):
            FOLD_QUEUE_WINDOWS.at(shard=str(shard)).watch(self, partial(_depth, shard))
            FOLD_BATCH_COUNTERS.at(shard=str(shard)).watch(self, partial(_batch_counters, shard))


def _depth(shard: int, worker: Worker) -> float | None:
    return worker._queues.depth(shard)


def _batch_counters(shard: int, worker: Worker) -> float | None:
    """Only of shards that are folded here."""
    if worker._queues.depth(shard) is None:
        return None
    return worker._pace.size(shard).rollups_per_batch
