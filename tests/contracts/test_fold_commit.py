"""FoldCommit: the record, then the rollups, then the watermark; and one record for everybody."""

import asyncio

import pytest

from counter.rollups import FoldRecord, Rollup, RollupKey
from counter.segments import SegmentRef
from counter.storage.ports import RollupRow
from counter.windows import Layout
from tests.stores import Stores

FROM = 1_000
LAYOUT = Layout(from_window=FROM, window_ms=1_000, shards=2)


@pytest.fixture(autouse=True)
async def layout(stores: Stores) -> None:
    await stores.ledger.open_layout(LAYOUT)


def record(to_window: int, *, from_window: int = FROM, segment_id: bytes = b"s" * 16) -> FoldRecord:
    return FoldRecord(
        shard=1,
        from_window=from_window,
        to_window=to_window,
        segments=(SegmentRef(from_window, 1, segment_id, 1, 1, 0),),
        event_count=1,
        namespaces_version=1,
    )


def rows(count: int, through: int, counters: int = 3) -> list[RollupRow]:
    return [
        (RollupKey(1, 0, f"c{at}"), Rollup(count, through_window=through)) for at in range(counters)
    ]


async def counts(stores: Stores, counters: int = 3) -> list[int | None]:
    found = await stores.rollup_store.read([key for key, _ in rows(0, 0, counters)])
    return [None if each is None else each.count for each in found]


async def test_a_commit_writes_all_three(stores: Stores) -> None:
    folded = record(FROM + 4)
    assert await stores.fold_commit.commit(folded, rows(7, FROM + 4)) == folded
    assert await stores.ledger.folds(1, FROM, FROM) == [folded]
    assert await counts(stores) == [7, 7, 7]
    assert await stores.ledger.watermarks() == [FROM - 1, FROM + 4]


async def test_a_commit_without_rows_moves_the_watermark(stores: Stores) -> None:
    await stores.fold_commit.commit(record(FROM + 4), [])
    assert await stores.ledger.watermarks() == [FROM - 1, FROM + 4]


async def test_the_loser_gets_the_winners_record_and_nothing_of_it_is_written(
    stores: Stores,
) -> None:
    winner, loser = record(FROM + 4), record(FROM + 9, segment_id=b"t" * 16)
    await stores.fold_commit.commit(winner, rows(7, FROM + 4))
    assert await stores.fold_commit.commit(loser, rows(1_000, FROM + 9, 5)) == winner
    assert await counts(stores, 5) == [7, 7, 7, None, None]
    assert (await stores.ledger.watermarks())[1] == FROM + 4
    assert await stores.ledger.folds(1, FROM, FROM + 99) == [winner]


async def test_a_record_that_differs_in_any_field_loses(stores: Stores) -> None:
    winner = record(FROM + 4)
    await stores.ledger.propose(winner)
    for other in (
        record(FROM + 3),
        record(FROM + 4, segment_id=b"t" * 16),
        FoldRecord(
            shard=1,
            from_window=FROM,
            to_window=FROM + 4,
            segments=winner.segments,
            event_count=1,
            namespaces_version=2,
        ),
    ):
        assert await stores.fold_commit.commit(other, rows(9, other.to_window)) == winner
    assert await counts(stores) == [None, None, None]
    assert (await stores.ledger.watermarks())[1] == FROM - 1


async def test_a_commit_completes_what_a_crash_left(stores: Stores) -> None:
    folded = record(FROM + 4)
    # Only the record was written.
    await stores.ledger.propose(folded)
    assert await stores.fold_commit.commit(folded, rows(7, FROM + 4)) == folded
    assert await counts(stores) == [7, 7, 7]
    assert (await stores.ledger.watermarks())[1] == FROM + 4
    # The record and some rollups were written.
    following = record(FROM + 9, from_window=FROM + 5)
    await stores.ledger.propose(following)
    await stores.rollup_store.write(rows(8, FROM + 9, 1))
    assert await stores.fold_commit.commit(following, rows(8, FROM + 9)) == following
    assert await counts(stores) == [8, 8, 8]
    assert (await stores.ledger.watermarks())[1] == FROM + 9


async def test_a_replay_of_an_old_commit_changes_nothing(stores: Stores) -> None:
    first, second = record(FROM + 4), record(FROM + 9, from_window=FROM + 5)
    await stores.fold_commit.commit(first, rows(7, FROM + 4))
    await stores.fold_commit.commit(second, rows(8, FROM + 9))
    assert await stores.fold_commit.commit(first, rows(7, FROM + 4)) == first
    assert await counts(stores) == [8, 8, 8]
    assert (await stores.ledger.watermarks())[1] == FROM + 9
    assert await stores.ledger.folds(1, FROM, FROM + 99) == [first, second]


async def test_of_commits_at_once_one_decides(stores: Stores) -> None:
    proposals = [record(FROM + at, segment_id=bytes([at]) * 16) for at in range(1, 9)]
    agreed = await asyncio.gather(
        *(
            stores.fold_commit.commit(each, rows(each.to_window, each.to_window))
            for each in proposals
        )
    )
    assert all(each == agreed[0] for each in agreed)
    assert await counts(stores) == [agreed[0].to_window] * 3
    assert (await stores.ledger.watermarks())[1] == agreed[0].to_window


async def test_many_rows_in_one_commit(stores: Stores) -> None:
    await stores.fold_commit.commit(record(FROM), rows(3, FROM, 2_100))
    assert await counts(stores, 2_100) == [3] * 2_100
