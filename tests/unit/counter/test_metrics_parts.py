"""What the parts of the programs record, where a whole process would not show it easily."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from counter import metrics
from counter.clock import NS_PER_S, ManualClock
from counter.errors import StoreUnavailable
from counter.events import Event
from counter.segments import Segment
from counter.settings import Platform
from counter.storage.ports import Closed
from counter.storage.sqlite import Database
from counter_server.ledger_watch import LedgerWatch
from counter_server.strategies import CacheLayer, Eventual, Freshness, Source
from rollup_worker.closer import Closer
from tests.unit.counter_server.parts import PLATFORM, Parts

AGE_MS = 3_000


@pytest.fixture
async def parts(clock: ManualClock) -> Parts:
    return await Parts.create(clock)


def late(outcome: str) -> int:
    return metrics.LATE_TOKENS.at(outcome=outcome).value


def commits(result: str) -> int:
    return sum(metrics.COMMIT_SECONDS.at(result=result).state.counts)


async def test_a_commit_that_fails_is_not_counted_as_written(parts: Parts) -> None:
    ok, failed = commits("ok"), commits("failed")
    events, segments = metrics.COMMIT_EVENTS.at(), metrics.COMMIT_SEGMENTS.at()
    before, segments_before = events.state.sum, segments.state.sum

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        raise StoreUnavailable("away")

    parts.script.answers["event_log.append"] = append
    with pytest.raises(StoreUnavailable):
        await parts.commit.write(1, [parts.event("views", token="a")])
    del parts.script.answers["event_log.append"]
    written = [parts.event("views", token=token) for token in "bcd"]
    await parts.commit.write(1, written)
    assert (commits("ok"), commits("failed")) == (ok + 1, failed + 1)
    assert events.state.sum == before + 3
    assert segments.state.sum == segments_before + 1


async def test_events_wait_until_they_are_written(parts: Parts) -> None:
    waiting = metrics.EVENTS_WAITING.at()
    assert waiting.value == 0
    store = parts.script.hold("event_log.append")
    writing = parts.commit.write(1, [parts.event("views", token=token) for token in "ab"])
    assert waiting.value == 2
    store.set()
    await writing
    assert waiting.value == 0


async def test_late_tokens_are_counted_by_their_outcome(parts: Parts) -> None:
    before = {outcome: late(outcome) for outcome in metrics.LATE_OUTCOMES}
    event = parts.event("views", age_ms=AGE_MS)
    await parts.write(event)
    await parts.fold_through(parts.window - 2)
    other = Event("views", event.time_ns, "other", 1)
    waits = parts.event("views", age_ms=0)

    async def folds(call: Any, *args: Any) -> Any:
        raise StoreUnavailable("away")

    async def settle(*events: Event) -> None:
        await parts.late.settle(parts.namespace.id, events, wait_s=0)

    await settle(event, event, other)
    await settle(waits)
    parts.script.answers["ledger.folds"] = folds
    await settle(parts.event("views", age_ms=AGE_MS + 1_000))
    counted = {outcome: late(outcome) - before[outcome] for outcome in metrics.LATE_OUTCOMES}
    assert counted == {
        "duplicate": 2,
        "expired": 1,
        "pending": 1,
        "failed": 1,
        "too_old": 0,
        "overloaded": 0,
    }


async def test_tail_reads_show_what_they_fetch_and_keep(parts: Parts) -> None:
    fetched, reads = metrics.TAIL_SEGMENTS_FETCHED.at(), metrics.TAIL_READ_SECONDS.at()
    kept, accurate = metrics.TAIL_EVENTS_KEPT.at(), metrics.ACCURATE_READS.at()
    before = fetched.value, sum(reads.state.counts), accurate.value
    await parts.write(*(parts.event("views", token=token) for token in "abc"))
    await parts.reads.accurate(parts.namespace, ["views"])
    assert fetched.value == before[0] + 3
    assert kept.value == 3
    await parts.reads.accurate(parts.namespace, ["views"])
    assert fetched.value == before[0] + 3  # they were kept
    assert sum(reads.state.counts) == before[1] + 2
    assert accurate.value == before[2] + 2


async def test_the_cache_is_asked_layer_by_layer(parts: Parts) -> None:
    def lookups() -> dict[str, int]:
        series = metrics.CACHE_LOOKUPS.series()
        return {f"{each['layer']} {each['result']}": found.value for each, found in series}

    cache = parts.stores.count_cache
    layer = CacheLayer(cache=cache, source=Source.SHARED_CACHE, ttl_ms=60_000)
    strategy = Eventual(parts.namespace, parts.path(), [layer])
    before = lookups()
    await strategy.read(["a", "b"], Freshness())  # both from the store
    await strategy.read(["a", "c"], Freshness())  # one from the cache
    await strategy.read(["a"], Freshness(max_staleness_ns=0))  # nothing is fresh enough
    after = lookups()
    assert {name: after[name] - before.get(name, 0) for name in after if "local" not in name} == {
        "shared hit": 1,
        "shared stale": 1,
        "shared miss": 3,
        "store hit": 3,
        "store stale": 1,
    }


async def test_lags_grow_while_nobody_looks(parts: Parts, clock: ManualClock) -> None:
    platform, layout = PLATFORM, parts.layout
    watch = LedgerWatch(parts.ledger, parts.admission, layout, platform, clock)
    lag = metrics.FOLD_LAG_SECONDS.at(shard="1")
    close_lag = metrics.CLOSE_LAG_SECONDS.at()
    assert lag.value is None  # nothing is known yet
    await parts.fold_through(parts.window - 3)
    await watch.look()
    behind_s = (clock.now_ns() - layout.end_ns(parts.window - 3)) / NS_PER_S
    assert lag.value == close_lag.value == behind_s
    clock.advance_ms(60_000)
    assert lag.value == close_lag.value == behind_s + 60


async def test_the_clocks_difference_is_shown_with_its_sign(parts: Parts) -> None:
    skew = metrics.CLOCK_SKEW_SECONDS.at()
    now_ns = parts.clock.now_ns()
    parts.admission.observe(Closed(parts.window - 9, now_ns - NS_PER_S // 4))
    assert skew.value == 0.25
    parts.admission.observe(Closed(parts.window - 9, now_ns + NS_PER_S * 2))
    assert skew.value == -2
    # What the age of the reading can explain is no skew.
    parts.admission.observe(Closed(parts.window - 9, now_ns - NS_PER_S, NS_PER_S * 3 // 4))
    assert skew.value == 0.25


async def test_a_worker_counts_the_closes_that_it_wrote(parts: Parts) -> None:
    closes = metrics.CLOSES.at()
    before = closes.value
    platform = Platform(region="test", shards=2, log_retention_s=3_600)
    closer = Closer(parts.ledger, parts.layout, platform, parts.clock)
    parts.clock.advance_ms(60_000)
    await parts.stores.ledger.close(parts.layout.from_window)
    await closer.close_due()
    assert closes.value == before + 1
    await closer.close_due()  # nothing is due any more
    assert closes.value == before + 1


async def test_failures_of_sqlite_are_counted_by_kind(tmp_path: Path) -> None:
    database = Database(tmp_path)
    reads = metrics.STORE_SECONDS.at(store="sqlite", statement="read")
    other = metrics.STORE_ERRORS.at(store="sqlite", kind="other")
    before, read_before = other.value, sum(reads.state.counts)
    try:
        with pytest.raises(StoreUnavailable):
            database.read("SELECT nothing FROM nowhere")
        with pytest.raises(StoreUnavailable):
            await database.write(lambda connection: connection.execute("INSERT INTO nowhere"))
    finally:
        await database.close()
    assert other.value == before + 2
    assert sum(reads.state.counts) == read_before + 1
