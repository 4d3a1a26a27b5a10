"""EventLog: durable, idempotent, and every append brings the close mark that came after it."""

import asyncio
import random

import pytest

from counter.clock import ManualClock
from counter.events import Event
from counter.segments import SegmentRef
from counter.storage.ports import FOREVER
from counter.windows import Layout
from tests.stores import Stores, segment

FROM = 1_700_000_000  # the window in which the tests' clock starts
LAYOUT = Layout(from_window=FROM, window_ms=1_000, shards=4, lanes=3)


@pytest.fixture(autouse=True)
async def layout(stores: Stores) -> None:
    await stores.ledger.open_layout(LAYOUT)


def adds(*deltas: int) -> list[Event]:
    return [Event("views", FROM * 10**9 + at, f"t{at}", delta) for at, delta in enumerate(deltas)]


async def test_what_was_appended_is_read_back(stores: Stores) -> None:
    first, second = segment(adds(1, 2), window=FROM), segment(adds(-3), window=FROM + 1)
    await stores.event_log.append([first, second])
    assert await stores.event_log.refs(0, FROM, FROM + 1) == [first.ref, second.ref]
    assert await stores.event_log.bodies([second.ref, first.ref]) == [second.body, first.body]


async def test_small_and_large_segments_of_many_partitions_in_one_append(stores: Stores) -> None:
    sizes = [1, 2_000, *[3] * 20, 40, 40, 70, 500, 2_500]
    appended = [
        segment(adds(*range(1, size + 1)), window=FROM + at % 3, shard=at % 4)
        for at, size in enumerate(sizes)
    ]
    await stores.event_log.append(appended)
    found = [
        ref for shard in range(4) for ref in await stores.event_log.refs(shard, FROM, FROM + 2)
    ]
    assert sorted(found) == sorted(each.ref for each in appended)
    assert await stores.event_log.bodies([each.ref for each in appended]) == [
        each.body for each in appended
    ]


async def test_a_shard_is_read_from_all_lanes(stores: Stores) -> None:
    appended = [
        segment(adds(at + 1), window=FROM + at % 2, shard=at % 4, lane=at % 3, namespace_id=at % 5)
        for at in range(60)
    ]
    await stores.event_log.append(appended[:31])
    await stores.event_log.append(appended[31:])
    for shard in range(4):
        of_shard = [each for each in appended if each.ref.shard == shard]
        refs = await stores.event_log.refs(shard, FROM, FROM + 1)
        assert refs == sorted(each.ref for each in of_shard)
        bodies = dict(zip(refs, await stores.event_log.bodies(refs), strict=True))
        assert bodies == dict(of_shard)


async def test_more_than_one_mutation_of_a_partition_in_one_append(stores: Stores) -> None:
    many = [Event("views" * 50, FROM * 10**9 + at, f"t{at}", 1) for at in range(2_000)]
    appended = [segment(many, window=FROM) for _ in range(12)]  # some megabytes
    await stores.event_log.append(appended)
    refs = await stores.event_log.refs(0, FROM, FROM)
    assert refs == sorted(each.ref for each in appended)
    assert await stores.event_log.bodies(refs) == [dict(appended)[ref] for ref in refs]


async def test_append_is_idempotent_by_segment_id(stores: Stores) -> None:
    one, two = segment(adds(1), window=FROM), segment(adds(2), window=FROM)
    await stores.event_log.append([one])
    await stores.event_log.append([one, two])
    await stores.event_log.append([two, two])
    assert await stores.event_log.refs(0, FROM, FROM) == sorted([one.ref, two.ref])


async def test_append_of_nothing_answers_the_close_mark(stores: Stores, clock: ManualClock) -> None:
    closed = await stores.event_log.append([])
    assert (closed.through, closed.store_time_ns) == (FROM - 1, clock.now_ns())


async def test_append_brings_the_close_mark_and_the_store_clock(
    stores: Stores, clock: ManualClock
) -> None:
    closed = await stores.event_log.append([segment(adds(1), window=FROM)])
    assert (closed.through, closed.store_time_ns) == (FROM - 1, clock.now_ns())
    await stores.ledger.close(FROM + 7)
    clock.advance_ms(123)
    closed = await stores.event_log.append([segment(adds(1), window=FROM)])
    assert (closed.through, closed.store_time_ns) == (FROM + 7, clock.now_ns())


async def test_append_never_answers_older_than_a_close_that_returned_before(stores: Stores) -> None:
    """The exactness of every add rests on this, so it is tried with many of both at once."""
    returned = FROM - 1

    async def close(window: int) -> None:
        nonlocal returned
        await stores.ledger.close(window)
        returned = max(returned, window)

    async def append(window: int) -> None:
        before = returned
        closed = await stores.event_log.append([segment(adds(1), window=window)])
        assert closed.through >= before

    work = [close(FROM + at) for at in range(30)] + [append(FROM + at) for at in range(100)]
    random.Random(7).shuffle(work)
    for start in range(0, len(work), 10):
        await asyncio.gather(*work[start : start + 10])
    assert (await stores.ledger.closed()).through == FROM + 29


async def test_a_log_read_after_a_close_sees_every_append_that_saw_the_window_open(
    stores: Stores,
) -> None:
    """What the closing protocol needs, in the words of the proof."""
    acknowledged: dict[int, set[bytes]] = {}

    async def append(window: int) -> None:
        written = segment(adds(1), window=window)
        closed = await stores.event_log.append([written])
        if closed.through < window:
            acknowledged.setdefault(window, set()).add(written.ref.segment_id)

    async def close_and_read(window: int) -> None:
        await stores.ledger.close(window)
        seen = {ref.segment_id for ref in await stores.event_log.refs(0, window, window)}
        await asyncio.gather(*(append(window) for _ in range(3)))
        assert acknowledged.get(window, set()) <= seen

    for window in range(FROM, FROM + 20):
        writers = [asyncio.create_task(append(window)) for _ in range(5)]
        await asyncio.gather(close_and_read(window), *writers)
        assert acknowledged.get(window, set()) <= {
            ref.segment_id for ref in await stores.event_log.refs(0, window, window)
        }


async def test_refs_are_sorted_and_the_range_is_inclusive(stores: Stores) -> None:
    written = [
        segment(adds(1), window=FROM + window, namespace_id=namespace_id, shard=1)
        for window in range(5)
        for namespace_id in (2, 1, 300)
        for _ in range(3)
    ]
    random.Random(1).shuffle(written)
    for each in written:
        await stores.event_log.append([each])
    refs = await stores.event_log.refs(1, FROM + 1, FROM + 3)
    wanted = [each.ref for each in written if FROM + 1 <= each.ref.window <= FROM + 3]
    assert refs == sorted(wanted)
    assert all(isinstance(ref, SegmentRef) for ref in refs)
    order = [(ref.window, ref.namespace_id, ref.segment_id) for ref in refs]
    assert order == sorted(order)


async def test_refs_are_of_one_shard(stores: Stores) -> None:
    written = [segment(adds(1), window=FROM, shard=shard) for shard in range(4)]
    await stores.event_log.append(written)
    for shard in range(4):
        assert await stores.event_log.refs(shard, 0, FOREVER) == [written[shard].ref]


async def test_refs_of_an_empty_range(stores: Stores) -> None:
    await stores.event_log.append([segment(adds(1), window=FROM)])
    assert await stores.event_log.refs(0, FROM + 1, FROM + 9) == []
    assert await stores.event_log.refs(0, FROM, FROM - 1) == []


async def test_refs_sees_every_append_that_returned_before(stores: Stores) -> None:
    async def append_then_look() -> None:
        written = segment(adds(1), window=FROM)
        await stores.event_log.append([written])
        assert written.ref in await stores.event_log.refs(0, FROM, FROM)

    await asyncio.gather(*(append_then_look() for _ in range(50)))


async def test_bodies_come_in_the_order_asked_with_none_for_what_is_missing(stores: Stores) -> None:
    written = [segment(adds(at), window=FROM + at % 3, shard=at % 4) for at in range(1, 20)]
    never = segment(adds(99), window=FROM)
    await stores.event_log.append(written)
    asked = [*reversed(written), never, written[0], written[0]]
    bodies = await stores.event_log.bodies([each.ref for each in asked])
    assert bodies == [None if each is never else each.body for each in asked]
    assert await stores.event_log.bodies([]) == []


async def test_more_than_a_thousand_segments_in_one_append(stores: Stores) -> None:
    written = [segment(adds(at), window=FROM + at % 7) for at in range(1, 1_301)]
    await stores.event_log.append(written)
    refs = await stores.event_log.refs(0, FROM, FROM + 7)
    assert refs == sorted(each.ref for each in written)
    bodies = {each.ref: each.body for each in written}
    assert await stores.event_log.bodies(refs) == [bodies[ref] for ref in refs]


async def test_a_body_of_a_mebibyte(stores: Stores) -> None:
    large = segment(adds(1), window=FROM)._replace(body=b"\x00\xff" * 2**19)
    await stores.event_log.append([large])
    assert await stores.event_log.bodies([large.ref]) == [large.body]


async def test_drop_through_is_repeated_until_0_and_forgets_no_later_window(stores: Stores) -> None:
    old = [
        segment(adds(1), window=FROM + window, shard=shard)
        for window in range(3)
        for shard in range(4)
        for _ in range(60)
    ]
    young = [segment(adds(1), window=FROM + 3, shard=shard) for shard in range(4)]
    await stores.event_log.append([*old, *young])
    dropped = []
    while count := await stores.event_log.drop_through(FROM + 2):
        dropped.append(count)
        assert len(dropped) <= len(old)
    for shard in range(4):
        assert young[shard].ref in await stores.event_log.refs(shard, 0, FOREVER)
    assert await stores.event_log.bodies([young[0].ref]) == [young[0].body]
    if stores.expires_by_itself:
        assert dropped == []
    else:
        assert sum(dropped) == len(old)
        for shard in range(4):
            assert await stores.event_log.refs(shard, 0, FOREVER) == [young[shard].ref]
        assert await stores.event_log.bodies([old[0].ref]) == [None]
    assert await stores.event_log.drop_through(FROM - 1) == 0
