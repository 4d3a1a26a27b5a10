"""Group commit: few writes for many calls, and no acknowledgement that is not true."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from counter.errors import Overloaded, ShuttingDown, StoreUnavailable
from counter.events import Event
from counter.segments import SEGMENT_EVENTS_MAX, Segment, SegmentRef, decode
from counter.storage.ports import FOREVER, Closed
from counter_server.commit import CommitLimits, GroupCommit
from tests.tampered import settle
from tests.unit.counter_server.parts import Parts

NAMESPACE = 1


def events(parts: Parts, number: int, *, counter: str = "views", age_ms: int = 0) -> list[Event]:
    return [parts.event(counter, 1, f"t{at}", age_ms=age_ms) for at in range(number)]


async def test_a_lone_add_is_written_at_once(parts: Parts) -> None:
    settled = parts.commit.write(NAMESPACE, events(parts, 1))
    assert await settled == []
    assert parts.script.calls["event_log.append"] == 1
    assert await parts.stored_events() == [1]


async def test_calls_of_one_turn_share_a_commit_and_a_segment(parts: Parts) -> None:
    calls = [parts.commit.write(NAMESPACE, events(parts, 3)) for _ in range(10)]
    assert await asyncio.gather(*calls) == [[]] * 10
    assert parts.script.calls["event_log.append"] == 1
    assert await parts.stored_events() == [30]


async def test_a_segment_is_of_one_namespace_window_and_shard(parts: Parts) -> None:
    names = [*parts.counters(0, 2), *parts.counters(1, 2)]
    for namespace_id in (1, 2):
        for age_ms in (0, 1_000, 3_000):
            batch = [parts.event(name, 1, age_ms=age_ms) for name in names]
            parts.commit.write(namespace_id, batch)
    await parts.commit.drain()
    assert parts.script.calls["event_log.append"] == 1
    written = 0
    for shard in (0, 1):
        for ref in await parts.stores.event_log.refs(shard, 0, FOREVER):
            [body] = await parts.stores.event_log.bodies([ref])
            assert body is not None
            found = decode(body)
            assert len(found) == ref.event_count
            assert {parts.layout.window_of(each.time_ns) for each in found} == {ref.window}
            if ref.namespace_id == 1:
                assert {parts.shard(each.counter) for each in found} == {shard}
            written += len(found)
    assert written == 24


async def test_a_commit_has_one_lane_and_commits_take_turns(parts: Parts) -> None:
    commit = GroupCommit(
        parts.stores.event_log,
        replace(parts.layout, lanes=3),
        CommitLimits(),
        lambda _: None,
    )
    names = [*parts.counters(0, 2), *parts.counters(1, 2)]
    lanes: list[int] = []
    known: set[SegmentRef] = set()
    for _ in range(6):
        await commit.write(NAMESPACE, [parts.event(name, 1) for name in names])
        found = {
            ref for shard in (0, 1) for ref in await parts.stores.event_log.refs(shard, 0, FOREVER)
        }
        [lane] = {ref.lane for ref in found - known}
        lanes.append(lane)
        known = found
    assert sorted(lanes[:3]) == [0, 1, 2]
    assert lanes[:3] == lanes[3:]


async def test_what_arrives_while_writes_are_under_way_goes_out_together(parts: Parts) -> None:
    commit = parts.group_commit(CommitLimits(commits_in_flight=2))
    release = parts.script.hold("event_log.append")
    settled = []
    for _ in range(20):
        settled.append(commit.write(NAMESPACE, events(parts, 1)))
        await settle()
        assert parts.script.in_flight["event_log.append"] <= 2
    assert parts.script.calls["event_log.append"] == 2
    release.set()
    assert await asyncio.gather(*settled) == [[]] * 20
    assert parts.script.calls["event_log.append"] == 3
    assert sorted(await parts.stored_events()) == [1, 1, 18]


async def test_a_commit_joins_one_that_is_under_way_only_if_that_is_slow(parts: Parts) -> None:
    commit = parts.group_commit(CommitLimits(commits_in_flight=3, overlap_after_ms=30.0))
    first, second, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        (second if first.is_set() else first).set()
        await ended.wait()
        closed: Closed = await call(segments)
        return closed

    parts.script.answers["event_log.append"] = append
    now_s = asyncio.get_running_loop().time
    began_s = now_s()
    settled = [commit.write(NAMESPACE, events(parts, 1))]
    await first.wait()
    settled += [commit.write(NAMESPACE, events(parts, 1)) for _ in range(2)]
    await second.wait()
    assert now_s() - began_s >= 0.029  # the loop's clock has milliseconds
    settled.append(commit.write(NAMESPACE, events(parts, 1)))
    ended.set()
    assert await asyncio.gather(*settled) == [[]] * 4
    assert sorted(await parts.stored_events()) == [1, 1, 2]


async def test_segments_are_cut_at_their_limit(parts: Parts) -> None:
    batch = [parts.event("views", at + 1, f"t{at}") for at in range(2 * SEGMENT_EVENTS_MAX + 10)]
    first = parts.commit.write(NAMESPACE, batch[:100])
    second = parts.commit.write(NAMESPACE, batch[100:])
    assert [await first, await second] == [[], []]
    shard = parts.shard("views")
    refs = await parts.stores.event_log.refs(shard, 0, FOREVER)
    counts = sorted(ref.event_count for ref in refs)
    assert counts == [10, SEGMENT_EVENTS_MAX, SEGMENT_EVENTS_MAX]
    bodies = await parts.stores.event_log.bodies(refs)
    found = [event for body in bodies if body is not None for event in decode(body)]
    assert sorted(found, key=lambda each: each.delta or 0) == batch


async def test_a_commit_carries_a_limited_number_of_segments(parts: Parts) -> None:
    commit = parts.group_commit(CommitLimits(commits_in_flight=1, segments_per_commit=4))
    sizes = []

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        sizes.append(len(segments))
        closed: Closed = await call(segments)
        return closed

    parts.script.answers["event_log.append"] = append
    batch = [parts.event("views", 1, age_ms=-100 * at) for at in range(100)]
    assert await commit.write(NAMESPACE, batch) == []
    assert sizes[:-1] == [4] * (len(sizes) - 1)
    assert len(sizes) > 2
    assert sum(await parts.stored_events()) == 100


async def test_a_window_that_closes_during_the_write_is_late(parts: Parts) -> None:
    """The close comes between the write and the read of the mark: nothing is acknowledged."""

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        await call(segments)
        await parts.close(parts.window)
        return await parts.stores.ledger.closed()

    parts.script.answers["event_log.append"] = append
    batch = events(parts, 3)
    assert await parts.commit.write(NAMESPACE, batch) == batch
    assert await parts.stored_events() == [3]  # it is there all the same: the fold decides
    assert parts.admission.closed_through == parts.window


async def test_only_the_events_of_closed_windows_are_late(parts: Parts) -> None:
    await parts.close(parts.window - 1)
    batch = [
        parts.event("views", 1, "a"),
        parts.event("views", 1, "b", age_ms=1_000),
        parts.event("plays", 1, "c"),
        parts.event("plays", 1, "d", age_ms=2_000),
        parts.event("views", 1, "e", age_ms=1_000),
    ]
    late = await parts.commit.write(NAMESPACE, batch)
    assert sorted(event.token for event in late) == ["b", "d", "e"]


async def test_a_late_call_does_not_make_its_company_late(parts: Parts) -> None:
    await parts.close(parts.window - 1)
    batch = events(parts, 2, age_ms=1_000)
    late = parts.commit.write(NAMESPACE, batch)
    in_time = parts.commit.write(NAMESPACE, events(parts, 2))
    assert [await late, await in_time] == [batch, []]
    assert parts.script.calls["event_log.append"] == 1


async def test_a_failure_fails_every_call_of_the_commit_and_no_other(parts: Parts) -> None:
    error = StoreUnavailable("the disk is away")

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        raise error

    parts.script.answers["event_log.append"] = append
    calls = [parts.commit.write(NAMESPACE, events(parts, 2)) for _ in range(3)]
    assert await asyncio.gather(*calls, return_exceptions=True) == [error] * 3
    del parts.script.answers["event_log.append"]
    assert await parts.commit.write(NAMESPACE, events(parts, 2)) == []


async def test_a_call_over_two_commits_fails_if_one_of_them_does(parts: Parts) -> None:
    commit = parts.group_commit(CommitLimits(commits_in_flight=1, segments_per_commit=1))
    error = StoreUnavailable("the disk is away")

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        if parts.script.calls["event_log.append"] == 2:
            raise error
        closed: Closed = await call(segments)
        return closed

    parts.script.answers["event_log.append"] = append
    batch = [parts.event("views", 1, age_ms=1_000 * at) for at in range(3)]
    with pytest.raises(StoreUnavailable):
        await commit.write(NAMESPACE, batch)
    await commit.drain()
    assert parts.script.calls["event_log.append"] == 3


async def test_a_full_queue_refuses_whole_calls_and_writes_nothing_of_them(parts: Parts) -> None:
    commit = parts.group_commit(CommitLimits(events_waiting_max=10))
    release = parts.script.hold("event_log.append")
    first = commit.write(NAMESPACE, events(parts, 4))
    await settle()
    second = commit.write(NAMESPACE, events(parts, 5))
    with pytest.raises(Overloaded, match="nothing of this call was written") as refused:
        commit.write(NAMESPACE, events(parts, 2))
    assert refused.value.retry_after_ms is not None
    third = commit.write(NAMESPACE, events(parts, 1))  # there is still room for one
    release.set()
    assert [await first, await second, await third] == [[], [], []]
    assert sum(await parts.stored_events()) == 10
    # And when they are written, there is room again; also after a failure.
    assert await commit.write(NAMESPACE, events(parts, 10)) == []


async def test_failed_events_make_room_too(parts: Parts) -> None:
    commit = parts.group_commit(CommitLimits(events_waiting_max=10))

    async def append(call: Any, segments: Sequence[Segment]) -> Closed:
        raise StoreUnavailable("the disk is away")

    parts.script.answers["event_log.append"] = append
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            await commit.write(NAMESPACE, events(parts, 10))


async def test_a_caller_that_goes_away_does_not_disturb_the_others(parts: Parts) -> None:
    release = parts.script.hold("event_log.append")
    leaving, staying = (
        parts.commit.write(NAMESPACE, events(parts, 2)),
        parts.commit.write(NAMESPACE, events(parts, 2)),
    )
    await settle()
    leaving.cancel()
    release.set()
    assert await staying == []
    assert await parts.stored_events() == [4]


async def test_drain_refuses_what_is_new_and_finishes_what_was_taken(parts: Parts) -> None:
    commit = parts.group_commit(CommitLimits(commits_in_flight=1))
    release = parts.script.hold("event_log.append")
    under_way = commit.write(NAMESPACE, events(parts, 1))
    await settle()
    waiting = commit.write(NAMESPACE, events(parts, 2))
    draining = asyncio.create_task(commit.drain())
    await settle()
    with pytest.raises(ShuttingDown):
        commit.write(NAMESPACE, events(parts, 1))
    assert not draining.done()
    release.set()
    await asyncio.wait_for(draining, 10)
    assert under_way.done()
    assert waiting.done()
    assert sorted(await parts.stored_events()) == [1, 2]


async def test_drain_of_an_idle_server(parts: Parts) -> None:
    await asyncio.wait_for(parts.commit.drain(), 10)


async def test_drain_in_the_turn_of_the_last_write(parts: Parts) -> None:
    settled = parts.commit.write(NAMESPACE, events(parts, 1))
    await asyncio.wait_for(parts.commit.drain(), 10)
    assert settled.done()


async def test_no_events_are_settled_at_once(parts: Parts) -> None:
    assert await asyncio.wait_for(parts.commit.write(NAMESPACE, []), 10) == []
    assert parts.script.calls["event_log.append"] == 0


async def test_every_answer_of_the_log_is_observed(parts: Parts) -> None:
    await parts.close(parts.window - 2)
    await parts.commit.write(NAMESPACE, events(parts, 1))
    assert parts.admission.closed_through == parts.window - 2
