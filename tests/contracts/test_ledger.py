"""Ledger: what was decided stays decided, and marks only go forward."""

import asyncio
import random
import secrets

import pytest

from counter.clock import ManualClock
from counter.rollups import FoldRecord, SetAside
from counter.segments import SegmentRef
from counter.storage.ports import FOREVER
from counter.windows import Layout
from tests.stores import Stores

FROM = 1_700_000_000  # the window in which the tests' clock starts
LAYOUT = Layout(from_window=FROM, window_ms=1_000, shards=4)


@pytest.fixture(autouse=True)
async def layout(stores: Stores) -> None:
    assert await stores.ledger.open_layout(LAYOUT) == LAYOUT


def record(from_window: int, to_window: int, *, shard: int = 0, segments: int = 1) -> FoldRecord:
    refs = sorted(
        SegmentRef(from_window, 1, secrets.token_bytes(16), 2, shard, 0) for _ in range(segments)
    )
    return FoldRecord(
        shard=shard,
        from_window=from_window,
        to_window=to_window,
        segments=tuple(refs),
        event_count=2 * segments,
        namespaces_version=3,
    )


def decision(segment: SegmentRef, *, author: str = "oncall") -> SetAside:
    return SetAside(segment, author, "checksum “wrong” 🎬", 1_700_000_000_123_456_789)


async def test_the_first_layout_holds(stores: Stores) -> None:
    other = Layout(from_window=5, window_ms=10, shards=2, lanes=3)
    assert await stores.ledger.open_layout(other) == LAYOUT


async def test_a_new_store_starts_before_its_first_window(
    stores: Stores, clock: ManualClock
) -> None:
    closed = await stores.ledger.closed()
    assert (closed.through, closed.store_time_ns) == (FROM - 1, clock.now_ns())
    assert await stores.ledger.watermarks() == [FROM - 1] * 4
    assert await stores.ledger.folds(0, 0, FOREVER) == []


async def test_closed_brings_the_store_clock(stores: Stores, clock: ManualClock) -> None:
    clock.advance_ms(5_000)
    assert (await stores.ledger.closed()).store_time_ns == clock.now_ns()


async def test_closes_never_go_back(stores: Stores) -> None:
    await stores.ledger.close(FROM + 5)
    await stores.ledger.close(FROM + 2)
    assert (await stores.ledger.closed()).through == FROM + 5
    await stores.ledger.close(FROM + 5)
    await stores.ledger.close(FROM + 6)
    assert (await stores.ledger.closed()).through == FROM + 6


async def test_closes_in_any_order_at_once(stores: Stores) -> None:
    windows = list(range(FROM, FROM + 50))
    random.Random(3).shuffle(windows)

    async def close(window: int) -> None:
        await stores.ledger.close(window)
        assert (await stores.ledger.closed()).through >= window

    await asyncio.gather(*(close(window) for window in windows))
    assert (await stores.ledger.closed()).through == FROM + 49


async def test_a_closer_that_went_away_leaves_a_mark_that_does_not_go_back(stores: Stores) -> None:
    """Cancelled, a close may have happened; then every later answer must agree that it did."""
    closing = asyncio.create_task(stores.ledger.close(FROM + 3))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    seen = (await stores.event_log.append([])).through
    assert seen in (FROM - 1, FROM + 3)
    assert (await stores.ledger.closed()).through >= seen


async def test_watermarks_never_go_back_and_are_one_per_shard(stores: Stores) -> None:
    await stores.ledger.advance(2, FROM + 9)
    await stores.ledger.advance(2, FROM + 4)
    await stores.ledger.advance(0, FROM)
    assert await stores.ledger.watermarks() == [FROM, FROM - 1, FROM + 9, FROM - 1]


async def test_the_watermarks_answered_are_the_callers_own(stores: Stores) -> None:
    (await stores.ledger.watermarks())[0] = FROM + 100
    assert await stores.ledger.watermarks() == [FROM - 1] * 4


async def test_the_first_proposal_holds_for_everybody_for_ever(stores: Stores) -> None:
    first, second = record(FROM, FROM + 4), record(FROM, FROM + 9)
    assert await stores.ledger.propose(first) == first
    assert await stores.ledger.propose(second) == first
    assert await stores.ledger.propose(first) == first
    assert await stores.ledger.folds(0, FROM, FOREVER) == [first]


async def test_proposers_at_once_all_get_the_same_record(stores: Stores) -> None:
    proposals = [record(FROM, FROM + at, segments=at) for at in range(20)]
    agreed = await asyncio.gather(*(stores.ledger.propose(each) for each in proposals))
    assert agreed[0] in proposals
    assert all(each == agreed[0] for each in agreed)


async def test_proposals_of_other_shards_do_not_meet(stores: Stores) -> None:
    records = [record(FROM, FROM + shard, shard=shard) for shard in range(4)]
    for each in records:
        assert await stores.ledger.propose(each) == each
    for shard in range(4):
        assert await stores.ledger.folds(shard, FROM, FROM) == [records[shard]]


async def test_a_record_comes_back_whole(stores: Stores) -> None:
    refs = tuple(
        SegmentRef(FROM + window, namespace_id, bytes([at]) * 16, 2**31, 3, 0)
        for window in range(3)
        for namespace_id in (1, 2**40)
        for at in range(250)
    )
    large = FoldRecord(
        shard=3,
        from_window=FROM,
        to_window=FROM + 2,
        segments=refs,
        event_count=2**50,
        namespaces_version=2**31,
        digest=bytes(range(16)),
        set_aside=(decision(refs[0]), decision(refs[-1])),
    )
    assert await stores.ledger.propose(large) == large
    [found] = await stores.ledger.folds(3, FROM, FROM)
    assert found == large
    assert await stores.ledger.propose(large) == large
    assert isinstance(found.segments, tuple)
    assert isinstance(found.segments[0], SegmentRef)
    assert isinstance(found.set_aside, tuple)
    assert isinstance(found.set_aside[0].segment, SegmentRef)


@pytest.mark.parametrize(
    ("from_window", "to_window", "wanted"),
    [
        (FROM, FROM, [0]),
        (FROM + 1, FROM + 1, [0]),  # in the middle of a record
        (FROM + 4, FROM + 4, [0]),  # its last window
        (FROM + 5, FROM + 5, [1]),  # a record of one window
        (FROM + 4, FROM + 6, [0, 1, 2]),
        (FROM + 7, FOREVER, [2]),
        (FROM + 10, FOREVER, []),  # after the chain
        (0, FROM - 1, []),  # before it
        (0, FOREVER, [0, 1, 2]),
        (FROM + 5, FROM + 3, []),
    ],
)
async def test_folds_are_the_records_that_touch_the_range(
    stores: Stores, from_window: int, to_window: int, wanted: list[int]
) -> None:
    chain = [record(FROM, FROM + 4), record(FROM + 5, FROM + 5), record(FROM + 6, FROM + 9)]
    for each in reversed(chain):
        await stores.ledger.propose(each)
    await stores.ledger.propose(record(FROM, FROM + 30, shard=1))
    found = await stores.ledger.folds(0, from_window, to_window)
    assert found == [chain[at] for at in wanted]


async def test_drop_folds_through_keeps_records_that_end_later(stores: Stores) -> None:
    chains = {
        shard: [record(FROM + at, FROM + at + 1, shard=shard) for at in range(0, 20, 2)]
        for shard in (0, 1)
    }
    for chain in chains.values():
        for each in chain:
            await stores.ledger.propose(each)
    dropped = 0
    while count := await stores.ledger.drop_folds_through(FROM + 4):  # in the middle of the third
        dropped += count
    gone = 0 if stores.expires_by_itself else 2
    assert dropped == 2 * gone
    for shard, chain in chains.items():
        assert await stores.ledger.folds(shard, 0, FOREVER) == chain[gone:]
        # What is gone is gone; the rest is found also where the range starts before it.
        assert await stores.ledger.folds(shard, FROM, FROM + 3) == chain[gone:2]
        assert await stores.ledger.folds(shard, FROM + 3, FROM + 5) == chain[max(gone, 1) : 3]


async def test_dropping_records_moves_no_mark(stores: Stores) -> None:
    await stores.ledger.close(FROM + 9)
    await stores.ledger.propose(record(FROM, FROM + 9))
    await stores.ledger.advance(0, FROM + 9)
    while await stores.ledger.drop_folds_through(FROM + 9):
        pass
    assert (await stores.ledger.closed()).through == FROM + 9
    assert (await stores.ledger.watermarks())[0] == FROM + 9


async def test_a_decision_to_set_a_segment_aside_comes_back_by_shard(stores: Stores) -> None:
    assert await stores.ledger.set_asides(0) == []
    segments = [SegmentRef(FROM + at % 3, 1, bytes([at]) * 16, 2, at % 2, 0) for at in range(6)]
    for segment in segments:
        await stores.ledger.set_aside(decision(segment))
    for shard in (0, 1):
        found = await stores.ledger.set_asides(shard)
        assert found == [decision(each) for each in sorted(segments) if each.shard == shard]
        assert isinstance(found[0].segment, SegmentRef)
    assert await stores.ledger.set_asides(2) == []


async def test_the_first_decision_on_a_segment_stays(stores: Stores) -> None:
    segment = SegmentRef(FROM, 1, b"s" * 16, 2, 1, 0)
    for author in ("oncall", "release", "oncall"):
        await stores.ledger.set_aside(decision(segment, author=author))
    assert await stores.ledger.set_asides(1) == [decision(segment, author="oncall")]


async def test_decisions_are_kept_as_long_as_records(stores: Stores) -> None:
    segments = [SegmentRef(FROM + at, 1, bytes([at]) * 16, 2, 1, 0) for at in range(6)]
    for segment in segments:
        await stores.ledger.set_aside(decision(segment))
    while await stores.ledger.drop_folds_through(FROM + 2):
        pass
    kept = segments if stores.expires_by_itself else segments[3:]
    assert await stores.ledger.set_asides(1) == [decision(each) for each in kept]
