"""HistoryStore: rows come back exactly, by counter and length of step, and are written again
without harm."""

import asyncio

import pytest

from counter.clock import NS_PER_MS
from counter.history import Adjustment, HistoryRow
from counter.rollups import Recent, Rollup
from counter.storage.ports import HistoryKey, HistoryWrite
from tests.stores import KEEPING, NAMES, Stores

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
FROM = 28_333_333  # a minute of November 2023
NOON_NS = 1_700_000_000_000_000_000


def key(counter: str = "views", *, namespace_id: int = 1, step_ms: int = MINUTE_MS) -> HistoryKey:
    return HistoryKey(namespace_id, counter, step_ms)


def row(step: int, count: int = 1, *, until: int | None = None) -> HistoryRow:
    state = Rollup(count, 2, 3, step * 60 + 59, count + 4, step * 60 + 5, 6)
    return HistoryRow(step, step + 1 if until is None else until, state)


def writes(of: HistoryKey, *rows: HistoryRow) -> list[HistoryWrite]:
    return [HistoryWrite(of, each, DAY_MS) for each in rows]


def adjustment(
    time_ns: int, token: str = "t", delta: int = 1, *, counter: str = "views", namespace_id: int = 1
) -> Adjustment:
    return Adjustment(namespace_id, counter, time_ns, token, delta, "oncall", "it was “wrong” 🎬")


async def test_a_counter_without_history(stores: Stores) -> None:
    store = stores.history_store
    assert await store.at([], FROM) == []
    assert await store.at([key(), key("plays")], FROM) == [None, None]
    assert await store.between(key(), 0, 2**40, limit=10) == []
    assert await store.adjustments(1, "views", 0, 2**62, limit=10) == []
    assert await store.drop_expired(2**62) == 0


async def test_at_is_the_last_row_up_to_a_step(stores: Stores) -> None:
    rows = [row(FROM), row(FROM + 3), row(FROM + 4), row(FROM + 1_000)]
    await stores.history_store.write(writes(key(), *rows))
    for step, wanted in (
        (0, None),
        (FROM - 1, None),
        (FROM, rows[0]),
        (FROM + 2, rows[0]),
        (FROM + 3, rows[1]),
        (FROM + 4, rows[2]),
        (FROM + 999, rows[2]),
        (FROM + 1_000, rows[3]),
        (2**40, rows[3]),
    ):
        assert await stores.history_store.at([key()], step) == [wanted]


async def test_at_answers_in_the_order_asked(stores: Stores) -> None:
    counters = [f"c{at}" for at in range(700)]
    await stores.history_store.write(
        [
            each
            for at, counter in enumerate(counters)
            for each in writes(key(counter), row(FROM, at), row(FROM + 5, -at))
        ]
    )
    asked = [key(counter) for counter in reversed(counters)]
    asked = [asked[7], key("nobody"), *asked, asked[7]]
    found = await stores.history_store.at(asked, FROM + 4)
    counts = [None if each is None else each.state.count for each in found]
    assert counts == [692, None, *range(699, -1, -1), 692]


async def test_between_is_a_range_of_steps_in_order(stores: Stores) -> None:
    rows = [row(FROM + at, at) for at in (0, 1, 5, 6, 9)]
    await stores.history_store.write(writes(key(), *reversed(rows)))
    between = stores.history_store.between
    assert await between(key(), 0, 2**40, limit=100) == rows
    assert await between(key(), FROM, FROM + 9, limit=100) == rows
    assert await between(key(), FROM + 1, FROM + 6, limit=100) == rows[1:4]
    assert await between(key(), FROM + 2, FROM + 4, limit=100) == []
    assert await between(key(), FROM + 6, FROM + 1, limit=100) == []
    assert await between(key(), FROM + 1, FROM + 9, limit=2) == rows[1:3]
    assert await between(key(), FROM, FROM, limit=1) == rows[:1]


async def test_a_long_range_in_pieces(stores: Stores) -> None:
    rows = [row(FROM + at, at) for at in range(0, 12_000, 2)]
    await stores.history_store.write(writes(key(), *rows))
    assert await stores.history_store.between(key(), FROM, 2**40, limit=5_500) == rows[:5_500]
    seen: list[HistoryRow] = []
    start = 0
    while page := await stores.history_store.between(key(), start, 2**40, limit=999):
        seen += page
        start = page[-1].step + 1
    assert seen == rows


async def test_rows_written_again_are_as_they_were(stores: Stores) -> None:
    rows = [row(FROM + at, at) for at in range(20)]
    for _ in range(3):
        await stores.history_store.write(writes(key(), *rows))
    await asyncio.gather(*(stores.history_store.write(writes(key(), *rows)) for _ in range(5)))
    # In one call too, and with another retention: a replay after the configuration changed.
    await stores.history_store.write([HistoryWrite(key(), rows[3], 5)] * 2)
    assert await stores.history_store.between(key(), 0, 2**40, limit=100) == rows


async def test_every_part_of_the_key_tells_rows_apart(stores: Stores) -> None:
    keys = [
        key(counter, namespace_id=namespace_id, step_ms=step_ms)
        for counter in ("views", "plays")
        for namespace_id in (1, 2, 2**40)
        for step_ms in (MINUTE_MS, HOUR_MS, DAY_MS)
    ]
    rows = [row(FROM, at) for at in range(len(keys))]
    await stores.history_store.write(
        [HistoryWrite(each, of, DAY_MS) for each, of in zip(keys, rows, strict=True)]
    )
    assert await stores.history_store.at(keys, FROM) == rows
    for each, of in zip(keys, rows, strict=True):
        assert await stores.history_store.between(each, 0, 2**40, limit=9) == [of]


async def test_names_are_told_apart_whatever_they_hold(stores: Stores) -> None:
    keys = [key(name) for name in NAMES]
    rows = [row(FROM, at) for at in range(len(keys))]
    await stores.history_store.write(
        [HistoryWrite(each, of, DAY_MS) for each, of in zip(keys, rows, strict=True)],
        [adjustment(5, delta=at + 1, counter=each.counter) for at, each in enumerate(keys)],
    )
    assert await stores.history_store.at(keys, FROM) == rows
    for at, each in enumerate(keys):
        found = await stores.history_store.adjustments(1, each.counter, 0, 9, limit=9)
        assert [(of.counter, of.delta) for of in found] == [(each.counter, at + 1)]


@pytest.mark.parametrize(
    "state",
    [
        Rollup(),
        Rollup(-1, 2, 3, 4, -5, 6, -1),
        Rollup(2**63, 2**31, 2**62, 2**40, -(2**63) - 1, 2**40, 2**40),
        Rollup(10**30, 1, 2, 3, -(2**200), 4, 5),
        Rollup(1, 2, 3, 4, 5, 6, 7, Recent(3, ((3, 2**70), (5, -1)))),
    ],
)
async def test_every_field_of_a_state_comes_back(stores: Stores, state: Rollup) -> None:
    written = HistoryRow(FROM, FROM + 2**20, state)
    await stores.history_store.write(writes(key(), written))
    assert await stores.history_store.at([key()], FROM + 1) == [written]
    assert await stores.history_store.between(key(), FROM, FROM, limit=1) == [written]


async def test_a_retention_of_centuries(stores: Stores) -> None:
    await stores.history_store.write([HistoryWrite(key(), row(FROM), 365 * 300 * DAY_MS)])
    assert await stores.history_store.at([key()], FROM) == [row(FROM)]


async def test_adjustments_of_a_range_in_order(stores: Stores) -> None:
    made = [
        adjustment(NOON_NS, "b", -(2**63)),
        adjustment(NOON_NS, "c", 2**63 - 1),
        adjustment(NOON_NS + 1, "a", -7),
        adjustment(NOON_NS + 10**9, "a", 8),
    ]
    others = [adjustment(NOON_NS, counter="plays"), adjustment(NOON_NS, namespace_id=2)]
    for _ in range(2):
        await stores.history_store.write([], [*reversed(made), *others])
    adjustments = stores.history_store.adjustments
    assert await adjustments(1, "views", 0, 2**62, limit=10) == made
    assert await adjustments(1, "views", 0, 2**62, limit=2) == made[:2]
    assert await adjustments(1, "views", NOON_NS + 1, NOON_NS + 10**9, limit=10) == made[2:]
    assert await adjustments(1, "views", NOON_NS + 2, NOON_NS + 3, limit=10) == []
    assert await adjustments(1, "plays", 0, 2**62, limit=10) == others[:1]
    assert await adjustments(2, "views", 0, 2**62, limit=10) == others[1:]


async def test_rows_expire_when_what_ended_them_is_out_of_retention(stores: Stores) -> None:
    rows = [row(FROM, until=FROM + 3), row(FROM + 3, until=FROM + 4), row(FROM + 4, until=FROM + 9)]
    others = [key("plays"), key(namespace_id=2)]
    for each in (key(), *others):
        await stores.history_store.write(writes(each, *rows), [adjustment(NOON_NS)])
    longer = HistoryWrite(key("kept for longer"), rows[0], DAY_MS + 10 * MINUTE_MS)
    await stores.history_store.write([longer])
    end_of_step_ms = (FROM + 4 + 1) * MINUTE_MS  # the one that ended the second row
    dropped = 0
    while count := await stores.history_store.drop_expired((end_of_step_ms + DAY_MS) * NS_PER_MS):
        dropped += count
    gone = 0 if stores.expires_by_itself else 2
    assert dropped == 3 * gone  # whatever became of their namespaces
    for each in (key(), *others):
        assert await stores.history_store.between(each, 0, 2**40, limit=9) == rows[gone:]
    kept = await stores.history_store.between(key("kept for longer"), 0, 2**40, limit=9)
    assert kept == rows[:1]
    assert len(await stores.history_store.adjustments(1, "views", 0, 2**62, limit=9)) == 1


@pytest.mark.parametrize("stores", KEEPING, indirect=True)
async def test_more_is_dropped_than_one_call_takes(stores: Stores) -> None:
    rows = [row(FROM + at) for at in range(5_000)]
    await stores.history_store.write(writes(key(), *rows))
    dropped = 0
    now_ms = (FROM + 4_500 + 1) * MINUTE_MS + DAY_MS
    while count := await stores.history_store.drop_expired(now_ms * NS_PER_MS):
        dropped += count
    assert dropped == 4_500
    assert await stores.history_store.between(key(), 0, 2**40, limit=9_999) == rows[4_500:]
