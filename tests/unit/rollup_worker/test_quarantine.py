"""Quarantine: only what cannot be read and is not decided yet can be set aside, and then the shard
goes on."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from counter.errors import (
    FoldPending,
    InvalidRequest,
    SegmentAgreed,
    SegmentReadable,
    SegmentUnknown,
)
from counter.segments import SegmentRef
from rollup_worker.quarantine import Quarantine
from tests.stores import KEEPING, Stores, segment
from tests.unit.rollup_worker.audits import audit_of, shard_in, unreadable
from tests.unit.rollup_worker.world import World

keeping = pytest.mark.parametrize("stores", KEEPING, indirect=True)


def quarantine_of(world: World, event_log: Any = None) -> Quarantine:
    stores: Stores = world.stores
    return Quarantine(event_log or stores.event_log, stores.ledger, world.layout, world.clock)


async def damaged(world: World, counter: str = "views") -> SegmentRef:
    """A segment that cannot be read, in a window that is still open."""
    now_ns = world.clock.now_ns()
    whole = segment(
        [],
        window=world.layout.window_of(now_ns),
        shard=shard_in(world, counter),
        namespace_id=world.id_of("plays"),
    )
    ref = whole.ref._replace(event_count=3)
    await world.stores.event_log.append([whole._replace(ref=ref, body=b"\x01damage")])
    return ref


async def test_a_shard_goes_on_after_it(world: World) -> None:
    await world.write("views", 5)
    ref = await damaged(world)
    world.clock.advance_ms(7_000)
    parts = world.worker()
    await parts.worker.round()
    problem = parts.worker.problem()
    assert problem is not None
    assert ref.segment_id.hex() in problem
    watermark = (await world.stores.ledger.watermarks())[ref.shard]
    assert watermark < ref.window
    with capture_logs() as logs:
        found = await quarantine_of(world).set_aside(ref.segment_id.hex().upper(), "oncall", "disk")
    assert found == ref
    [said] = logs
    assert said["action"] == "segment_set_aside"
    assert (said["author"], said["reason"], said["events"]) == ("oncall", "disk", 3)
    fresh = world.worker()
    await fresh.worker.round()
    assert fresh.worker.problem() is None
    assert await world.rollups() == world.expected()
    [record] = [each for each in await world.records(ref.shard) if each.set_aside]
    [decision] = record.set_aside
    assert (decision.segment, decision.author, decision.reason) == (ref, "oncall", "disk")
    assert ref not in record.segments
    window = await audit_of(world).window(ref.shard, world.layout.start_ns(ref.window))
    assert (window.is_different, window.late_segments, window.equal) == (False, 0, 1)
    assert window.check.record.set_aside == (decision,)
    # It is folded now: there is nothing left to decide.
    with pytest.raises(SegmentUnknown):
        await quarantine_of(world).set_aside(ref.segment_id.hex(), "oncall", "disk")


async def test_the_first_decision_stays(world: World) -> None:
    ref = await damaged(world)
    world.clock.advance_ms(7_000)
    await world.worker().closer.close_due()
    quarantine = quarantine_of(world)
    await quarantine.set_aside(ref.segment_id.hex(), "oncall", "first")
    await quarantine.set_aside(ref.segment_id.hex(), "release", "second")
    [decision] = await world.stores.ledger.set_asides(ref.shard)
    assert (decision.author, decision.reason) == ("oncall", "first")


@keeping
async def test_what_cannot_be_set_aside(world: World) -> None:
    quarantine = quarantine_of(world)
    with pytest.raises(SegmentUnknown):
        await quarantine.set_aside("0" * 32, "oncall", "why")
    ref = await damaged(world)
    with pytest.raises(FoldPending):
        await quarantine.set_aside(ref.segment_id.hex(), "oncall", "why")
    event = await world.write("views", 5)
    world.clock.advance_ms(7_000)
    await world.worker().closer.close_due()
    window = world.layout.window_of(event.time_ns)
    refs = await world.stores.event_log.refs(ref.shard, window, window)
    [readable] = [each for each in refs if each != ref]
    with pytest.raises(SegmentReadable):
        await quarantine.set_aside(readable.segment_id.hex(), "oncall", "why")
    assert await world.stores.ledger.set_asides(ref.shard) == []


@keeping
async def test_a_segment_that_a_record_names_cannot_be_set_aside(world: World) -> None:
    """It was damaged after the record was agreed on, and before its rollups were written."""
    await world.write("views", 5)
    shard = shard_in(world, "views")
    world.clock.advance_ms(7_000)
    closed_through = await world.worker().closer.close_due()
    [ref] = await world.stores.event_log.refs(shard, 0, closed_through)
    record = await world.worker().rollup._proposal(
        shard, world.layout.from_window - 1, closed_through, 1_000
    )
    assert record is not None
    await world.stores.ledger.propose(record)
    event_log = unreadable(ref.segment_id).wrap("event_log", world.stores.event_log)
    with pytest.raises(SegmentAgreed, match="restore"):
        await quarantine_of(world, event_log).set_aside(ref.segment_id.hex(), "oncall", "why")


@keeping
async def test_it_is_found_however_far_folds_are_behind(world: World) -> None:
    ref = await damaged(world)
    world.clock.advance_ms(2_000_000)
    ref_later = await damaged(world)
    world.clock.advance_ms(7_000)
    await world.worker().closer.close_due()
    for each in (ref, ref_later):
        assert await quarantine_of(world).set_aside(each.segment_id.hex(), "oncall", "why") == each


@keeping
@pytest.mark.parametrize(
    ("segment_id", "author", "reason", "expected"),
    [
        ("", "oncall", "why", ("SEGMENT_MALFORMED", "segment_id")),
        ("0" * 31, "oncall", "why", ("SEGMENT_MALFORMED", "segment_id")),
        ("0" * 33, "oncall", "why", ("SEGMENT_MALFORMED", "segment_id")),
        ("x" * 32, "oncall", "why", ("SEGMENT_MALFORMED", "segment_id")),
        ("0" * 32 + "\n", "oncall", "why", ("SEGMENT_MALFORMED", "segment_id")),
        ("0" * 32, "", "why", ("NOTE_MALFORMED", "author")),
        ("0" * 32, "a" * 101, "why", ("NOTE_MALFORMED", "author")),
        ("0" * 32, "oncall", "  ", ("NOTE_MALFORMED", "reason")),
        ("0" * 32, "oncall", "w" * 501, ("NOTE_MALFORMED", "reason")),
    ],
)
async def test_malformed_requests(
    world: World, segment_id: str, author: str, reason: str, expected: tuple[str, str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await quarantine_of(world).set_aside(segment_id, author, reason)
    assert (caught.value.reason, caught.value.field) == expected
