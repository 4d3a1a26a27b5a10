"""RollupStore: rows come back exactly, and an older fold never replaces a newer one."""

import asyncio

import pytest

from counter.rollups import Recent, Rollup, RollupKey
from counter.storage.ports import RollupRow
from tests.stores import NAMES, Stores


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


FULL = Rollup(
    count=-5,
    epoch=3,
    cleared_at_ns=1_700_000_000_123_456_789,
    through_window=90,
    total=12,
    changed_window=88,
    first_window=7,
    recent=Recent(80, ((80, 3), (85, -9), (88, 1))),
)


@pytest.mark.parametrize(
    "rollup",
    [
        FULL,
        Rollup(),
        Rollup(1, through_window=5, total=1, changed_window=5, first_window=5),
        Rollup(1, through_window=5, total=1, changed_window=5, recent=Recent(0)),
        Rollup(1, through_window=5, total=1, changed_window=5, recent=Recent(6, ((7, 0),))),
        Rollup(2**64, 1, 2, 3, -(2**200), 4, 5),
        Rollup(-(2**63), 2**31, 2**62, 2**40, 2**63, 2**40, 2**40 - 1),
        Rollup(recent=Recent(9, ((9, 2**63), (10, -(2**63) - 1), (11, 2**64), (12, 10**30)))),
        Rollup(recent=Recent(2**40, tuple((2**40 + at, at - 600) for at in range(1_200)))),
    ],
)
async def test_every_field_comes_back(stores: Stores, rollup: Rollup) -> None:
    await stores.rollup_store.write([(key("views"), rollup), (key("plays"), FULL)])
    found = await stores.rollup_store.read([key("views"), key("plays")])
    assert found == [rollup, FULL]
    assert found[0] is not None
    assert type(found[0].total) is int
    if rollup.recent is not None:
        assert found[0].recent is not None
        assert all(type(delta) is int for _, delta in found[0].recent.deltas)


async def test_a_newer_fold_replaces_every_field(stores: Stores) -> None:
    await stores.rollup_store.write([(key("views"), FULL)])
    newer = Rollup(1, 4, 11, through_window=91, total=-13, changed_window=91, first_window=6)
    await stores.rollup_store.write([(key("views"), newer)])
    assert await stores.rollup_store.read([key("views")]) == [newer]
    await stores.rollup_store.write([(key("views"), FULL)])
    assert await stores.rollup_store.read([key("views")]) == [newer]


async def names(
    stores: Stores, prefix: str = "", after: str = "", limit: int = 100, *, bucket: int = 0
) -> list[str]:
    rows = await stores.rollup_store.page(1, bucket, prefix=prefix, after=after, limit=limit)
    assert len(rows) <= limit
    return [name for name, _ in rows]


def in_bytes_order(listed: list[str]) -> list[str]:
    return sorted(listed, key=lambda name: name.encode())


async def test_a_page_of_a_bucket_without_rows(stores: Stores) -> None:
    assert await names(stores) == []
    assert await names(stores, "p", "q") == []


async def test_a_page_brings_the_rows(stores: Stores) -> None:
    rows: list[RollupRow] = [(key("b"), FULL), (key("a"), Rollup(2**70)), (key("c"), Rollup(3))]
    await stores.rollup_store.write(rows)
    page = await stores.rollup_store.page(1, 0, prefix="", after="", limit=2)
    assert page == [("a", Rollup(2**70)), ("b", FULL)]


async def test_a_page_is_of_one_bucket_of_one_namespace(stores: Stores) -> None:
    await stores.rollup_store.write(
        [
            (key("here"), Rollup(1)),
            (key("other bucket", bucket=1), Rollup(2)),
            (key("other namespace", namespace_id=2), Rollup(3)),
        ]
    )
    assert await names(stores) == ["here"]
    assert await names(stores, bucket=1) == ["other bucket"]


async def test_pages_by_the_order_of_utf_8_to_the_end(stores: Stores) -> None:
    listed = [name for name in NAMES if name]
    await stores.rollup_store.write([(key(name), Rollup(1)) for name in reversed(listed)])
    for limit in (1, 3, 100):
        seen: list[str] = []
        while page := await names(stores, after=seen[-1] if seen else "", limit=limit):
            seen += page
        assert seen == in_bytes_order(listed)


async def test_a_page_may_start_between_names(stores: Stores) -> None:
    await stores.rollup_store.write([(key(name), Rollup(1)) for name in ("a", "c", "e", "e\x00")])
    assert await names(stores, after="b") == ["c", "e", "e\x00"]
    assert await names(stores, after="c") == ["e", "e\x00"]
    assert await names(stores, after="e") == ["e\x00"]
    assert await names(stores, after="e\x00") == []
    assert await names(stores, after="z") == []


PREFIXED = [
    "plays",
    "plays/",
    "plays/1",
    "plays/10",
    "plays/2",
    "plays/\x00",
    "plays/é",
    "plays/🎬",
    "plays/\U0010ffff",
    "plays/\U0010ffff\U0010ffff",
    "plays0",
    "Plays/1",
    "play",
    "é",
    "éa",
    "ê",
    "\ud7ff",
    "\ud7ffx",
    "\ue000",
    "🎬",
    "🎬1",
    "🎭",
    "\U0010ffff",
    "\U0010ffffx",
    "\U0010ffff" * 64,
    "a%",
    "a_",
    "ab",
    "a*",
]


@pytest.mark.parametrize(
    "prefix",
    [
        *("", "plays/", "plays", "p", "plays/1", "plays/\U0010ffff", "é", "e", "\ud7ff"),
        *("🎬", "\U0010ffff", "\U0010ffff" * 64, "a%", "a_", "a*", "\x00", "\x7f", "nobody"),
    ],
)
async def test_a_prefix_means_just_what_begins_with_it(stores: Stores, prefix: str) -> None:
    await stores.rollup_store.write([(key(name), Rollup(1)) for name in PREFIXED])
    wanted = in_bytes_order([name for name in PREFIXED if name.startswith(prefix)])
    assert await names(stores, prefix) == wanted
    seen: list[str] = []
    while page := await names(stores, prefix, seen[-1] if seen else "", 2):
        seen += page
    assert seen == wanted
    for after in ("plays/1", "é", "zz"):
        later = [name for name in wanted if name.encode() > after.encode()]
        assert await names(stores, prefix, after) == later


async def test_a_page_among_thousands(stores: Stores) -> None:
    listed = [f"c{at:05}" for at in range(6_000)]
    await stores.rollup_store.write([(key(name), Rollup(1)) for name in listed])
    assert await names(stores, "c05", limit=2_000) == [f"c05{at:03}" for at in range(1_000)]
    assert await names(stores, limit=5_500) == listed[:5_500]
    assert await names(stores, after="c02999", limit=3) == ["c03000", "c03001", "c03002"]


async def test_counting_an_empty_bucket(stores: Stores) -> None:
    assert await stores.rollup_store.count(1, 0) == 0


async def test_counters_are_counted_by_bucket_and_namespace(stores: Stores) -> None:
    rows = [(key(f"c{at}", bucket=at % 3), Rollup(at, through_window=1)) for at in range(700)]
    rows += [(key(name, namespace_id=2), Rollup(1)) for name in NAMES]
    await stores.rollup_store.write(rows)
    newer = [(each, Rollup(0, 1, through_window=2)) for each, _ in rows[:50]]
    await stores.rollup_store.write(newer)
    assert [await stores.rollup_store.count(1, bucket) for bucket in range(4)] == [234, 233, 233, 0]
    assert await stores.rollup_store.count(2, 0) == len(NAMES)


async def test_a_large_bucket_is_counted_while_others_read_and_write(stores: Stores) -> None:
    rows = [(key(f"c{at:05}"), Rollup(at)) for at in range(11_000)]
    await stores.rollup_store.write(rows)
    counted, found, _ = await asyncio.gather(
        stores.rollup_store.count(1, 0),
        stores.rollup_store.read([rows[7][0]]),
        stores.rollup_store.write([(key("other", bucket=1), Rollup(1))]),
    )
    assert (counted, found) == (11_000, [rows[7][1]])
