"""AuditWindow: a fold record against its segments and its counters."""

import pytest

from counter.errors import FoldPending, HistoryTooOld, InvalidRequest
from rollup_worker.audit import audit as audit_module
from tests.stores import KEEPING
from tests.unit.rollup_worker.audits import (
    apply,
    audit_of,
    doubled,
    live,
    lost,
    rewrite,
    row_of,
    shard_in,
    unreadable,
)
from tests.unit.rollup_worker.world import COUNTERS, PLATFORM, World

keeping = pytest.mark.parametrize("stores", KEEPING, indirect=True)


async def test_a_window_that_is_right(world: World) -> None:
    await live(world, COUNTERS, seed=1, events=40)
    audit = audit_of(world)
    counters = 0
    for shard in range(world.layout.shards):
        for record in await world.records(shard):
            found = await audit.window(shard, world.layout.start_ns(record.to_window))
            assert found.check.record == record
            assert not found.is_different
            assert found.differences == []
            assert (found.check.events, found.check.digest) == (record.event_count, record.digest)
            assert len(record.digest) == 17
            assert (found.different, found.without_base, found.late_segments) == (0, 0, 0)
            assert found.equal <= len(record.segments)
            assert (found.equal > 0) == (record.event_count > 0)
            counters += found.equal
    assert counters >= len(COUNTERS)


async def test_what_is_wrong_with_a_window(world: World) -> None:
    for counter in COUNTERS:
        await world.write(counter, 10)
    await world.fold_all()
    shard = shard_in(world, COUNTERS[0])
    [record] = [each for each in await world.records(shard) if each.segments]
    ref = record.segments[0]
    time_ns = world.layout.start_ns(ref.window)
    for tamper in (doubled, unreadable, lost):
        found = await audit_of(world, tamper(ref.segment_id).wrap).window(shard, time_ns)
        assert found.is_different
        of_segments = [each for each in found.differences if each.kind.value == "segments"]
        assert len(of_segments) == 1, tamper
        if tamper is doubled:
            assert found.check.digest != record.digest
            assert found.different == 1
            assert found.equal == len(record.segments) - 1
            assert any("counter " in each.message for each in found.differences)


@keeping
async def test_a_wrong_counter_makes_its_window_different(world: World) -> None:
    for counter in COUNTERS:
        await world.write(counter, 10)
    await world.fold_all()
    await rewrite(world, COUNTERS[0], count=11)
    window = (await row_of(world, COUNTERS[0])).changed_window
    found = await audit_of(world).window(
        shard_in(world, COUNTERS[0]), world.layout.start_ns(window)
    )
    assert (found.is_different, found.different) == (True, 1)
    [difference] = found.differences
    assert (difference.expected, difference.actual) == (10, 11)
    assert COUNTERS[0] in difference.message


async def test_late_segments_are_counted_and_are_no_difference(world: World) -> None:
    event = await world.write("views", 5)
    await world.fold_all()
    await world.write("views", 100, time_ns=event.time_ns, token="late")
    found = await audit_of(world).window(shard_in(world, "views"), event.time_ns)
    assert (found.late_segments, found.is_different, found.equal) == (1, False, 1)


@keeping
async def test_a_window_that_cannot_be_audited(world: World) -> None:
    event = await world.write("views", 5)
    shard = shard_in(world, "views")
    audit = audit_of(world)
    with pytest.raises(FoldPending):
        await audit.window(shard, event.time_ns)
    await world.fold_all()
    await audit.window(shard, event.time_ns)
    for unknown in (-1, world.layout.shards):
        with pytest.raises(InvalidRequest, match="no shard") as caught:
            await audit.window(unknown, event.time_ns)
        assert (caught.value.reason, caught.value.field) == ("SHARD_UNKNOWN", "shard")
    with pytest.raises(HistoryTooOld):
        await audit.window(shard, world.layout.start_ns(world.layout.from_window) - 1)
    world.clock.advance_ms(PLATFORM.log_retention_s * 1_000)
    await world.fold_all()
    await world.worker().retention.forget()  # the segments, and not yet their records
    with pytest.raises(HistoryTooOld):
        await audit.window(shard, event.time_ns)


@keeping
async def test_counters_without_a_base_are_counted_as_such(world: World) -> None:
    await apply(world, ())
    await world.write("views", 5)
    await world.fold_all()
    world.clock.advance_ms(PLATFORM.log_retention_s * 1_000)
    event = await world.write("views", 5)
    await world.fold_all()
    await world.worker().retention.forget()
    found = await audit_of(world).window(shard_in(world, "views"), event.time_ns)
    assert (found.equal, found.different, found.without_base) == (0, 0, 1)
    assert not found.is_different


@keeping
async def test_only_so_many_counters_of_a_window(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "COUNTERS_PER_WINDOW_MAX", 2)
    for counter in COUNTERS:
        event = await world.write(counter, 10)
    await world.fold_all()
    found = await audit_of(world).window(shard_in(world, COUNTERS[0]), event.time_ns)
    assert found.check.events > 2
    assert found.equal == 2
