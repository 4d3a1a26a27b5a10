"""What a worker keeps of its own folds is what the store would say, and otherwise it is read."""

from collections.abc import Sequence

import pytest

from counter.rollups import FoldRecord, Rollup, RollupKey
from counter.storage.ports import RollupRow
from rollup_worker.rollup_bases import RollupBases

A, B, C = (RollupKey(1, 0, counter) for counter in "abc")


class Store:
    """Rollups that others may change, and what was asked for."""

    def __init__(self) -> None:
        self.rows: dict[RollupKey, Rollup] = {}
        self.asked: list[RollupKey] = []

    async def read(self, keys: Sequence[RollupKey]) -> list[Rollup | None]:
        self.asked += keys
        return [self.rows.get(key) for key in keys]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def bases(store: Store) -> RollupBases:
    return RollupBases(store, shards=2, kept_max=4)  # type: ignore[arg-type]


def record(from_window: int, to_window: int, shard: int = 0) -> FoldRecord:
    return FoldRecord(
        shard=shard,
        from_window=from_window,
        to_window=to_window,
        segments=(),
        event_count=0,
        namespaces_version=1,
    )


def fold(
    store: Store, bases: RollupBases, folded: FoldRecord, *keys: RollupKey, count: int
) -> None:
    """As a worker does: the rows are written, then kept."""
    rows: list[RollupRow] = [(key, Rollup(count, through_window=folded.to_window)) for key in keys]
    store.rows.update(rows)
    bases.folded(folded, rows)


async def test_the_next_record_finds_what_the_last_one_left(
    store: Store, bases: RollupBases
) -> None:
    assert await bases.before(record(0, 4), [A, B]) == [None, None]
    fold(store, bases, record(0, 4), A, B, count=7)
    store.asked.clear()
    assert [row and row.count for row in await bases.before(record(5, 9), [B, C, A])] == [
        *(7, None, 7)
    ]
    assert store.asked == [C]


async def test_a_counter_that_rests_is_still_known(store: Store, bases: RollupBases) -> None:
    fold(store, bases, record(0, 4), A, count=1)
    fold(store, bases, record(5, 5), B, count=2)
    fold(store, bases, record(6, 9), count=0)
    store.asked.clear()
    assert [row and row.count for row in await bases.before(record(10, 10), [A, B])] == [1, 2]
    assert store.asked == []


@pytest.mark.parametrize("starts", [0, 4, 6, 7])
async def test_a_record_that_does_not_follow_builds_on_the_store(
    store: Store, bases: RollupBases, starts: int
) -> None:
    """Others have folded in between, or this record was folded here before."""
    fold(store, bases, record(0, 4), A, count=1)
    store.rows[A] = Rollup(99, through_window=5)
    assert [row and row.count for row in await bases.before(record(starts, 9), [A])] == [99]


async def test_after_others_have_folded_nothing_old_is_left(
    store: Store, bases: RollupBases
) -> None:
    fold(store, bases, record(0, 4), A, B, count=1)
    store.rows[A] = Rollup(99, through_window=5)  # by a record 5 to 5, of another worker
    fold(store, bases, record(6, 6), B, count=2)
    assert [row and row.count for row in await bases.before(record(7, 7), [A, B])] == [99, 2]


async def test_a_pass_that_is_repeated_builds_on_the_same(store: Store, bases: RollupBases) -> None:
    """Its rows were written, and the watermark was not."""
    fold(store, bases, record(0, 4), A, count=1)
    store.rows[A] = Rollup(5, through_window=9)
    for _ in range(2):
        assert [row and row.count for row in await bases.before(record(5, 9), [A])] == [1]


async def test_shards_are_apart(store: Store, bases: RollupBases) -> None:
    fold(store, bases, record(0, 4), A, count=1)
    store.asked.clear()
    await bases.before(record(5, 9, shard=1), [A])
    assert store.asked == [A]


async def test_the_oldest_are_forgotten_first(store: Store, bases: RollupBases) -> None:
    fold(store, bases, record(0, 0), A, count=1)
    fold(store, bases, record(1, 1), B, count=1)
    fold(store, bases, record(2, 2), A, count=2)
    fold(store, bases, record(3, 3), C, count=1)  # a shard keeps two
    store.asked.clear()
    assert [row and row.count for row in await bases.before(record(4, 4), [A, B, C])] == [2, 1, 1]
    assert store.asked == [B]
