"""The strategies: which layer answers what, and what an add answers when its window is closed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from counter.clock import NS_PER_MS, NS_PER_S
from counter.errors import (
    ClockSkewed,
    FoldPending,
    NotFreshEnough,
    StoreUnavailable,
    TokenExpired,
    Unsupported,
)
from counter.namespaces import Namespace, Strategy
from counter.segments import Segment
from counter.storage.memory import MemoryBestEffortCounters, MemoryCountCache
from counter.storage.ports import Closed
from counter_server.late import TokenStatus
from counter_server.strategies import (
    Accurate,
    BestEffort,
    CacheLayer,
    Eventual,
    Freshness,
    Source,
    Value,
)
from counter_server.strategies.strategy import ANY_FRESHNESS
from tests.unit.counter_server.parts import Parts

LOCAL_MS, SHARED_MS = 500, 5_000


class Layered:
    """An eventual namespace with its two caches, and the caches themselves."""

    def __init__(self, parts: Parts, *, local_ms: int = LOCAL_MS, shared_ms: int = SHARED_MS):
        now_ns = parts.clock.now_ns
        self.local = MemoryCountCache(monotonic_ns=now_ns)
        self.shared = MemoryCountCache(monotonic_ns=now_ns)
        wrap = parts.script.wrap
        layers = [
            CacheLayer(cache=wrap("local", self.local), source=Source.LOCAL_CACHE, ttl_ms=local_ms),
            CacheLayer(
                cache=wrap("shared", self.shared), source=Source.SHARED_CACHE, ttl_ms=shared_ms
            ),
        ]
        self.strategy = Eventual(parts.namespace, parts.path(), layers)

    async def read(self, *names: str, freshness: Freshness = ANY_FRESHNESS) -> list[Value]:
        return await self.strategy.read(names, freshness)


async def test_layers_are_asked_in_turn_and_filled_on_the_way_back(parts: Parts) -> None:
    layered = Layered(parts)
    await parts.write(parts.event("views", 5, age_ms=2_000))
    await parts.fold_through(parts.window - 1)
    sources = []
    for _ in range(2):
        [value] = await layered.read("views")
        sources.append(value.source)
        assert value.count == 5
        assert value.complete_through_ns == parts.layout.complete_through_ns(parts.window - 1)
    assert sources == [Source.ROLLUP, Source.LOCAL_CACHE]
    parts.clock.advance_ms(LOCAL_MS)
    assert [each.source for each in await layered.read("views")] == [Source.SHARED_CACHE]
    assert [each.source for each in await layered.read("views")] == [Source.LOCAL_CACHE]
    parts.clock.advance_ms(SHARED_MS)
    assert [each.source for each in await layered.read("views")] == [Source.ROLLUP]


async def test_each_layer_is_asked_only_for_what_the_one_before_lacked(parts: Parts) -> None:
    layered = Layered(parts)
    names = [f"c{at}" for at in range(6)]
    asked: dict[str, list[list[str]]] = {"local": [], "shared": [], "rollup": []}

    def note(layer: str) -> Any:
        async def answer(call: Any, keys: Sequence[Any]) -> Any:
            asked[layer].append([key[-1] for key in keys])
            return await call(keys)

        return answer

    await layered.read(names[0], names[1])
    parts.clock.advance_ms(LOCAL_MS)
    await layered.read(names[1])
    parts.script.answers["local.get"] = note("local")
    parts.script.answers["shared.get"] = note("shared")
    parts.script.answers["rollup_store.read"] = note("rollup")
    values = await layered.read(names[5], names[1], names[0], names[4])
    assert asked == {
        "local": [["c5", "c1", "c0", "c4"]],
        "shared": [["c5", "c0", "c4"]],
        "rollup": [["c5", "c4"]],
    }
    assert [each.source for each in values] == [
        Source.ROLLUP,
        Source.LOCAL_CACHE,
        Source.SHARED_CACHE,
        Source.ROLLUP,
    ]


async def test_a_cached_value_keeps_the_stamp_it_was_stored_with(parts: Parts) -> None:
    layered = Layered(parts)
    await parts.fold_through(parts.window - 3)
    [before] = await layered.read("views")
    await parts.write(parts.event("views", 5, age_ms=2_000))
    await parts.fold_through(parts.window - 1)
    [cached] = await layered.read("views")
    assert (cached.count, cached.complete_through_ns) == (0, before.complete_through_ns)


async def test_max_staleness_goes_on_to_a_fresher_layer(parts: Parts) -> None:
    layered = Layered(parts)
    await parts.fold_through(parts.window - 3)
    await layered.read("views")  # old in both caches
    await parts.write(parts.event("views", 5, "a", age_ms=2_000), parts.event("views", 7, "b"))
    await parts.fold_through(parts.window - 1)
    behind_ns = parts.clock.now_ns() - parts.layout.complete_through_ns(parts.window - 1)
    [value] = await layered.read("views", freshness=Freshness(max_staleness_ns=behind_ns))
    assert (value.count, value.source) == (5, Source.ROLLUP)
    [value] = await layered.read("views", freshness=Freshness(max_staleness_ns=behind_ns - 1))
    assert (value.count, value.source) == (12, Source.ROLLUP_AND_TAIL)
    # And what was found on the way serves the others.
    [value] = await layered.read("views")
    assert (value.count, value.source) == (5, Source.LOCAL_CACHE)


async def test_a_tail_enters_no_cache(parts: Parts) -> None:
    layered = Layered(parts)
    await parts.write(parts.event("views", 7))
    [value] = await layered.read("views", freshness=Freshness(max_staleness_ns=0))
    assert (value.count, value.source) == (7, Source.ROLLUP_AND_TAIL)
    [value] = await layered.read("views")
    assert value.count == 0


async def test_at_least_never_gets_an_older_answer(parts: Parts) -> None:
    layered = Layered(parts)
    await parts.fold_through(parts.window - 3)
    await layered.read("views")
    await parts.write(parts.event("views", 5, age_ms=2_000))
    await parts.fold_through(parts.window - 1)
    newest_ns = parts.layout.complete_through_ns(parts.window - 1)
    [value] = await layered.read("views", freshness=Freshness(at_least_ns=newest_ns))
    assert (value.count, value.complete_through_ns) == (5, newest_ns)
    with pytest.raises(NotFreshEnough) as refused:
        await layered.read("views", freshness=Freshness(at_least_ns=newest_ns + 1))
    assert refused.value.retry_after_ms is not None


async def test_a_layer_without_a_ttl_is_left_out(parts: Parts) -> None:
    layered = Layered(parts, local_ms=0, shared_ms=0)
    for _ in range(2):
        assert [each.source for each in await layered.read("views")] == [Source.ROLLUP]
    assert not any(name.startswith(("local.", "shared.")) for name in parts.script.calls)


async def test_a_batch_with_one_counter_twice(parts: Parts) -> None:
    layered = Layered(parts)
    await parts.write(parts.event("views", 5, age_ms=2_000))
    await parts.fold_through(parts.window - 1)
    for _ in range(2):
        assert [each.count for each in await layered.read("views", "b", "views")] == [5, 0, 5]


# Adds.


def strategy(parts: Parts) -> Accurate:
    return Accurate(parts.namespace, path=parts.path())


async def test_an_add_that_is_in_time(parts: Parts) -> None:
    logged = strategy(parts)
    assert await logged.add([parts.event("views", 5)], wait_s=0) == [False]
    # Again, while the window is open: written again, and counted once.
    assert await logged.add([parts.event("views", 5)], wait_s=0) == [False]
    [value] = await logged.read(["views"], ANY_FRESHNESS)
    assert value.count == 5


async def test_add_and_read_includes_the_add(parts: Parts) -> None:
    logged = Layered(parts).strategy
    for at in range(1, 4):
        duplicate, value = await logged.add_and_read(parts.event("views", 1, f"t{at}"), wait_s=0)
        assert (duplicate, value.count, value.source) == (False, at, Source.ROLLUP_AND_TAIL)


async def test_late_events_of_a_batch_are_settled_and_the_others_written(parts: Parts) -> None:
    logged = strategy(parts)
    applied = parts.event("views", 5, "a", age_ms=2_000)
    await logged.add([applied], wait_s=0)
    await parts.fold_through(parts.window - 1)
    parts.admission.observe(await parts.stores.ledger.closed())
    batch = [
        parts.event("views", 1, "new"),
        applied,
        parts.event("views", 1, "late", age_ms=2_000),
        parts.event("plays", 1, "new"),
    ]
    outcomes = await logged.add(batch, wait_s=0)
    assert outcomes[:2] == [False, True]
    assert isinstance(outcomes[2], TokenExpired)
    assert outcomes[3] is False
    [value] = await logged.read(["views"], ANY_FRESHNESS)
    assert value.count == 6
    assert sum(await parts.stored_events()) == 3  # what is known to be late is not written


async def test_a_window_that_closes_during_the_write_is_decided_by_the_fold(parts: Parts) -> None:
    """The server does not know of the close: the write brings it, and the fold its outcome."""
    logged = strategy(parts)
    closed_window = parts.window - 1

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        await call(segments)
        await parts.fold_through(closed_window)
        return await parts.stores.ledger.closed()

    parts.script.answers["event_log.append"] = append
    in_fold = parts.event("views", 5, "a", age_ms=1_000)
    assert await logged.add([in_fold], wait_s=0) == [True]
    del parts.script.answers["event_log.append"]
    missed = parts.event("views", 5, "b", age_ms=1_000)
    [outcome] = await logged.add([missed], wait_s=0)
    assert isinstance(outcome, TokenExpired)
    [value] = await logged.read(["views"], ANY_FRESHNESS)
    assert value.count == 5


async def test_a_late_event_that_was_written_is_never_called_not_written(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RESOURCE_EXHAUSTED promises that nothing was written; here something was."""
    monkeypatch.setattr("counter_server.late.LOOKUPS_IN_FLIGHT_MAX", 0)
    await parts.close(parts.window)
    [outcome] = await strategy(parts).add([parts.event("views", 5)], wait_s=0)
    assert isinstance(outcome, FoldPending)
    assert outcome.retry_after_ms is not None


async def test_nothing_is_taken_while_the_clock_is_wrong(parts: Parts) -> None:
    parts.admission.observe(Closed(0, parts.clock.now_ns() + 10 * NS_PER_S))
    with pytest.raises(ClockSkewed):
        await strategy(parts).add([parts.event("views", 5)], wait_s=0)
    assert await parts.stored_events() == []


async def test_a_failed_write_raises_and_a_retry_counts_once(parts: Parts) -> None:
    logged = strategy(parts)

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        await call(segments)  # it happened, but nobody was told
        raise StoreUnavailable("the answer was lost")

    parts.script.answers["event_log.append"] = append
    event = parts.event("views", 5)
    with pytest.raises(StoreUnavailable):
        await logged.add([event], wait_s=0)
    del parts.script.answers["event_log.append"]
    assert await logged.add([event], wait_s=0) == [False]
    [value] = await logged.read(["views"], ANY_FRESHNESS)
    assert value.count == 5


async def test_token_status_through_its_life(parts: Parts) -> None:
    logged = strategy(parts)
    event, never = parts.event("views", 5), parts.event("views", 5, "never")
    await logged.add([event], wait_s=0)
    assert await logged.token_status(event) is TokenStatus.PENDING
    parts.clock.advance_ms(10_000)
    await parts.fold_through(parts.window - 6)
    assert await logged.token_status(event) is TokenStatus.APPLIED
    assert await logged.token_status(never) is TokenStatus.NOT_APPLIED


async def test_many_adds_and_reads_at_once_agree(parts: Parts) -> None:
    logged = strategy(parts)

    async def add_then_read(number: int) -> None:
        token = f"t{number}"
        await logged.add([parts.event("views", 1, token)], wait_s=0)
        acknowledged.add(token)
        at_least = len(acknowledged)
        [value] = await logged.read(["views"], ANY_FRESHNESS)
        assert value.count >= at_least

    acknowledged: set[str] = set()
    await asyncio.gather(*(add_then_read(number) for number in range(100)))
    [value] = await logged.read(["views"], ANY_FRESHNESS)
    assert value.count == 100


# best_effort.


def best_effort(parts: Parts, dedupe_ttl_ms: int | None) -> BestEffort:
    namespace = Namespace(
        id=9, name="hits", strategy=Strategy.BEST_EFFORT, dedupe_ttl_ms=dedupe_ttl_ms
    )
    counters = MemoryBestEffortCounters(monotonic_ns=parts.clock.now_ns)
    return BestEffort(namespace, counters=counters)


async def test_best_effort_counts_without_tokens(parts: Parts) -> None:
    hits = best_effort(parts, None)
    event = parts.event("views", -2)
    assert await hits.add([event, event], wait_s=0) == [False, False]
    assert await hits.read(["views", "b"], ANY_FRESHNESS) == [
        Value(-4, None, 0, 0, Source.SHARED_CACHE),
        Value(0, None, 0, 0, Source.SHARED_CACHE),
    ]
    assert await hits.add_and_read(parts.event("views", None), wait_s=0) == (
        False,
        Value(0, None, 0, 0, Source.SHARED_CACHE),
    )


async def test_best_effort_may_remember_tokens_for_a_while(parts: Parts) -> None:
    hits = best_effort(parts, 1_000)
    event = parts.event("views", 2)
    other_time = parts.event("views", 2, age_ms=1)
    assert await hits.add([event, event, other_time], wait_s=0) == [False, True, False]
    parts.clock.advance_ms(1_000)
    assert await hits.add([event], wait_s=0) == [False]


async def test_best_effort_cannot_tell_how_fresh_or_what_became_of_a_token(parts: Parts) -> None:
    hits = best_effort(parts, 1_000)
    for freshness in (Freshness(max_staleness_ns=NS_PER_MS), Freshness(at_least_ns=1)):
        with pytest.raises(Unsupported):
            await hits.read(["views"], freshness)
    with pytest.raises(Unsupported):
        await hits.token_status(parts.event("views"))
