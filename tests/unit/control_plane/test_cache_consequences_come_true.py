"""What the plan says of caches comes true."""

import pytest

from counter.namespaces import Strategy
from counter.v1 import counter_service_pb2 as pb
from tests.unit.control_plane.live import Live, comes_true

SECOND = 1_000
ROLLUP, TAIL = pb.SOURCE_ROLLUP, pb.SOURCE_ROLLUP_AND_TAIL
SHARED, LOCAL = pb.SOURCE_SHARED_CACHE, pb.SOURCE_LOCAL_CACHE


async def caching(live: Live, ttl_s: int, local_ttl_s: int = 0) -> None:
    await live.define(cache_ttl_ms=ttl_s * SECOND, cache_local_ttl_ms=local_ttl_s * SECOND)


async def source_after(live: Live, seconds: int) -> "pb.Source.ValueType":
    live.pass_ms(seconds * SECOND)
    return (await live.read()).source


@comes_true(("cache.ttl", "longer"))
async def test_a_longer_ttl_lets_answers_be_older(live: Live) -> None:
    await caching(live, 5)
    assert [await source_after(live, each) for each in (0, 4, 2)] == [ROLLUP, SHARED, ROLLUP]
    await caching(live, 60)
    assert await source_after(live, 10) == ROLLUP
    read_at_ns = live.clock.now_ns()
    live.pass_ms(30 * SECOND)
    await live.fold()
    value = await live.read()
    assert value.source == SHARED
    assert value.complete_through.ToNanoseconds() < read_at_ns, "and complete_through says so"
    assert await source_after(live, 30) == ROLLUP


@comes_true(("cache.ttl", "shorter"))
async def test_a_shorter_ttl_holds_for_what_is_cached_from_then_on(live: Live) -> None:
    await caching(live, 60)
    assert await source_after(live, 0) == ROLLUP
    await caching(live, 5)
    assert await source_after(live, 59) == SHARED, "what is cached stays for as long as it had"
    assert [await source_after(live, each) for each in (1, 4, 2)] == [ROLLUP, SHARED, ROLLUP]


@comes_true(("cache.ttl", "off"))
async def test_without_a_ttl_every_read_goes_to_the_store_at_once(live: Live) -> None:
    await caching(live, 60, 30)
    assert [await source_after(live, 0) for _ in range(2)] == [ROLLUP, LOCAL]
    await caching(live, 0)
    assert [await source_after(live, 0) for _ in range(2)] == [ROLLUP, ROLLUP]


@comes_true(("cache.local_ttl", "longer"))
async def test_a_longer_local_ttl_lets_answers_be_older(live: Live) -> None:
    await caching(live, 60, 2)
    assert [await source_after(live, each) for each in (0, 1, 2)] == [ROLLUP, LOCAL, SHARED]
    await caching(live, 60, 30)
    live.pass_ms(60 * SECOND)
    assert [await source_after(live, each) for each in (0, 20)] == [ROLLUP, LOCAL]
    value = await live.read()
    assert live.clock.now_ns() - value.complete_through.ToNanoseconds() > 20 * 10**9


@comes_true(("cache.local_ttl", "shorter"))
async def test_a_shorter_local_ttl_holds_for_what_is_kept_from_then_on(live: Live) -> None:
    await caching(live, 60, 30)
    assert await source_after(live, 0) == ROLLUP
    await caching(live, 60, 2)
    assert await source_after(live, 29) == LOCAL, "what they have stays for as long as it had"
    assert [await source_after(live, each) for each in (1, 1, 2)] == [SHARED, LOCAL, SHARED]


@comes_true(("cache.local_ttl", "off"))
async def test_without_a_local_ttl_reads_ask_the_shared_cache(live: Live) -> None:
    await caching(live, 60, 30)
    assert [await source_after(live, 0) for _ in range(2)] == [ROLLUP, LOCAL]
    await caching(live, 60)
    assert [await source_after(live, 0) for _ in range(2)] == [SHARED, SHARED]


@comes_true(("cache.ttl", "not asked"), ("cache.local_ttl", "not asked"))
async def test_accurate_reads_ask_no_cache_whatever_it_is_set_to(live: Live) -> None:
    await live.define(strategy=Strategy.ACCURATE)
    sources = [await source_after(live, 0) for _ in range(2)]
    hour = 3_600 * SECOND
    await live.define(strategy=Strategy.ACCURATE, cache_ttl_ms=hour, cache_local_ttl_ms=hour)
    sources += [await source_after(live, 0) for _ in range(2)]
    assert sources == [TAIL] * 4


@pytest.mark.parametrize(
    "fields",
    [
        {"strategy": Strategy.ROLLING_WINDOW, "rolling_window_ms": 60 * SECOND},
        {"strategy": Strategy.BEST_EFFORT},
    ],
    ids=lambda fields: fields["strategy"],
)
async def test_nor_do_other_strategies_than_eventual(live: Live, fields: dict[str, object]) -> None:
    await live.define(**fields)
    await live.count()
    await live.define(**fields, cache_ttl_ms=3_600 * SECOND)
    await live.count()
    await live.add()
    assert await live.count() == 1
