"""RollupStore: rows come back exactly, and an older fold never replaces a newer one."""

import pytest

from counter.rollups import Rollup, RollupKey
from tests.stores import Stores

NAMES = [
    "plain",
    "",
    " spaces around ",
    "nul\x00in the middle",
    "nul\x00in the",
    "\x00",
    "quotes ' \" ` ; -- %_",
    "line\nbreak\r\n\ttab",
    "ünïcödé",
    "u\u0308 is not \u00fc",
    "\u00fc is not u\u0308",
    "emoji 🎬🍿👩‍👩‍👧",
    "\U0010ffff\ufffe\uffff",
    "العربية",
    "a" * 256,
    "é" * 128,
    "🎬" * 64,
    "Case",
    "case",
    "1",
    "01",
    "1.0",
]


def key(counter: str, *, namespace_id: int = 1, bucket: int = 0) -> RollupKey:
    return RollupKey(namespace_id, bucket, counter)


async def test_a_counter_without_a_row(stores: Stores) -> None:
    assert await stores.rollup_store.read([key("views"), key("plays")]) == [None, None]
    assert await stores.rollup_store.read([]) == []


async def test_rows_come_in_the_order_asked(stores: Stores) -> None:
    rows = [(key(f"c{at}", bucket=at % 3), Rollup(at, at + 1, at + 2, at + 3)) for at in range(9)]
    await stores.rollup_store.write(rows)
    asked = [rows[7][0], key("never"), rows[0][0], rows[7][0]]
    found = await stores.rollup_store.read(asked)
    assert found == [rows[7][1], None, rows[0][1], rows[7][1]]


async def test_every_part_of_the_key_tells_counters_apart(stores: Stores) -> None:
    keys = [
        key("views", namespace_id=namespace_id, bucket=bucket)
        for namespace_id in (1, 2, 2**40)
        for bucket in (0, 1)
    ]
    await stores.rollup_store.write([(each, Rollup(count=at)) for at, each in enumerate(keys)])
    assert [row and row.count for row in await stores.rollup_store.read(keys)] == list(range(6))


async def test_an_older_fold_never_replaces_a_newer_one(stores: Stores) -> None:
    newer, older = Rollup(5, 1, 9, through_window=20), Rollup(4, 0, 0, through_window=19)
    await stores.rollup_store.write([(key("views"), newer)])
    await stores.rollup_store.write([(key("views"), older), (key("plays"), older)])
    assert await stores.rollup_store.read([key("views"), key("plays")]) == [newer, older]


async def test_a_newer_fold_replaces_an_older_one_whole(stores: Stores) -> None:
    await stores.rollup_store.write([(key("views"), Rollup(5, 3, 9, through_window=20))])
    newer = Rollup(-1, 4, 11, through_window=21)
    await stores.rollup_store.write([(key("views"), newer)])
    assert await stores.rollup_store.read([key("views")]) == [newer]


async def test_an_equal_fold_is_written_again(stores: Stores) -> None:
    row = (key("views"), Rollup(5, 1, 9, through_window=20))
    await stores.rollup_store.write([row])
    await stores.rollup_store.write([row, row])
    assert await stores.rollup_store.read([key("views")]) == [row[1]]


@pytest.mark.parametrize(
    "count",
    [
        0,
        -1,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63),
        -(2**63) - 1,
        2**64,
        10**30 + 7,
        -(10**30) - 7,
        2**200,
    ],
)
async def test_a_count_is_exact_also_beyond_64_bits(stores: Stores, count: int) -> None:
    await stores.rollup_store.write([(key("views"), Rollup(count, through_window=1))])
    [row] = await stores.rollup_store.read([key("views")])
    assert row is not None
    assert row.count == count
    assert type(row.count) is int
    back = Rollup(count=3, through_window=2)
    await stores.rollup_store.write([(key("views"), back)])
    assert await stores.rollup_store.read([key("views")]) == [back]


async def test_names_are_told_apart_whatever_they_hold(stores: Stores) -> None:
    rows = [(key(name), Rollup(count=at + 1)) for at, name in enumerate(NAMES)]
    await stores.rollup_store.write(rows)
    found = await stores.rollup_store.read([key(name) for name in NAMES])
    assert found == [rollup for _, rollup in rows]
    assert await stores.rollup_store.read([key("nul"), key("PLAIN"), key("é" * 127)]) == [None] * 3


async def test_more_than_a_thousand_rows_at_once(stores: Stores) -> None:
    rows = [
        (key(f"c{at}", bucket=at % 16), Rollup(at, at % 3, at * 7, at % 11)) for at in range(3_333)
    ]
    await stores.rollup_store.write(rows)
    keys = [each for each, _ in reversed(rows)]
    assert await stores.rollup_store.read(keys) == [rollup for _, rollup in reversed(rows)]
    # Folds that end with the same window leave equal rows: no store has to choose.
    rewritten = [(each, row) for each, row in rows if row.through_window != 5]
    await stores.rollup_store.write([(each, Rollup(1, through_window=5)) for each, _ in rewritten])
    kept = await stores.rollup_store.read([each for each, _ in rewritten])
    for (_, before), after in zip(rewritten, kept, strict=True):
        assert after == (before if before.through_window > 5 else Rollup(1, through_window=5))


async def test_one_counter_twice_in_one_write(stores: Stores) -> None:
    await stores.rollup_store.write(
        [(key("views"), Rollup(2, through_window=2)), (key("views"), Rollup(1, through_window=1))]
    )
    assert await stores.rollup_store.read([key("views")]) == [Rollup(2, through_window=2)]


async def test_writing_nothing(stores: Stores) -> None:
    await stores.rollup_store.write([])
