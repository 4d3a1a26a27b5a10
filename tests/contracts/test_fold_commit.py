"""FoldCommit: the record, then history, rollups and watermark; and one record for everybody."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from counter.clock import ManualClock
from counter.history import Adjustment, HistoryRow
from counter.rollups import FoldRecord, Rollup, RollupKey, SetAside
from counter.segments import SegmentRef
from counter.storage.memory import MemoryHistoryStore, MemoryLedger, MemoryRollupStore
from counter.storage.ports import Fold, HistoryKey, HistoryWrite, RollupRow
from counter.storage.stepwise import StepwiseFoldCommit
from counter.windows import Layout
from tests.stores import Stores

FROM = 1_000
LAYOUT = Layout(from_window=FROM, window_ms=1_000, shards=2)
MINUTE_MS, DAY_MS = 60_000, 86_400_000


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


async def commit(
    stores: Stores,
    record: FoldRecord,
    rows: list[RollupRow],
    history: Sequence[HistoryWrite] = (),
    adjustments: Sequence[Adjustment] = (),
    *,
    rollups_per_batch: int = 100,
) -> FoldRecord:
    fold = Fold(record=record, rollups=rows, history=[*history], adjustments=[*adjustments])
    return await stores.fold_commit.commit(fold, rollups_per_batch=rollups_per_batch)


def past(count: int, counters: int = 3) -> list[HistoryWrite]:
    return [
        HistoryWrite(
            HistoryKey(1, f"c{at}", MINUTE_MS),
            HistoryRow(4, 6, Rollup(count, through_window=299, total=count)),
            DAY_MS,
        )
        for at in range(counters)
    ]


def adjustment(delta: int) -> Adjustment:
    return Adjustment(1, "c1", 1_000_000_000_123, "fix-1", delta, "oncall", "a bot's plays")


async def history(stores: Stores, counters: int = 3) -> list[int | None]:
    found = await stores.history_store.at([each.key for each in past(0, counters)], 5)
    return [None if each is None else each.state.count for each in found]


async def adjusted(stores: Stores) -> list[int]:
    found = await stores.history_store.adjustments(1, "c1", 0, 2**62, limit=10)
    return [each.delta for each in found]


async def counts(stores: Stores, counters: int = 3) -> list[int | None]:
    found = await stores.rollup_store.read([key for key, _ in rows(0, 0, counters)])
    return [None if each is None else each.count for each in found]


async def test_a_commit_writes_all_of_it(stores: Stores) -> None:
    folded = record(FROM + 4)
    made = (rows(7, FROM + 4), past(6), [adjustment(2)])
    assert await commit(stores, folded, *made) == folded
    assert await stores.ledger.folds(1, FROM, FROM) == [folded]
    assert await counts(stores) == [7, 7, 7]
    assert await history(stores) == [6, 6, 6]
    assert await adjusted(stores) == [2]
    assert await stores.ledger.watermarks() == [FROM - 1, FROM + 4]


async def test_a_commit_without_rows_moves_the_watermark(stores: Stores) -> None:
    await commit(stores, record(FROM + 4), [])
    assert await stores.ledger.watermarks() == [FROM - 1, FROM + 4]


async def test_the_loser_gets_the_winners_record_and_nothing_of_it_is_written(
    stores: Stores,
) -> None:
    winner, loser = record(FROM + 4), record(FROM + 9, segment_id=b"t" * 16)
    await commit(stores, winner, rows(7, FROM + 4), past(6))
    made = (rows(1_000, FROM + 9, 5), past(999, 5), [adjustment(2)])
    assert await commit(stores, loser, *made) == winner
    assert await counts(stores, 5) == [7, 7, 7, None, None]
    assert await history(stores, 5) == [6, 6, 6, None, None]
    assert await adjusted(stores) == []
    assert (await stores.ledger.watermarks())[1] == FROM + 4
    assert await stores.ledger.folds(1, FROM, FROM + 99) == [winner]


async def test_a_record_that_differs_in_any_field_loses(stores: Stores) -> None:
    winner = record(FROM + 4)
    await stores.ledger.propose(winner)
    for other in (
        record(FROM + 3),
        record(FROM + 4, segment_id=b"t" * 16),
        msgspec.structs.replace(winner, namespaces_version=2),
        msgspec.structs.replace(winner, digest=b"d" * 16),
        msgspec.structs.replace(
            winner, set_aside=(SetAside(winner.segments[0], "oncall", "why", 5),)
        ),
    ):
        assert await commit(stores, other, rows(9, other.to_window)) == winner
    assert await counts(stores) == [None, None, None]
    assert (await stores.ledger.watermarks())[1] == FROM - 1


async def test_a_commit_completes_what_a_crash_left(stores: Stores) -> None:
    folded = record(FROM + 4)
    # Only the record was written.
    await stores.ledger.propose(folded)
    assert await commit(stores, folded, rows(7, FROM + 4)) == folded
    assert await counts(stores) == [7, 7, 7]
    assert (await stores.ledger.watermarks())[1] == FROM + 4
    # The record and some rollups were written.
    following = record(FROM + 9, from_window=FROM + 5)
    await stores.ledger.propose(following)
    await stores.rollup_store.write(rows(8, FROM + 9, 1))
    assert await commit(stores, following, rows(8, FROM + 9)) == following
    assert await counts(stores) == [8, 8, 8]
    assert (await stores.ledger.watermarks())[1] == FROM + 9
    # The record and some of the history were written.
    last = record(FROM + 14, from_window=FROM + 10)
    await stores.ledger.propose(last)
    await stores.history_store.write(past(6, 1))
    assert await commit(stores, last, rows(9, FROM + 14), past(6), [adjustment(2)]) == last
    assert await history(stores) == [6, 6, 6]
    assert await adjusted(stores) == [2]
    assert await counts(stores) == [9, 9, 9]
    assert (await stores.ledger.watermarks())[1] == FROM + 14


async def test_a_replay_of_an_old_commit_changes_nothing(stores: Stores) -> None:
    first, second = record(FROM + 4), record(FROM + 9, from_window=FROM + 5)
    made = (rows(7, FROM + 4), past(6), [adjustment(2)])
    await commit(stores, first, *made)
    await commit(stores, second, rows(8, FROM + 9))
    assert await commit(stores, first, *made) == first
    assert await counts(stores) == [8, 8, 8]
    assert await history(stores) == [6, 6, 6]
    assert await adjusted(stores) == [2]
    assert (await stores.ledger.watermarks())[1] == FROM + 9
    assert await stores.ledger.folds(1, FROM, FROM + 99) == [first, second]


async def test_of_commits_at_once_one_decides(stores: Stores) -> None:
    proposals = [record(FROM + at, segment_id=bytes([at]) * 16) for at in range(1, 9)]
    agreed = await asyncio.gather(
        *(commit(stores, each, rows(each.to_window, each.to_window)) for each in proposals)
    )
    assert all(each == agreed[0] for each in agreed)
    assert await counts(stores) == [agreed[0].to_window] * 3
    assert (await stores.ledger.watermarks())[1] == agreed[0].to_window


@pytest.mark.parametrize("rollups_per_batch", [10, 999, 1_000, 10_000])
async def test_many_rows_in_one_commit(stores: Stores, rollups_per_batch: int) -> None:
    made = (rows(3, FROM, 2_100), past(2, 700))
    await commit(stores, record(FROM), *made, rollups_per_batch=rollups_per_batch)
    assert await counts(stores, 2_100) == [3] * 2_100
    assert await history(stores, 700) == [2] * 700


async def test_rollups_go_out_in_batches_where_there_is_no_transaction() -> None:
    ledger, history, rollups = MemoryLedger(ManualClock()), MemoryHistoryStore(), Batches()
    await ledger.open_layout(LAYOUT)
    fold_commit = StepwiseFoldCommit(ledger, history, rollups)
    made = [
        (RollupKey(at % 2, at % 3, f"c{at}"), Rollup(at, through_window=FROM)) for at in range(25)
    ]
    await fold_commit.commit(Fold(record=record(FROM), rollups=made), rollups_per_batch=10)
    assert [len(batch) for batch in rollups.batches] == [10, 10, 5]
    assert [row for batch in rollups.batches for row in batch] == made


class Batches(MemoryRollupStore):
    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Sequence[RollupRow]] = []

    async def write(self, rows: Sequence[RollupRow]) -> None:
        self.batches.append(rows)
        await super().write(rows)
