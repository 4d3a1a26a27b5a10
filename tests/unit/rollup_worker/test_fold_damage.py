"""Segments that cannot be read, records whose segments changed, and corrections."""

import secrets

import pytest

from counter.digest import Digest
from counter.errors import SegmentDamaged, StoreDamaged
from counter.events import Event
from counter.rollups import FoldRecord, SetAside
from counter.segments import Segment, SegmentRef, encode
from tests.stores import segment, shard_of
from tests.unit.rollup_worker.world import World


async def _write_damaged(world: World, counter: str) -> SegmentRef:
    """A segment whose body does not fit its checksum."""
    namespace_id, now_ns = world.id_of("plays"), world.clock.now_ns()
    shard = shard_of(namespace_id, counter, world.layout.shards)
    ref, body = segment(
        [Event(counter, now_ns, secrets.token_hex(8), 1)],
        window=world.layout.window_of(now_ns),
        shard=shard,
        namespace_id=namespace_id,
    )
    await world.stores.event_log.append([Segment(ref, body[:-1] + bytes([body[-1] ^ 1]))])
    return ref


def _counter_of(world: World, shard: int) -> str:
    names = (f"counter {number}" for number in range(100))
    return next(name for name in names if shard_of(world.id_of("plays"), name, 2) == shard)


async def test_a_damaged_segment_stops_its_shard_alone_and_nothing_is_decided(
    world: World,
) -> None:
    damaged = await _write_damaged(world, _counter_of(world, 0))
    await world.write(_counter_of(world, 0), 5)
    await world.write(_counter_of(world, 1), 7)
    world.clock.advance_ms(10_000)
    before = await world.stores.ledger.watermarks()
    parts = world.worker()
    await parts.worker.round()
    watermarks = await world.stores.ledger.watermarks()
    assert watermarks[0] == before[0]
    assert watermarks[1] > before[1]
    assert await world.records(0) == []
    problem = parts.worker.problem()
    assert problem is not None
    assert damaged.segment_id.hex() in problem
    assert f"tally quarantine {damaged.segment_id.hex()}" in problem


async def test_a_segment_that_was_set_aside_does_not_count_and_the_record_says_who_decided(
    world: World,
) -> None:
    counter = _counter_of(world, 0)
    damaged = await _write_damaged(world, counter)
    await world.write(counter, 5)
    world.clock.advance_ms(10_000)
    parts = world.worker()
    closed_through = await parts.closer.close_due()
    with pytest.raises(SegmentDamaged) as caught:
        await parts.pass_over(0, closed_through)
    assert caught.value.segment_id == damaged.segment_id
    decision = SetAside(damaged, "oncall", "disk of node 2 was lost", world.clock.now_ns())
    await world.stores.ledger.set_aside(decision)
    await parts.pass_over(0, closed_through)
    [record] = await world.records(0)
    assert record.set_aside == (decision,)
    assert damaged not in record.segments
    assert record.event_count == 1
    assert (await world.rollups())[world.id_of("plays"), counter] == (5, 0, 0)
    # Decisions about segments that are folded change nothing.
    await world.write(counter, 2)
    await world.fold_all()
    await world.check()


async def test_a_decision_about_another_segment_does_not_help(world: World) -> None:
    counter = _counter_of(world, 0)
    await _write_damaged(world, counter)
    other = await _write_damaged(world, counter)
    await world.stores.ledger.set_aside(SetAside(other, "oncall", "lost", 1))
    world.clock.advance_ms(10_000)
    parts = world.worker()
    closed_through = await parts.closer.close_due()
    # Whichever comes first in the order of ids stops the pass, with or without a decision.
    with pytest.raises(SegmentDamaged):
        await parts.pass_over(0, closed_through)
    assert await world.records(0) == []


async def test_every_record_has_the_digest_of_its_segments(world: World) -> None:
    for number in range(20):
        event = await world.write(f"counter {number % 3}", number + 1)
        if number % 5 == 0:
            await world.write(event.counter, 1, time_ns=event.time_ns, token=event.token)
        world.clock.advance_ms(700)
    await world.fold_all()
    for shard in range(world.layout.shards):
        for record in await world.records(shard):
            digest = Digest()
            for ref, body in zip(
                record.segments,
                await world.stores.event_log.bodies(record.segments),
                strict=True,
            ):
                assert body is not None
                digest.add(ref.namespace_id, body)
            assert record.digest == digest.value()


async def _decide(world: World, counter: str, digest: bytes) -> int:
    """One event, and a record of it by a worker that did not finish; how far windows are closed."""
    await world.write(counter, 5)
    world.clock.advance_ms(10_000)
    closed_through = await world.worker().closer.close_due()
    refs = await world.stores.event_log.refs(0, world.layout.from_window, closed_through)
    await world.stores.ledger.propose(
        FoldRecord(
            shard=0,
            from_window=world.layout.from_window,
            to_window=closed_through,
            segments=tuple(refs),
            event_count=1,
            namespaces_version=world.snapshot.version,
            digest=digest,
        )
    )
    return closed_through


async def test_a_record_whose_segments_changed_since_is_not_folded(world: World) -> None:
    counter = _counter_of(world, 0)
    digest = Digest()
    digest.add(world.id_of("plays"), encode([Event(counter, 1, "another", 5)]))
    closed_through = await _decide(world, counter, digest.value())
    with pytest.raises(StoreDamaged, match="not what its fold record says"):
        await world.worker().pass_over(0, closed_through)


@pytest.mark.parametrize("digest", [b"", b"d" * 16])
async def test_a_record_of_an_earlier_build_is_folded(world: World, digest: bytes) -> None:
    """They had no digest, and then one of events."""
    counter = _counter_of(world, 0)
    closed_through = await _decide(world, counter, digest)
    result = await world.worker().pass_over(0, closed_through)
    assert result.events == 1
    assert (await world.rollups())[world.id_of("plays"), counter] == (5, 0, 0)


async def test_a_correction_counts_once_and_is_written_down(world: World) -> None:
    counter = _counter_of(world, 0)
    namespace_id, now_ns = world.id_of("plays"), world.clock.now_ns()
    await world.write(counter, 5)
    correction = Event(
        counter, now_ns, "correction", -2, ("oncall", "counted twice by a broken job")
    )
    window = world.layout.window_of(now_ns)
    for _ in range(2):  # and a retry of it
        written = segment([correction], window=window, shard=0, namespace_id=namespace_id)
        await world.stores.event_log.append([written])
    world.acknowledged[namespace_id, counter][now_ns, "correction"] = -2
    await world.fold_all()
    await world.check()
    [kept] = await world.stores.history_store.adjustments(namespace_id, counter, 0, 2**62, limit=10)
    assert (kept.time_ns, kept.token, kept.delta) == (now_ns, "correction", -2)
    assert (kept.author, kept.reason) == ("oncall", "counted twice by a broken job")
