"""The worker's round: close what is due, fold every shard, now and then forget."""

import asyncio

import structlog

from counter.errors import TallyError
from counter.metrics import FOLD_FAILURES, ROUND_FAILURES
from rollup_worker.closer import Closer
from rollup_worker.ownership import Ownership
from rollup_worker.retention import Retention
from rollup_worker.rollup import Rollup

_ROUNDS_PER_WINDOW = 4
_ROUND_S_MIN, _ROUND_S_MAX = 0.02, 0.5
_RETENTION_EVERY_S = 60.0

log = structlog.get_logger()


class Worker:
    def __init__(
        self,
        closer: Closer,
        rollup: Rollup,
        retention: Retention,
        ownership: Ownership,
        *,
        window_ms: int,
        passes_in_parallel: int,
    ) -> None:
        self._closer = closer
        self._rollup = rollup
        self._retention = retention
        self._ownership = ownership
        pause_s = window_ms / 1_000 / _ROUNDS_PER_WINDOW
        self._pause_s = min(max(pause_s, _ROUND_S_MIN), _ROUND_S_MAX)
        self._passes = asyncio.Semaphore(passes_in_parallel)
        self._round_problem: str | None = None
        self._stopping = asyncio.Event()
        self._round_failures = ROUND_FAILURES.at()
        self._fold_failures = FOLD_FAILURES.at()

    async def run(self) -> None:
        """Until `stop`. A store that is away is tried again; nothing is lost meanwhile."""
        next_retention_s = 0.0
        time = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            try:
                await self.round()
                if time() >= next_retention_s:
                    await self._retention.forget()
                    next_retention_s = time() + _RETENTION_EVERY_S
                self._round_problem = None
            except Exception as error:
                self._round_failures.add()
                if self._round_problem is None:
                    log.error("a round failed", action="round_failed", **_details(error))
                self._round_problem = _problem_of(error)
            try:
                await asyncio.wait_for(self._stopping.wait(), self._pause_s)
            except TimeoutError:
                pass
        try:
            await self._ownership.leave()
        except TallyError:
            pass  # then others take over when the membership runs out

    def stop(self) -> None:
        """Ends `run` after the passes under way."""
        self._stopping.set()

    async def round(self) -> None:
        closed_through = await self._closer.close_due()
        shards = await self._ownership.shards()
        await asyncio.gather(*(self._fold_all(shard, closed_through) for shard in shards))

    def problem(self) -> str | None:
        """What keeps windows from closing or folding, if anything does."""
        shard_problems = (each.problem for each in self._rollup.progress)
        problems = (self._round_problem, self._closer.problem, *shard_problems)
        return next((problem for problem in problems if problem is not None), None)

    async def _fold_all(self, shard: int, closed_through: int) -> None:
        """A shard that cannot be folded stops alone; the others go on."""
        progress = self._rollup.progress[shard]
        try:
            async with self._passes:
                while await self._rollup.fold_shard(shard, closed_through):
                    if self._stopping.is_set():
                        return
            progress.problem = None
        except Exception as error:
            self._fold_failures.add()
            if progress.problem is None:
                log.error(
                    "a shard cannot be folded", action="fold_failed", shard=shard, **_details(error)
                )
            progress.problem = f"shard {shard}: {_problem_of(error)}"


def _problem_of(error: Exception) -> str:
    """Folding that has stopped must show, whatever stopped it: a mistake of ours too."""
    return error.message if isinstance(error, TallyError) else repr(error)


def _details(error: Exception) -> dict[str, object]:
    """For the log; where a mistake of ours was made is worth its traceback."""
    expected = isinstance(error, TallyError)
    return {"problem": _problem_of(error)} | ({} if expected else {"exc_info": error})
