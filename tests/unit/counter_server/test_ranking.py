"""TopCounters: the highest first, from one scan for all who ask the same."""

import asyncio
from typing import Any

import pytest

import counter_server.ranking
from counter.clock import NS_PER_MS, NS_PER_S
from counter.errors import (
    HistoryOff,
    HistoryTooOld,
    InvalidRequest,
    Overloaded,
    StoreUnavailable,
    Unsupported,
)
from counter.namespaces import HistoryStep, Namespace, Strategy
from counter_server.ranking import RANKING_KEPT_NS, SCANS_IN_FLIGHT_MAX, Ranking, Rankings
from tests.expiry import forget_until
from tests.tampered import settle
from tests.unit.counter_server.parts import Parts

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
HISTORY = (
    HistoryStep(step_ms=MINUTE_MS, retention_ms=2 * HOUR_MS),
    HistoryStep(step_ms=HOUR_MS, retention_ms=10 * DAY_MS),
)


class Ranks:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.rankings = Rankings(
            parts.ledger, parts.rollup_store, parts.history_store, parts.layout, parts.clock
        )

    async def add(self, **deltas: int) -> None:
        """All now, and folded."""
        await self.parts.write(
            *(
                self.parts.event(name, delta, f"t{self.parts.clock.now_ns()}")
                for name, delta in deltas.items()
            )
        )
        self.parts.clock.advance_ms(1_000)
        await self.parts.fold_through(self.parts.window - 1)

    async def top(self, limit: int = 0, prefix: str = "", period_ms: int | None = None) -> Ranking:
        period_ns = None if period_ms is None else period_ms * NS_PER_MS
        return await self.rankings.top(self.parts.namespace, prefix, limit, period_ns)

    async def names(self, *args: Any, **kwargs: Any) -> list[str]:
        return [each.counter for each in (await self.top(*args, **kwargs)).counters]

    async def growths(self, period_ms: int) -> list[tuple[str, int]]:
        ranking = await self.top(period_ms=period_ms)
        return [(each.counter, each.growth) for each in ranking.counters]

    def wait(self) -> None:
        """Until a kept ranking is made again."""
        self.parts.clock.advance_ms(RANKING_KEPT_NS // NS_PER_MS)


@pytest.fixture
async def ranks(parts: Parts) -> Ranks:
    await parts.define(history=HISTORY)
    return Ranks(parts)


async def test_the_highest_first_and_equal_ones_by_name(ranks: Ranks) -> None:
    await ranks.add(a=5, b=9, c=-2, e=5, d=5, ab=1)
    ranking = await ranks.top()
    assert [(each.counter, each.value.count) for each in ranking.counters] == [
        *(("b", 9), ("a", 5), ("d", 5), ("e", 5), ("ab", 1), ("c", -2)),
    ]
    stamp_ns = ranks.parts.layout.complete_through_ns(ranks.parts.window - 1)
    assert (ranking.complete_through_ns, ranking.counters_seen) == (stamp_ns, 6)
    assert (ranking.growth_from_ns, ranking.resolution_ms) == (None, None)
    assert await ranks.names(2) == ["b", "a"]
    assert await ranks.names(prefix="a") == ["a", "ab"]


@pytest.mark.parametrize("per_page", [1, 3, 1_000])
async def test_only_the_highest_are_kept_whatever_is_read(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, per_page: int
) -> None:
    monkeypatch.setattr(counter_server.ranking, "_COUNTERS_PER_PAGE", per_page)
    monkeypatch.setattr(counter_server.ranking, "LIMIT_MAX", 4)
    counts = {f"c{at:03}": at * 37 % 101 for at in range(1, 100)}
    await ranks.add(**counts)
    highest = sorted(counts, key=lambda name: -counts[name])[:4]
    ranking = await ranks.top(4)
    assert [each.counter for each in ranking.counters] == highest
    assert ranking.counters_seen == 99


async def test_growth_is_what_was_added_since(ranks: Ranks) -> None:
    await ranks.add(old=100, steady=50, cleared=30)
    ranks.parts.clock.advance_ms(10 * MINUTE_MS)
    await ranks.add(steady=5, new=20, cleared=4)
    await ranks.parts.write(ranks.parts.event("cleared", None, "clear"))
    await ranks.add(cleared=3)
    ranking = await ranks.top(period_ms=5 * MINUTE_MS)
    assert [(each.counter, each.growth) for each in ranking.counters] == [
        *(("new", 20), ("cleared", 7), ("steady", 5), ("old", 0)),
    ]
    assert ranking.resolution_ms == MINUTE_MS
    assert ranking.growth_from_ns is not None
    asked_ns = ranking.complete_through_ns - 5 * MINUTE_MS * NS_PER_MS
    assert asked_ns - MINUTE_MS * NS_PER_MS < ranking.growth_from_ns <= asked_ns
    assert (ranking.growth_from_ns + 1) % (60 * NS_PER_S) == 0
    assert ranking.counters[1].value.count == 3
    # Only those that were there before and have changed since are looked up.
    assert ranks.parts.script.calls["history_store.at"] > 0


async def test_counters_whose_past_is_not_known_are_left_out(ranks: Ranks) -> None:
    await ranks.add(steady=50, old=1)
    ranks.parts.clock.advance_ms(10 * MINUTE_MS)
    await ranks.add(steady=5, new=20)
    assert await ranks.growths(5 * MINUTE_MS) == [("new", 20), ("steady", 5), ("old", 0)]
    store = ranks.parts.stores.history_store
    assert forget_until(store, ranks.parts.namespace.id, MINUTE_MS) == 1
    ranks.wait()
    ranking = await ranks.top(period_ms=5 * MINUTE_MS)
    assert [each.counter for each in ranking.counters] == ["new", "old"]
    assert ranking.counters_seen == 3


async def test_longer_periods_take_the_step_that_is_kept_for_so_long(ranks: Ranks) -> None:
    await ranks.add(a=5)
    assert (await ranks.top(period_ms=HOUR_MS)).resolution_ms == MINUTE_MS
    assert (await ranks.top(period_ms=2 * HOUR_MS)).resolution_ms == HOUR_MS
    with pytest.raises(HistoryTooOld, match="shorter period"):
        await ranks.top(period_ms=11 * DAY_MS)


async def test_growth_needs_a_history(ranks: Ranks) -> None:
    await ranks.parts.define(history=())
    with pytest.raises(HistoryOff, match="rank by count"):
        await ranks.top(period_ms=MINUTE_MS)
    assert await ranks.names() == []


async def test_calls_that_ask_the_same_share_one_scan(ranks: Ranks) -> None:
    await ranks.add(a=5, b=9)
    release = ranks.parts.script.hold("rollup_store.page")
    calls = [asyncio.create_task(ranks.names(limit)) for limit in (1, 2, 2)]
    await settle()
    assert ranks.parts.script.in_flight["rollup_store.page"] == 1
    calls[2].cancel()  # who goes away does not end the scan of the others
    release.set()
    assert await asyncio.gather(*calls[:2]) == [["b"], ["b", "a"]]


async def test_a_ranking_is_kept_for_a_while_with_its_stamp(ranks: Ranks) -> None:
    await ranks.add(a=5)
    first = await ranks.top()
    await ranks.add(a=1)
    assert await ranks.top() == first
    ranks.wait()
    [again] = (await ranks.top()).counters
    assert again.value.count == 6
    newest_ns = ranks.parts.layout.complete_through_ns(ranks.parts.window - 11)
    assert again.value.complete_through_ns == newest_ns


async def test_few_scans_at_once_and_few_rankings_kept(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = ranks.parts.script.hold("rollup_store.page")
    calls = [asyncio.create_task(ranks.names(prefix=str(at))) for at in range(SCANS_IN_FLIGHT_MAX)]
    await settle()
    with pytest.raises(Overloaded) as refused:
        await ranks.top(prefix="other")
    assert refused.value.retry_after_ms is not None
    release.set()
    await asyncio.gather(*calls)
    for at in range(100):
        await ranks.top(prefix=str(at))
    assert len(ranks.rankings._kept) == counter_server.ranking.RANKINGS_KEPT_MAX
    assert not ranks.rankings._scans


async def test_too_many_counters_are_refused_and_not_scanned_again(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_server.ranking, "COUNTERS_RANKED_MAX", 3)
    await ranks.add(a=1, b=2, c=3)
    assert await ranks.names() == ["c", "b", "a"]
    await ranks.add(d=4)
    ranks.wait()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="longer prefix") as refused:
            await ranks.top()
    assert (refused.value.reason, refused.value.field) == ("RANGE_TOO_LARGE", "prefix")
    scans = ranks.parts.script.calls["ledger.watermarks"]
    with pytest.raises(InvalidRequest):
        await ranks.top()
    assert ranks.parts.script.calls["ledger.watermarks"] == scans
    assert await ranks.names(prefix="d") == ["d"]


async def test_a_store_that_is_away_is_asked_again(ranks: Ranks) -> None:
    async def page(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    await ranks.add(a=1)
    ranks.parts.script.answers["rollup_store.page"] = page
    with pytest.raises(StoreUnavailable):
        await ranks.top()
    del ranks.parts.script.answers["rollup_store.page"]
    assert await ranks.names() == ["a"]


async def test_stopping_ends_the_scans(ranks: Ranks) -> None:
    ranks.parts.script.hold("rollup_store.page")
    call = asyncio.create_task(ranks.top())
    await settle()
    ranks.rankings.stop()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not ranks.rankings._scans


@pytest.mark.parametrize("limit", [-1, 1_001])
async def test_limits_out_of_range_are_refused(ranks: Ranks, limit: int) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await ranks.top(limit)
    assert (refused.value.reason, refused.value.field) == ("PAGE_MALFORMED", "limit")


async def test_best_effort_keeps_no_list(ranks: Ranks) -> None:
    hits = Namespace(id=9, name="hits", strategy=Strategy.BEST_EFFORT)
    with pytest.raises(Unsupported):
        await ranks.rankings.top(hits, "", 1, None)
