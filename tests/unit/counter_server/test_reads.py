"""Reads: as complete as their stamp says, and an accurate one with all that was acknowledged."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import counter_server.tail
from counter.clock import ManualClock
from counter.errors import StoreUnavailable
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.rollups import CachedCount, FoldRecord, Rollup, RollupKey
from counter.segments import SegmentRef
from counter.storage.ports import RollupRow
from counter_server.tail import Tail
from tests.stores import segment
from tests.tampered import settle
from tests.unit.counter_server.parts import PLATFORM, Parts, no_error_is_left_over


async def accurate(parts: Parts, counter: str = "views") -> CachedCount:
    [count] = await parts.reads.accurate(parts.namespace, [counter])
    return count


async def rolled_up(parts: Parts, counter: str = "views") -> CachedCount:
    [count] = await parts.reads.rolled_up(parts.namespace, [counter])
    return count


def stamp(parts: Parts, window: int) -> int:
    return parts.layout.complete_through_ns(window)


async def test_a_counter_nobody_added_to_reads_0_with_a_stamp(parts: Parts) -> None:
    origin = stamp(parts, parts.layout.from_window - 1)
    assert await rolled_up(parts) == CachedCount(0, origin, 0, 0)
    assert await accurate(parts) == CachedCount(0, origin, 0, 0)
    await parts.fold_through(parts.window - 1)
    assert await rolled_up(parts) == CachedCount(0, stamp(parts, parts.window - 1), 0, 0)


async def test_an_accurate_read_adds_the_tail_to_the_rollup(parts: Parts) -> None:
    await parts.write(parts.event("views", 5, "a", age_ms=3_000))
    await parts.fold_through(parts.window - 2)
    await parts.write(parts.event("views", 7, "b"), parts.event("views", 1, "c", age_ms=1_000))
    folded = stamp(parts, parts.window - 2)
    assert await rolled_up(parts) == CachedCount(5, folded, 0, 0)
    assert await accurate(parts) == CachedCount(13, folded, 0, 0)
    await parts.write(parts.event("views", 100, "d"))
    assert (await accurate(parts)).count == 113


async def test_a_tail_folds_duplicates_and_clears_as_a_fold_does(parts: Parts) -> None:
    add = parts.event("views", 5, "a", age_ms=2_000)
    clear = parts.event("views", None, "b", age_ms=1_000)
    await parts.write(add, add, clear, parts.event("views", 3, "c"), clear)
    count = await accurate(parts)
    assert (count.count, count.epoch, count.cleared_at_ns) == (3, 1, clear.time_ns)
    await parts.fold_through(parts.window)
    assert (await rolled_up(parts)).count == 3
    assert await accurate(parts) == await rolled_up(parts)


@pytest.mark.parametrize("kept_max", [0, 1, 500])
async def test_conflicting_copies_count_as_the_fold_will_count_them(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, kept_max: int
) -> None:
    """The first in fold order, by segment id, in whatever order they were written and kept."""
    monkeypatch.setattr(counter_server.tail, "EVENTS_KEPT_MAX", kept_max)
    for segment_id, delta in ((b"m" * 16, 10), (b"z" * 16, 1_000), (b"a" * 16, 1)):
        written = segment(
            [parts.event("views", delta, "t")],
            window=parts.window,
            shard=parts.shard("views"),
            namespace_id=parts.namespace.id,
            segment_id=segment_id,
        )
        await parts.stores.event_log.append([written])
        assert (await accurate(parts)).count == min(delta, 10)
    await parts.fold_through(parts.window)
    assert (await rolled_up(parts)).count == 1


async def test_of_a_recorded_window_only_the_named_segments_count(parts: Parts) -> None:
    """A fold is decided, its rollups are not written yet, and a late segment lands beside it."""
    event = parts.event("views", 5, "a", age_ms=2_000)
    refs = await parts.write(event)
    await parts.close(parts.window - 1)
    assert (await accurate(parts)).count == 5  # kept from here on
    await _propose(parts, refs, parts.window - 1)
    await parts.write(parts.event("views", 100, "late", age_ms=2_000))
    await parts.write(parts.event("views", 1, "open"))
    assert await accurate(parts) == CachedCount(6, stamp(parts, parts.window - 1), 0, 0)


async def test_a_segment_that_lands_after_the_fold_is_not_counted(parts: Parts) -> None:
    await parts.write(parts.event("views", 5, "a", age_ms=2_000))
    await parts.fold_through(parts.window - 1)
    await parts.write(parts.event("views", 100, "late", age_ms=2_000))
    assert await accurate(parts) == CachedCount(5, stamp(parts, parts.window - 1), 0, 0)


async def test_a_row_ahead_of_its_watermark_is_not_counted_twice(parts: Parts) -> None:
    """The worker wrote the rollup and has not moved the watermark yet."""
    event = parts.event("views", 5, "a", age_ms=2_000)
    refs = await parts.write(event)
    await parts.close(parts.window - 1)
    await _propose(parts, refs, parts.window - 1)
    await parts.stores.rollup_store.write([_row(parts, 5, parts.window - 1)])
    folded = stamp(parts, parts.window - 1)
    assert await rolled_up(parts) == CachedCount(5, folded, 0, 0)
    assert await accurate(parts) == CachedCount(5, folded, 0, 0)
    # A neighbour without a row is as complete as the record that does not mention it.
    neighbour = parts.counters(parts.shard("views"), 1)[0]
    before = stamp(parts, parts.layout.from_window - 1)
    assert (await rolled_up(parts, neighbour)).complete_through_ns == before
    assert (await accurate(parts, neighbour)).complete_through_ns == folded


@pytest.mark.parametrize("held", ["rollup_store.read", "ledger.folds", "event_log.refs"])
async def test_a_fold_in_the_middle_of_a_read_changes_no_count(parts: Parts, held: str) -> None:
    """Watermark, row, records, segments: in that order nothing is missed or counted twice (I5)."""
    await parts.write(*(parts.event("views", 1, f"t{at}", age_ms=900 * at) for at in range(5)))
    release = parts.script.hold(held)
    reading = asyncio.create_task(accurate(parts))
    await settle()
    await parts.fold_through(parts.window - 2)
    await parts.fold_through(parts.window)
    release.set()
    assert (await reading).count == 5


async def test_the_watermark_is_read_before_the_row(parts: Parts) -> None:
    """Read after it, it would call a row complete that a fold had not reached when it was read."""
    await parts.write(parts.event("views", 5, "a", age_ms=2_000))

    async def read(call: Any, keys: Sequence[RollupKey]) -> list[Rollup | None]:
        rows: list[Rollup | None] = await call(keys)
        await parts.fold_through(parts.window - 1)
        return rows

    parts.script.answers["rollup_store.read"] = read
    count = await rolled_up(parts)
    assert count == CachedCount(0, stamp(parts, parts.layout.from_window - 1), 0, 0)


async def test_a_counter_that_is_being_read_is_not_read_again(parts: Parts) -> None:
    """Many ask at once when a counter has just left the caches: the store is asked once."""
    await parts.write(parts.event("views", 5, "a"), parts.event("likes", 7, "b"))
    await parts.fold_through(parts.window)
    release = parts.script.hold("rollup_store.read")
    first = [asyncio.create_task(rolled_up(parts)) for _ in range(100)]
    await settle()
    both = [
        asyncio.create_task(parts.reads.rolled_up(parts.namespace, ["likes", "views"]))
        for _ in range(100)
    ]
    await settle()
    release.set()
    assert {count.count for count in await asyncio.gather(*first)} == {5}
    for likes, views in await asyncio.gather(*both):
        assert (likes.count, views.count) == (7, 5)
    assert parts.script.calls["rollup_store.read"] == 2  # "views", and then "likes" alone
    await rolled_up(parts)
    assert parts.script.calls["rollup_store.read"] == 3  # what is over is not shared


async def test_a_shared_read_outlives_its_first_caller_and_fails_for_all(parts: Parts) -> None:
    release = parts.script.hold("rollup_store.read")
    readers = [asyncio.create_task(rolled_up(parts)) for _ in range(3)]
    await settle()
    readers[0].cancel()
    release.set()
    assert [count.count for count in await asyncio.gather(*readers[1:])] == [0, 0]

    async def fail(*_: Any) -> None:
        raise StoreUnavailable("away", retry_after_ms=1)

    parts.script.answers["rollup_store.read"] = fail
    ends = await asyncio.gather(*(rolled_up(parts) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in ends] == [StoreUnavailable] * 3
    del parts.script.answers["rollup_store.read"]
    assert (await rolled_up(parts)).count == 0


async def test_events_ahead_of_our_clock_are_seen(parts: Parts) -> None:
    """By accept_limit on a server that is ahead of the store, while this one is behind it."""
    ahead_ms = PLATFORM.accept_limit_ms + 2 * PLATFORM.max_clock_skew_ms
    await parts.write(parts.event("views", 5, "a", age_ms=-ahead_ms))
    assert (await accurate(parts)).count == 5


async def test_a_batch_is_answered_in_order_with_one_tail_read_per_shard(parts: Parts) -> None:
    names = [*parts.counters(0, 3), *parts.counters(1, 3)]
    for at, name in enumerate(names):
        await parts.write(parts.event(name, at + 1))
    asked = [*reversed(names), "never", names[0]]
    counts = await parts.reads.accurate(parts.namespace, asked)
    assert [each.count for each in counts] == [6, 5, 4, 3, 2, 1, 0, 1]
    assert parts.script.calls["event_log.refs"] == 2
    assert parts.script.calls["rollup_store.read"] == 1


async def test_calls_share_only_a_read_that_had_not_begun(parts: Parts) -> None:
    """Otherwise a call could miss an event that was acknowledged before it."""
    release = parts.script.hold("event_log.refs")
    first = asyncio.create_task(accurate(parts))
    await settle()
    assert parts.script.in_flight["event_log.refs"] == 1
    following = [asyncio.create_task(accurate(parts)) for _ in range(10)]
    await settle()
    # The first read is under way: nobody joins it, and no second one runs beside it.
    assert parts.script.calls["event_log.refs"] == 1
    release.set()
    await asyncio.gather(first, *following)
    assert parts.script.calls["event_log.refs"] == 2


async def test_an_event_acknowledged_during_a_read_is_in_the_next_answer(parts: Parts) -> None:
    async def refs(call: Any, *args: int) -> list[SegmentRef]:
        found: list[SegmentRef] = await call(*args)
        await gate.wait()  # what was read is old by the time it is answered
        return found

    gate = asyncio.Event()
    parts.script.answers["event_log.refs"] = refs
    before = asyncio.create_task(accurate(parts))
    await settle()
    await parts.commit.write(parts.namespace.id, [parts.event("views", 5)])
    after = asyncio.create_task(accurate(parts))
    await settle()
    gate.set()
    assert (await before).count == 0
    assert (await after).count == 5


async def test_bodies_are_fetched_once(parts: Parts) -> None:
    await parts.write(*(parts.event("views", 1, f"t{at}") for at in range(5)))
    fetched = 0

    async def bodies(call: Any, refs: Sequence[SegmentRef]) -> list[bytes | None]:
        nonlocal fetched
        fetched += len(refs)
        found: list[bytes | None] = await call(refs)
        return found

    parts.script.answers["event_log.bodies"] = bodies
    for _ in range(3):
        assert (await accurate(parts)).count == 5
    assert fetched == 5
    await parts.write(parts.event("views", 1, "new"))
    assert (await accurate(parts)).count == 6
    assert fetched == 6


async def test_folded_windows_are_let_go(parts: Parts) -> None:
    await parts.write(*(parts.event("views", 1, f"t{at}", age_ms=500 * at) for at in range(8)))
    await accurate(parts)
    assert parts.tail._kept_events == 8
    await parts.fold_through(parts.window)
    assert (await accurate(parts)).count == 8
    assert parts.tail._kept_events == 0


@pytest.mark.parametrize("kept_max", [0, 1, 4, 11])
async def test_beyond_what_is_kept_the_answers_are_the_same(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, kept_max: int
) -> None:
    monkeypatch.setattr(counter_server.tail, "EVENTS_KEPT_MAX", kept_max)
    names = parts.counters(0, 3)
    model = dict.fromkeys(names, 0)
    for round_ in range(10):
        for at, name in enumerate(names):
            event = parts.event(name, 10 * round_ + at + 1, f"t{round_}")
            await parts.write(event, *([event] if round_ % 3 == 0 else []))
            model[name] += event.delta or 0
        counts = await parts.reads.accurate(parts.namespace, names)
        assert [each.count for each in counts] == list(model.values())
        assert parts.tail._kept_events <= kept_max
        parts.clock.advance_ms(400)
        if round_ % 4 == 3:
            await parts.fold_through(parts.window - 1)


async def test_a_failed_tail_read_fails_its_callers_and_not_the_next(parts: Parts) -> None:
    await parts.write(parts.event("views", 5))

    async def bodies(call: Any, refs: Sequence[SegmentRef]) -> list[bytes | None]:
        raise StoreUnavailable("the disk is away")

    parts.script.answers["event_log.bodies"] = bodies
    asking = [asyncio.create_task(accurate(parts)) for _ in range(3)]
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in found] == [StoreUnavailable] * 3
    del parts.script.answers["event_log.bodies"]
    assert (await accurate(parts)).count == 5


async def test_a_caller_that_goes_away_does_not_disturb_the_others(parts: Parts) -> None:
    await parts.write(parts.event("views", 5))
    release = parts.script.hold("event_log.refs")
    leaving, staying = asyncio.create_task(accurate(parts)), asyncio.create_task(accurate(parts))
    await settle()
    leaving.cancel()
    release.set()
    assert (await staying).count == 5


@pytest.mark.parametrize(
    ("read", "fails"), [(accurate, "event_log.refs"), (rolled_up, "rollup_store.read")]
)
async def test_a_read_that_fails_when_its_callers_are_gone(
    parts: Parts, read: Any, fails: str
) -> None:
    async def fail(*_: Any) -> None:
        raise StoreUnavailable("away", retry_after_ms=1)

    parts.script.answers[fails] = fail
    release = parts.script.hold(fails)
    with no_error_is_left_over():
        reader = asyncio.create_task(read(parts))
        await settle()
        assert parts.script.in_flight[fails] == 1
        reader.cancel()
        del reader  # or it would keep what it waited for
        await settle()
        release.set()
        await settle()
        assert parts.script.in_flight[fails] == 0


async def test_counters_of_one_shard_are_told_apart_by_namespace(parts: Parts) -> None:
    event = parts.event("views", 5)
    other = segment(
        [event],
        window=parts.window,
        shard=parts.shard("views"),
        namespace_id=parts.namespace.id + 1,
    )
    await parts.stores.event_log.append([other])
    assert (await accurate(parts)).count == 0


async def test_callers_that_know_of_different_watermarks_share_a_read(
    parts: Parts, clock: ManualClock
) -> None:
    """One read the watermark before a fold, the other after it; both ask for the same tail."""
    tail = Tail(parts.log, parts.ledger, shards=parts.layout.shards)
    await parts.write(parts.event("views", 5, "a", age_ms=2_000), parts.event("views", 7, "b"))
    await parts.fold_through(parts.window - 1)
    key = (parts.namespace.id, "views")
    shard = parts.shard("views")
    origin = parts.layout.from_window - 1
    late, early = await asyncio.gather(
        tail.read(shard, parts.window - 1, {key}), tail.read(shard, origin, {key})
    )
    assert parts.script.calls["event_log.refs"] == 1
    assert [each.delta for each in late.events_after(parts.window - 1, key)] == [7]
    deltas = sorted(each.delta or 0 for each in early.events_after(origin, key))
    assert deltas == [5, 7]
    assert early.recorded_through == parts.window - 1


# Small pieces of a fold, as a worker that stopped half way leaves them.


async def _propose(parts: Parts, refs: Sequence[SegmentRef], to_window: int) -> None:
    await parts.stores.ledger.propose(
        FoldRecord(
            shard=parts.shard("views"),
            from_window=parts.layout.from_window,
            to_window=to_window,
            segments=tuple(refs),
            event_count=len(refs),
            namespaces_version=1,
        )
    )


def _row(parts: Parts, count: int, through_window: int) -> RollupRow:
    hashed = counter_hash(namespace_prefix(parts.namespace.id), "views")
    bucket = hashed % ROLLUP_BUCKETS[parts.namespace.cardinality]
    key = RollupKey(parts.namespace.id, bucket, "views")
    return key, Rollup(count, through_window=through_window)
