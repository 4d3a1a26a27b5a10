"""Late tokens: applied, not applied, not decided yet or no longer known; never a guess (I7)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import counter_server.late
from counter.clock import NS_PER_S
from counter.errors import (
    FoldPending,
    Overloaded,
    StoreUnavailable,
    TallyError,
    TokenExpired,
    TokenTooOld,
)
from counter.events import Event
from counter.rollups import FoldRecord
from counter.storage.ports import FOREVER
from counter_server.late import TokenStatus
from tests.tampered import settle
from tests.unit.counter_server.parts import Parts, no_error_is_left_over

AGE_MS = 3_000


async def outcome(parts: Parts, event: Event, wait_s: float = 0) -> bool | TallyError:
    [found] = await parts.late.settle(parts.namespace.id, [event], wait_s=wait_s)
    return found


async def test_a_token_in_the_fold_is_a_duplicate(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.fold_through(parts.window - 1)
    assert await outcome(parts, event) is True
    # Its identity is counter, time and token; not the delta.
    assert await outcome(parts, Event("views", event.time_ns, "t", 9)) is True
    assert await parts.late.status(parts.namespace.id, event) is TokenStatus.APPLIED


async def test_a_token_that_is_not_in_the_fold_never_will_be(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.fold_through(parts.window - 1)
    for other in (
        Event("views", event.time_ns, "u", 5),
        Event("views", event.time_ns + 1, "t", 5),
        Event(parts.counters(parts.shard("views"), 1)[0], event.time_ns, "t", 5),
    ):
        refused = await outcome(parts, other)
        assert isinstance(refused, TokenExpired)
        assert refused.server_time_ns == parts.clock.now_ns()
        status = await parts.late.status(parts.namespace.id, other)
        assert status is TokenStatus.NOT_APPLIED


async def test_another_namespace_is_another_event(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.fold_through(parts.window - 1)
    [refused] = await parts.late.settle(parts.namespace.id + 1, [event], wait_s=0)
    assert isinstance(refused, TokenExpired)


async def test_a_segment_that_landed_after_the_fold_was_not_applied(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.fold_through(parts.window - 1)
    await parts.write(event)
    assert isinstance(await outcome(parts, event), TokenExpired)


async def test_a_fold_that_is_still_to_come_is_waited_for(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.close(parts.window - 1)
    assert await parts.late.status(parts.namespace.id, event) is TokenStatus.PENDING
    waiting = asyncio.create_task(outcome(parts, event, wait_s=30))
    await settle()
    assert not waiting.done()
    await parts.fold_through(parts.window - 1)
    assert await asyncio.wait_for(waiting, 10) is True


async def test_a_fold_that_does_not_come_in_time_is_pending(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.close(parts.window - 1)
    for wait_s in (0, 0.01):
        pending = await outcome(parts, event, wait_s=wait_s)
        assert isinstance(pending, FoldPending)
        assert pending.retry_after_ms is not None


async def test_a_record_decides_before_its_rollups_are_written(parts: Parts) -> None:
    """The record is the commit point; the watermark comes later."""
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.close(parts.window - 1)
    shard = parts.shard("views")
    refs = await parts.stores.event_log.refs(shard, 0, FOREVER)
    await parts.stores.ledger.propose(
        FoldRecord(
            shard=shard,
            from_window=parts.layout.from_window,
            to_window=parts.window - 1,
            segments=tuple(refs),
            event_count=1,
            namespaces_version=1,
        )
    )
    assert await outcome(parts, event) is True


async def test_a_record_that_is_gone_is_no_longer_known(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.fold_through(parts.window - 1)
    while await parts.stores.ledger.drop_folds_through(parts.window):
        pass
    assert isinstance(await outcome(parts, event), TokenTooOld)
    with pytest.raises(TokenTooOld):
        await parts.late.status(parts.namespace.id, event)


async def test_a_segment_that_is_gone_is_no_longer_known(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.fold_through(parts.window - 1)
    while await parts.stores.event_log.drop_through(parts.window):
        pass
    assert isinstance(await outcome(parts, event), TokenTooOld)
    # Also of a token that was never written: its partition cannot be read any more.
    assert isinstance(await outcome(parts, Event("views", event.time_ns, "u", 1)), TokenTooOld)


async def test_a_window_before_the_store_was_created_holds_nothing(parts: Parts) -> None:
    before_ns = parts.layout.start_ns(parts.layout.from_window) - 1
    assert isinstance(await outcome(parts, Event("views", before_ns, "t", 1)), TokenExpired)
    first_ns = parts.layout.start_ns(parts.layout.from_window)
    assert isinstance(await outcome(parts, Event("views", first_ns, "t", 1)), FoldPending)


async def test_each_event_of_a_batch_has_its_own_outcome(parts: Parts) -> None:
    applied = parts.event("views", 5, "a", age_ms=AGE_MS)
    other_shard = parts.event(parts.counters(1 - parts.shard("views"), 1)[0], 5, "b", age_ms=2_000)
    await parts.write(applied, other_shard)
    await parts.fold_through(parts.window - 1)
    await parts.close(parts.window)
    batch = [
        applied,
        parts.event("views", 5, "never", age_ms=AGE_MS),
        parts.event("views", 5, "pending"),
        other_shard,
        applied,
    ]
    found = await parts.late.settle(parts.namespace.id, batch, wait_s=0)
    kinds = [each if each is True else type(each) for each in found]
    assert kinds == [True, TokenExpired, FoldPending, True, True]


async def test_look_ups_of_one_partition_are_shared_and_kept(parts: Parts) -> None:
    batch = [parts.event("views", 1, f"t{at}", age_ms=AGE_MS) for at in range(5)]
    await parts.write(*batch)
    await parts.fold_through(parts.window - 1)
    release = parts.script.hold("event_log.bodies")
    asking = [asyncio.create_task(outcome(parts, event)) for event in batch for _ in range(10)]
    await settle()
    release.set()
    assert await asyncio.gather(*asking) == [True] * 50
    assert parts.script.calls["event_log.bodies"] == 1
    assert parts.script.calls["ledger.folds"] == 1
    assert await outcome(parts, batch[0]) is True
    assert parts.script.calls["event_log.bodies"] == 1


async def test_what_is_kept_is_bounded(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_server.late, "EVENTS_KEPT_MAX", 3)
    small = type(parts.late)(parts.log, parts.ledger, parts.layout, parts.clock)
    crowd = [parts.event("views", 1, f"t{at}", age_ms=AGE_MS) for at in range(3)]
    few = [parts.event("views", 1, f"t{at}", age_ms=2_000) for at in range(2)]
    await parts.write(*crowd, *few)
    await parts.fold_through(parts.window - 1)
    for _ in range(2):
        for batch in (crowd, few):
            assert await small.settle(parts.namespace.id, batch, wait_s=0) == [True] * len(batch)
    # The large partition is read each time, the small one once.
    assert parts.script.calls["event_log.bodies"] == 3


async def test_an_undecided_partition_is_asked_for_again(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    assert isinstance(await outcome(parts, event), FoldPending)
    await parts.fold_through(parts.window - 1)
    assert await outcome(parts, event) is True


async def test_too_many_look_ups_at_once_are_refused(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_server.late, "LOOKUPS_IN_FLIGHT_MAX", 2)
    batch = [parts.event("views", 1, age_ms=1_000 * at) for at in (1, 2, 3)]
    await parts.write(*batch)
    await parts.fold_through(parts.window - 1)
    release = parts.script.hold("event_log.bodies")
    asking = [asyncio.create_task(outcome(parts, event)) for event in batch]
    await settle()
    refused = await asking[2]
    assert isinstance(refused, Overloaded)
    assert refused.retry_after_ms is not None
    # Who asks for a partition that is being read already is not refused.
    shared = asyncio.create_task(outcome(parts, batch[0]))
    await settle()
    release.set()
    assert await asyncio.gather(*asking[:2], shared) == [True] * 3
    assert await outcome(parts, batch[2]) is True


async def test_a_caller_that_goes_away_does_not_end_the_look_up_of_the_others(
    parts: Parts,
) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.fold_through(parts.window - 1)
    release = parts.script.hold("event_log.bodies")
    leaving, staying = (
        asyncio.create_task(outcome(parts, event)),
        asyncio.create_task(outcome(parts, event)),
    )
    await settle()
    leaving.cancel()
    await settle()
    release.set()
    assert await staying is True
    assert leaving.cancelled()
    assert parts.script.calls["event_log.bodies"] == 1


async def test_a_look_up_that_fails_when_its_callers_are_gone(parts: Parts) -> None:
    async def fail(*_: Any) -> None:
        raise StoreUnavailable("away", retry_after_ms=1)

    parts.script.answers["ledger.watermarks"] = fail
    release = parts.script.hold("ledger.watermarks")
    with no_error_is_left_over():
        asking = asyncio.create_task(outcome(parts, parts.event("views", age_ms=AGE_MS)))
        await settle()
        assert parts.script.in_flight["ledger.watermarks"] == 1
        asking.cancel()
        del asking  # or it would keep what it waited for
        await settle()
        release.set()
        await settle()
        assert parts.script.in_flight["ledger.watermarks"] == 0


async def test_a_store_that_fails_is_an_outcome_that_is_not_kept(parts: Parts) -> None:
    event = parts.event("views", 5, age_ms=AGE_MS)
    await parts.write(event)
    await parts.fold_through(parts.window - 1)

    async def bodies(call: Any, refs: Sequence[Any]) -> list[bytes | None]:
        raise StoreUnavailable("the disk is away")

    parts.script.answers["event_log.bodies"] = bodies
    assert isinstance(await outcome(parts, event), StoreUnavailable)
    del parts.script.answers["event_log.bodies"]
    assert await outcome(parts, event) is True


async def test_a_token_far_in_the_past_is_no_trouble_for_the_store(parts: Parts) -> None:
    for time_ns in (0, 1, 86_400 * NS_PER_S):
        assert isinstance(await outcome(parts, Event("views", time_ns, "t", 1)), TokenExpired)
