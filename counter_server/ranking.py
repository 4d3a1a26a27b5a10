"""TopCounters: the counters with the highest count, or the largest growth.

Rollups are sorted by name, not by count, so a ranking reads every counter of the namespace, in
pages, and gives way between them. Calls that ask for the same share one scan, and its result is
kept for some seconds, with its stamp. A scan keeps the highest few only, whatever it reads.

Growth is what was added since a past step: the total of now without the total of then. A counter
that has not changed since has grown by 0, one that began since by all it has; only the others are
looked up in the history. A counter whose state of then is not known is left out of the ranking.
"""

import asyncio
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from cachetools import LRUCache

from counter.clock import NS_PER_MS, NS_PER_S, Clock
from counter.errors import HistoryOff, HistoryTooOld, InvalidRequest, Overloaded
from counter.keys import ROLLUP_BUCKETS, shards_of
from counter.namespaces import Namespace
from counter.rollups import Rollup
from counter.storage.ports import HistoryKey, HistoryStore, Ledger, RollupStore
from counter.windows import Layout
from counter_server.listing import rolled_up_value
from counter_server.states import check_rolled_up, last_step_through, state_at
from counter_server.strategies.strategy import Value

LIMIT_DEFAULT = 10
LIMIT_MAX = 1_000
COUNTERS_RANKED_MAX = 2_000_000  # beyond it: RANGE_TOO_LARGE
RANKING_KEPT_NS = 10 * NS_PER_S
RANKINGS_KEPT_MAX = 32
SCANS_IN_FLIGHT_MAX = 2  # beyond it: RESOURCE_EXHAUSTED
_COUNTERS_PER_PAGE = 1_000


class Ranked(NamedTuple):
    counter: str
    value: Value
    growth: int  # 0 in a ranking by count


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    counters: list[Ranked]  # the highest first
    complete_through_ns: int
    growth_from_ns: int | None
    resolution_ms: int | None
    counters_seen: int


class _Asked(NamedTuple):
    namespace: Namespace
    prefix: str
    period_ns: int | None  # None: by count


class _Base(NamedTuple):
    """The past step that growth is measured from."""

    step_ms: int
    step: int
    end_ns: int


class Rankings:
    def __init__(
        self,
        ledger: Ledger,
        rollups: RollupStore,
        history: HistoryStore,
        layout: Layout,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._rollups = rollups
        self._history = history
        self._layout = layout
        self._clock = clock
        self._scans: dict[_Asked, asyncio.Task[Ranking]] = {}
        self._kept: LRUCache[_Asked, tuple[int, asyncio.Task[Ranking]]]
        self._kept = LRUCache(RANKINGS_KEPT_MAX)

    async def top(
        self, namespace: Namespace, prefix: str, limit: int, period_ns: int | None
    ) -> Ranking:
        """By growth over a period, or by count without one. `limit` 0 is LIMIT_DEFAULT."""
        check_rolled_up(namespace, "keeps no list of its counters")
        if not 0 <= limit <= LIMIT_MAX:
            raise InvalidRequest("PAGE_MALFORMED", "limit", f"limit must be 1 to {LIMIT_MAX}")
        if period_ns is not None and not namespace.history:
            raise HistoryOff(
                f"namespace {namespace.name} keeps no history, so nobody knows what grew: rank by "
                "count, or give the namespace a history"
            )
        ranking = await self._shared(_Asked(namespace, prefix, period_ns))
        return Ranking(
            counters=ranking.counters[: limit or LIMIT_DEFAULT],
            complete_through_ns=ranking.complete_through_ns,
            growth_from_ns=ranking.growth_from_ns,
            resolution_ms=ranking.resolution_ms,
            counters_seen=ranking.counters_seen,
        )

    def stop(self) -> None:
        for scan in self._scans.values():
            scan.cancel()

    async def _shared(self, asked: _Asked) -> Ranking:
        scan = self._scans.get(asked)
        if scan is None and asked in self._kept:
            ended_ns, kept = self._kept[asked]
            if 0 <= self._clock.now_ns() - ended_ns < RANKING_KEPT_NS:
                scan = kept
        if scan is None:
            if len(self._scans) >= SCANS_IN_FLIGHT_MAX:
                raise Overloaded(
                    f"{SCANS_IN_FLIGHT_MAX} rankings are being made: ask again in a moment",
                    retry_after_ms=1_000,
                )
            scan = self._scans[asked] = asyncio.create_task(self._scan(asked))
            scan.add_done_callback(partial(self._ended, asked))
        # Shielded: one caller that goes away does not end the scan of the others.
        return await asyncio.shield(scan)

    def _ended(self, asked: _Asked, scan: "asyncio.Task[Ranking]") -> None:
        del self._scans[asked]
        if scan.cancelled():
            return
        # That it is too large, or too old, is as good an answer as any. A store that was away may
        # be back the next moment.
        if isinstance(scan.exception(), InvalidRequest | HistoryTooOld | None):
            self._kept[asked] = (self._clock.now_ns(), scan)

    async def _scan(self, asked: _Asked) -> Ranking:
        watermarks = await self._ledger.watermarks()
        complete_through_ns = self._layout.complete_through_ns(min(watermarks))
        now_ns = self._clock.now_ns()
        base = None
        if asked.period_ns is not None:
            base = self._base(asked.namespace, complete_through_ns - asked.period_ns, now_ns)
        best: list[Ranked] = []
        seen = 0
        for bucket in range(ROLLUP_BUCKETS[asked.namespace.cardinality]):
            after: str | None = ""
            while after is not None:
                page = await self._rollups.page(
                    asked.namespace.id,
                    bucket,
                    prefix=asked.prefix,
                    after=after,
                    limit=_COUNTERS_PER_PAGE,
                )
                seen += len(page)
                if seen > COUNTERS_RANKED_MAX:
                    raise InvalidRequest(
                        "RANGE_TOO_LARGE",
                        "prefix",
                        f"there are more than {COUNTERS_RANKED_MAX} counters to rank: ask for "
                        "those with a longer prefix",
                    )
                growths = await self._growths(asked.namespace, page, base)
                shards = shards_of(
                    asked.namespace.id, [name for name, _ in page], self._layout.shards
                )
                ranked = [
                    Ranked(
                        name,
                        rolled_up_value(
                            asked.namespace, rollup, watermarks[shard], now_ns, self._layout
                        ),
                        growth,
                    )
                    for (name, rollup), shard, growth in zip(page, shards, growths, strict=True)
                    if growth is not None
                ]
                best = _best(best, ranked, by_growth=base is not None)
                after = page[-1][0] if len(page) == _COUNTERS_PER_PAGE else None
                await asyncio.sleep(0)
        return Ranking(
            counters=best,
            complete_through_ns=complete_through_ns,
            growth_from_ns=None if base is None else base.end_ns,
            resolution_ms=None if base is None else base.step_ms,
            counters_seen=seen,
        )

    def _base(self, namespace: Namespace, from_ns: int, now_ns: int) -> _Base:
        """The end of the last step before a time, of the finest that is kept for so long."""
        layout = self._layout
        last_window = layout.window_of(from_ns + 1) - 1
        for kept in namespace.history:
            if now_ns - from_ns <= kept.retention_ms * NS_PER_MS:
                step = last_step_through(layout, last_window, kept.step_ms)
                end_ns = layout.complete_through_ns(layout.last_window_of_step(step, kept.step_ms))
                return _Base(kept.step_ms, step, end_ns)
        raise HistoryTooOld(
            f"the history of namespace {namespace.name} does not reach back so far: ask for a "
            "shorter period"
        )

    async def _growths(
        self, namespace: Namespace, page: list[tuple[str, Rollup]], base: _Base | None
    ) -> list[int | None]:
        """What each counter has grown by; None: not known."""
        if base is None:
            return [0] * len(page)
        growths: list[int | None] = []
        unknown: list[int] = []
        for at, (_, rollup) in enumerate(page):
            state = state_at(self._layout, base.step_ms, base.step, rollup, None)
            growths.append(None if state is None else rollup.total - state.total)
            if state is None:
                unknown.append(at)
        if unknown:
            keys = [HistoryKey(namespace.id, page[at][0], base.step_ms) for at in unknown]
            rows = await self._history.at(keys, base.step)
            for at, row in zip(unknown, rows, strict=True):
                rollup = page[at][1]
                state = state_at(self._layout, base.step_ms, base.step, rollup, row)
                growths[at] = None if state is None else rollup.total - state.total
        return growths


def _best(best: list[Ranked], ranked: Iterable[Ranked], *, by_growth: bool) -> list[Ranked]:
    """The highest of both, by count or growth, equal ones by name."""

    def score(each: Ranked) -> int:
        return each.growth if by_growth else each.value.count

    if len(best) == LIMIT_MAX:
        lowest = score(best[-1])
        ranked = [each for each in ranked if score(each) >= lowest]
        if not ranked:
            return best
    return heapq.nsmallest(
        LIMIT_MAX, [*best, *ranked], key=lambda each: (-score(each), each.counter)
    )
