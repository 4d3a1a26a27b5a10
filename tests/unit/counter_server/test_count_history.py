"""GetCountHistory: one point for every step, and none that is made up."""

from typing import Any

import pytest

import counter_server.count_history
from counter.clock import NS_PER_MS, NS_PER_S
from counter.errors import HistoryOff, InvalidRequest, Unsupported
from counter.history import Adjustment
from counter.namespaces import HistoryStep, Namespace, Strategy
from counter_server.count_history import POINTS_MAX, CountHistories, CountHistory, Point, range_of
from tests.expiry import forget_until
from tests.unit.counter_server.parts import Parts

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
MINUTE_NS = 60 * NS_PER_S
MINUTES = HistoryStep(step_ms=MINUTE_MS, retention_ms=2 * HOUR_MS)
HOURS = HistoryStep(step_ms=HOUR_MS, retention_ms=10 * DAY_MS)
KEPT = Namespace(id=1, name="plays", strategy=Strategy.EVENTUAL, history=(MINUTES, HOURS))
NOW_NS = 1_700_000_000 * NS_PER_S


class Asked:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.histories = CountHistories(parts.reads, parts.history_store, parts.layout)
        hour_ns = HOUR_MS * NS_PER_MS
        self.origin_ns = (parts.clock.now_ns() // hour_ns + 1) * hour_ns

    def minute_ns(self, minute: float) -> int:
        return self.origin_ns + int(minute * 60) * NS_PER_S

    async def add(self, minute: float, delta: int | None, note: Any = None) -> None:
        late_ms = (self.parts.clock.now_ns() - self.minute_ns(minute)) // NS_PER_MS
        event = self.parts.event("views", delta, f"t{minute}", age_ms=late_ms)
        await self.parts.write(type(event)(event.counter, event.time_ns, event.token, delta, note))

    async def fold_to(self, minute: float) -> None:
        self.parts.clock.advance_ms(
            max(0, (self.minute_ns(minute) - self.parts.clock.now_ns()) // NS_PER_MS)
        )
        await self.parts.fold_through(self.parts.layout.window_of(self.minute_ns(minute)) - 1)

    async def history(
        self, start: float, end: float, step_ms: int | None = MINUTE_MS
    ) -> CountHistory:
        return await self.histories.read(
            self.parts.namespace,
            "views",
            start_ns=self.minute_ns(start),
            end_ns=self.minute_ns(end),
            step_ms=step_ms,
            now_ns=self.parts.clock.now_ns(),
        )

    def point(self, minute: float, delta: int, count: int, epoch: int = 0) -> Point:
        return Point(
            start_ns=self.minute_ns(minute), delta=delta, count=count, epoch=epoch, known=True
        )

    def unknown(self, minute: float) -> Point:
        return Point(start_ns=self.minute_ns(minute))


@pytest.fixture
async def asked(parts: Parts) -> Asked:
    await parts.define(history=(MINUTES, HOURS))
    return Asked(parts)


@pytest.mark.parametrize("rows_per_page", [1, 2, 1_000])
async def test_a_point_for_each_step_that_touches_the_range(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, rows_per_page: int
) -> None:
    monkeypatch.setattr(counter_server.count_history, "_ROWS_PER_PAGE", rows_per_page)
    for minute, delta in ((1.5, 5), (3.25, 2), (3.5, None), (3.75, 1), (4.5, 3), (6.5, -1)):
        await asked.add(minute, delta)
    await asked.fold_to(7.5)
    history = await asked.history(0.5, 8)
    assert history == CountHistory(
        points=[
            asked.point(0, 0, 0),
            asked.point(1, 5, 5),
            asked.point(2, 0, 5),
            asked.point(3, 3, 1, 1),  # what was added counts, whether or not it was cleared
            asked.point(4, 3, 4, 1),
            asked.point(5, 0, 4, 1),
            asked.point(6, -1, 3, 1),
            asked.point(7, 0, 3, 1),
            asked.point(8, 0, 3, 1),
        ],
        step_ms=MINUTE_MS,
        resolution_ms=MINUTE_MS,
        complete_through_ns=asked.minute_ns(7.5) - 1,
        adjustments=[],
    )
    # A range in the middle begins with what was before it.
    assert (await asked.history(4.5, 5.25)).points == history.points[4:6]
    assert (await asked.history(4.5, 4.5)).points == history.points[4:5]


async def test_longer_steps_are_made_of_kept_ones(asked: Asked) -> None:
    for minute in range(1, 12):
        await asked.add(minute + 0.5, minute)
    await asked.fold_to(13)
    history = await asked.history(0, 14.9, 5 * MINUTE_MS)
    assert (history.step_ms, history.resolution_ms) == (5 * MINUTE_MS, MINUTE_MS)
    assert list(history.points) == [
        asked.point(0, 10, 10),
        asked.point(5, 35, 45),
        asked.point(10, 21, 66),
    ]


async def test_where_the_history_does_not_reach_nothing_is_known(asked: Asked) -> None:
    for minute in (1.5, 3.5, 5.5, 8.5):
        await asked.add(minute, 1)
    await asked.fold_to(9)
    store, namespace = asked.parts.stores.history_store, asked.parts.namespace
    step = asked.minute_ns(5) // MINUTE_NS
    assert forget_until(store, namespace.id, MINUTE_MS, step) == 2
    points = (await asked.history(0, 9)).points
    assert list(points) == [
        asked.point(0, 0, 0),  # before its first event
        *(asked.unknown(minute) for minute in (1, 2, 3, 4, 5)),
        asked.point(6, 0, 3),
        asked.point(7, 0, 3),
        asked.point(8, 1, 4),
        asked.point(9, 0, 4),
    ]


async def test_a_gap_in_the_chain_is_not_known(asked: Asked) -> None:
    await asked.add(1.5, 1)
    await asked.add(3.5, 2)
    await asked.fold_to(4)
    await asked.parts.define(history=())
    await asked.add(5.5, 4)
    await asked.fold_to(6)
    await asked.parts.define(history=(MINUTES, HOURS))
    await asked.add(7.5, 8)
    await asked.fold_to(8)
    assert list((await asked.history(2, 8)).points) == [
        asked.point(2, 0, 1),
        *(asked.unknown(minute) for minute in (3, 4, 5)),
        asked.point(6, 0, 7),
        asked.point(7, 8, 15),
        asked.point(8, 0, 15),
    ]


async def test_a_fold_between_the_reads_does_not_make_it_newer_than_its_stamp(asked: Asked) -> None:
    await asked.add(1.5, 1)
    await asked.add(3.25, 2)
    await asked.fold_to(3.5)
    await asked.add(3.75, 4)
    await asked.add(5.5, 8)

    async def at(call: Any, *args: Any) -> Any:
        await asked.fold_to(6)
        return await call(*args)

    asked.parts.script.answers["history_store.at"] = at
    history = await asked.history(1, 6)
    assert history.complete_through_ns == asked.minute_ns(3.5) - 1
    assert [(each.delta, each.count) for each in history.points] == [
        *((1, 1), (0, 1), (2, 3), (0, 3), (0, 3), (0, 3)),
    ]


async def test_adjustments_of_the_range_come_with_it(asked: Asked) -> None:
    for minute in (1.5, 3.5, 5.5):
        await asked.add(minute, 1)
    for minute in (2.5, 4.5, 6.5):
        await asked.add(minute, 10, ("ada", f"audit {minute}"))
    await asked.fold_to(7)
    history = await asked.history(4, 6)
    id_ = asked.parts.namespace.id
    assert history.adjustments == [
        Adjustment(id_, "views", asked.minute_ns(each), f"t{each}", 10, "ada", f"audit {each}")
        for each in (4.5, 6.5)
    ]
    assert [each.delta for each in history.points] == [10, 1, 10]


async def test_no_rows_are_read_for_what_the_rollup_tells(asked: Asked) -> None:
    await asked.add(1.5, 1)
    await asked.fold_to(4)
    points = (await asked.history(2, 4)).points
    assert [(each.delta, each.count, each.known) for each in points] == [(0, 1, True)] * 3
    assert asked.parts.script.calls["history_store.at"] == 0
    assert asked.parts.script.calls["history_store.between"] == 0


# Which steps answer.


def picked(age_ms: int, step_ms: int | None, *, length_ms: int = HOUR_MS) -> tuple[int, int]:
    start_ns = NOW_NS - age_ms * NS_PER_MS
    end_ns = min(NOW_NS, start_ns + length_ms * NS_PER_MS)
    asked = range_of(KEPT, start_ns=start_ns, end_ns=end_ns, step_ms=step_ms, now_ns=NOW_NS)
    return asked.step_ms, asked.resolution_ms


def test_without_a_step_the_finest_that_is_kept_for_so_long() -> None:
    assert picked(HOUR_MS, None) == (MINUTE_MS, MINUTE_MS)
    assert picked(2 * HOUR_MS, None) == (MINUTE_MS, MINUTE_MS)
    assert picked(2 * HOUR_MS + 1, None) == (HOUR_MS, HOUR_MS)
    assert picked(100 * DAY_MS, None) == (HOUR_MS, HOUR_MS)


def test_the_coarsest_kept_step_that_fits_answers() -> None:
    assert picked(HOUR_MS, 2 * HOUR_MS) == (2 * HOUR_MS, HOUR_MS)
    assert picked(HOUR_MS, 90 * MINUTE_MS) == (90 * MINUTE_MS, MINUTE_MS)
    # It reaches back further than the range that is kept: that is said in the points.
    assert picked(3 * HOUR_MS, 90 * MINUTE_MS) == (90 * MINUTE_MS, MINUTE_MS)
    assert picked(3 * HOUR_MS, 2 * HOUR_MS) == (2 * HOUR_MS, HOUR_MS)


@pytest.mark.parametrize("step_ms", [1, MINUTE_MS - 1, MINUTE_MS // 2, HOUR_MS + 1])
def test_other_steps_are_refused_with_those_that_are_kept(step_ms: int) -> None:
    with pytest.raises(InvalidRequest, match="60 s, 3600 s") as refused:
        picked(HOUR_MS, step_ms)
    assert (refused.value.reason, refused.value.field) == ("STEP_NOT_KEPT", "step")


def test_more_points_than_fit_are_refused() -> None:
    whole_minutes_ms = NOW_NS // NS_PER_MS % MINUTE_MS
    length_ms = (POINTS_MAX - 1) * MINUTE_MS
    assert picked(length_ms + whole_minutes_ms, MINUTE_MS, length_ms=length_ms)[0] == MINUTE_MS
    with pytest.raises(InvalidRequest, match="at most 10000") as refused:
        picked(length_ms + whole_minutes_ms + 1, MINUTE_MS, length_ms=length_ms + 1)
    assert (refused.value.reason, refused.value.field) == ("RANGE_TOO_LARGE", "start")
    with pytest.raises(InvalidRequest, match="at most 1000000 are"):
        picked(DAY_MS * 1_000, 121 * MINUTE_MS, length_ms=DAY_MS * 800)


def test_a_range_that_ends_before_it_starts() -> None:
    with pytest.raises(InvalidRequest) as refused:
        range_of(KEPT, start_ns=NOW_NS, end_ns=NOW_NS - 1, step_ms=None, now_ns=NOW_NS)
    assert (refused.value.reason, refused.value.field) == ("TIME_MALFORMED", "start")


def test_namespaces_without_a_history_have_none() -> None:
    for strategy, error in ((Strategy.EVENTUAL, HistoryOff), (Strategy.BEST_EFFORT, Unsupported)):
        namespace = Namespace(id=1, name="plays", strategy=strategy)
        with pytest.raises(error):
            range_of(namespace, start_ns=0, end_ns=NOW_NS, step_ms=None, now_ns=NOW_NS)
