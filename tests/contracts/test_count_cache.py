"""CountCache: a count and its stamp are one value; it may be lost, never older than it says."""

from counter.clock import ManualClock
from counter.rollups import CachedCount
from tests.stores import ENTRIES_MAX, Stores

VIEWS, PLAYS = (1, "views"), (2, "views")


def count(value: int, stamp_ns: int) -> CachedCount:
    return CachedCount(value, stamp_ns, 1, 2)


async def test_what_was_put_is_got_in_the_order_asked(stores: Stores) -> None:
    await stores.count_cache.put([(VIEWS, count(1, 10)), (PLAYS, count(-(2**70), 20))], ttl_ms=100)
    found = await stores.count_cache.get([PLAYS, (3, "views"), VIEWS, PLAYS])
    assert found == [count(-(2**70), 20), None, count(1, 10), count(-(2**70), 20)]


async def test_an_entry_ends_with_its_ttl(stores: Stores, clock: ManualClock) -> None:
    await stores.count_cache.put([(VIEWS, count(1, 10))], ttl_ms=100)
    await stores.count_cache.put([(PLAYS, count(2, 10))], ttl_ms=200)
    clock.advance_ms(99)
    assert await stores.count_cache.get([VIEWS, PLAYS]) == [count(1, 10), count(2, 10)]
    clock.advance_ms(1)
    assert await stores.count_cache.get([VIEWS, PLAYS]) == [None, count(2, 10)]
    clock.advance_ms(100)
    assert await stores.count_cache.get([VIEWS, PLAYS]) == [None, None]


async def test_a_newer_stamp_replaces_an_older_one(stores: Stores, clock: ManualClock) -> None:
    await stores.count_cache.put([(VIEWS, count(1, 10))], ttl_ms=100)
    clock.advance_ms(60)
    await stores.count_cache.put([(VIEWS, count(2, 11))], ttl_ms=100)
    clock.advance_ms(60)
    assert await stores.count_cache.get([VIEWS]) == [count(2, 11)]


async def test_an_older_stamp_never_replaces_a_newer_one(stores: Stores) -> None:
    await stores.count_cache.put([(VIEWS, count(2, 11))], ttl_ms=100)
    await stores.count_cache.put([(VIEWS, count(1, 10))], ttl_ms=100)
    assert await stores.count_cache.get([VIEWS]) == [count(2, 11)]


async def test_it_is_bounded_and_keeps_what_came_last(stores: Stores) -> None:
    keys = [(1, f"c{at}") for at in range(ENTRIES_MAX + 300)]
    await stores.count_cache.put([(key, count(1, 10)) for key in keys], ttl_ms=100)
    found = await stores.count_cache.get(keys)
    kept = len(keys) if stores.entries_max is None else stores.entries_max
    assert sum(each is not None for each in found) == kept
    assert found[-1] == count(1, 10)
    assert (found[0] is None) == (kept < len(keys))


async def test_nothing_to_do(stores: Stores) -> None:
    await stores.count_cache.put([], ttl_ms=100)
    assert await stores.count_cache.get([]) == []
