"""BestEffortCounters: the count after each add, and whether its token was there already."""

import asyncio

from counter.clock import ManualClock
from counter.storage.ports import BestEffortAdd
from tests.stores import ENTRIES_MAX, Stores

VIEWS, PLAYS = (1, "views"), (2, "views")


async def test_each_add_answers_with_the_count_after_it(stores: Stores) -> None:
    counters = stores.best_effort_counters
    adds = [
        BestEffortAdd(VIEWS, 5, None),
        BestEffortAdd(PLAYS, 1, None),
        BestEffortAdd(VIEWS, 2, None),
    ]
    assert await counters.apply(adds, dedupe_ttl_ms=0) == [(5, False), (1, False), (7, False)]
    assert await counters.read([PLAYS, VIEWS, (3, "views")]) == [1, 7, 0]


async def test_counts_may_be_negative(stores: Stores) -> None:
    counters = stores.best_effort_counters
    adds = [BestEffortAdd(VIEWS, -3, None), BestEffortAdd(VIEWS, 1, None)]
    assert await counters.apply(adds, dedupe_ttl_ms=0) == [(-3, False), (-2, False)]
    assert await counters.read([VIEWS]) == [-2]


async def test_a_clear_sets_the_count_to_0(stores: Stores) -> None:
    counters = stores.best_effort_counters
    adds = [
        BestEffortAdd(VIEWS, -3, None),
        BestEffortAdd(VIEWS, None, None),
        BestEffortAdd(VIEWS, 4, None),
    ]
    assert await counters.apply(adds, dedupe_ttl_ms=0) == [(-3, False), (0, False), (4, False)]


async def test_without_a_dedupe_key_every_add_counts(stores: Stores) -> None:
    counters = stores.best_effort_counters
    for wanted in (1, 2, 3):
        added = await counters.apply([BestEffortAdd(VIEWS, 1, None)], dedupe_ttl_ms=1_000)
        assert added == [(wanted, False)]


async def test_a_dedupe_key_counts_once_per_counter(stores: Stores) -> None:
    counters = stores.best_effort_counters
    adds = [
        BestEffortAdd(VIEWS, 1, "t"),
        BestEffortAdd(VIEWS, 1, "t"),  # in the same call
        BestEffortAdd(VIEWS, 1, "u"),
        BestEffortAdd(PLAYS, 1, "t"),  # another counter
    ]
    wanted = [(1, False), (1, True), (2, False), (1, False)]
    assert await counters.apply(adds, dedupe_ttl_ms=1_000) == wanted
    assert await counters.apply(adds[:1], dedupe_ttl_ms=1_000) == [(2, True)]
    assert await counters.read([VIEWS, PLAYS]) == [2, 1]


async def test_a_clear_is_deduped_too(stores: Stores) -> None:
    counters = stores.best_effort_counters
    clear = BestEffortAdd(VIEWS, None, "clear")
    await counters.apply([BestEffortAdd(VIEWS, 1, "a"), clear], dedupe_ttl_ms=1_000)
    await counters.apply([BestEffortAdd(VIEWS, 5, "b")], dedupe_ttl_ms=1_000)
    assert await counters.apply([clear], dedupe_ttl_ms=1_000) == [(5, True)]


async def test_a_dedupe_key_is_forgotten_after_its_ttl(stores: Stores, clock: ManualClock) -> None:
    counters = stores.best_effort_counters
    add = BestEffortAdd(VIEWS, 1, "t")
    await counters.apply([add], dedupe_ttl_ms=1_000)
    clock.advance_ms(999)
    assert await counters.apply([add], dedupe_ttl_ms=1_000) == [(1, True)]
    clock.advance_ms(1)
    if stores.tokens_in_real_time:
        while await counters.read([VIEWS]) == [1]:
            assert await counters.apply([add], dedupe_ttl_ms=1_000) in ([(1, True)], [(2, False)])
            await asyncio.sleep(0.05)
        assert await counters.read([VIEWS]) == [2]
    else:
        assert await counters.apply([add], dedupe_ttl_ms=1_000) == [(2, False)]


async def test_counters_and_tokens_are_bounded(stores: Stores) -> None:
    counters = stores.best_effort_counters
    keys = [(1, f"c{at}") for at in range(ENTRIES_MAX + 300)]
    adds = [BestEffortAdd(key, 1, "t") for key in keys]
    assert await counters.apply(adds, dedupe_ttl_ms=1_000) == [(1, False)] * len(keys)
    found = await counters.read(keys)
    kept = len(keys) if stores.entries_max is None else stores.entries_max
    assert sum(found) == kept
    assert found[-1] == 1
    # The oldest token is forgotten with the oldest counter, the last one is not.
    again = await counters.apply([adds[-1], adds[0]], dedupe_ttl_ms=1_000)
    assert again == [(1, True), (1, kept == len(keys))]
