"""The rules of `tally verify` for the past, for ranges of time and for reads made with an add."""

from dataclasses import replace
from typing import Any

import pytest

from tally.verify.check import check
from tally.verify.history import TOKEN_EXPIRED, Call, CallKind, Outcome
from tally.verify.violation import Rule
from tests.unit.tally.test_verify_rules import FAIL, OK, UNKNOWN, add, call, clear, found, get

EVENTS = add(1, 100, 5), add(2, 200, -2), clear(3, 300), add(4, 400, 7)


def growth(at: int, count: int, from_ns: int, through: int) -> Call:
    return call(CallKind.GROWTH, OK, at, count=count, from_ns=from_ns, complete_through_ns=through)


def test_a_count_as_of_a_past_time_is_the_count_of_then() -> None:
    now = get(10, 7, 500, epoch=1)
    for as_of, through, count, epoch in ((99, 99, 0, 0), (250, 199, 5, 0), (250, 250, 3, 0)):
        assert found(*EVENTS, now, get(20, count, through, epoch, as_of_ns=as_of)) == []
    later = get(20, 3, 250, as_of_ns=249)
    assert found(*EVENTS, now, later) == [(Rule.HONEST_READS, (6,))]
    stale = get(20, 3, 199, as_of_ns=250)  # it has an event that is later than its stamp
    assert (Rule.HONEST_READS, (1, 6)) in found(*EVENTS, now, stale)


def test_a_read_that_is_made_with_an_add_shows_it() -> None:
    before, made = add(1, 100, 5), add(10, 600, 4, completed_ns=20)
    own = {"token": "t600", "generation_time_ns": 600, "completed_ns": 20, "accurate": True}
    assert found(before, made, get(10, 9, 500, **own)) == []
    assert found(before, made, get(10, 5, 500, **own)) == [(Rule.HONEST_READS, (1, 2, 3))]
    # Another read at the same time may be without it.
    other = own | {"token": "", "generation_time_ns": 0}
    assert found(before, made, get(10, 5, 500, **other)) == []


@pytest.mark.parametrize(
    ("from_ns", "through", "count"),
    [(0, 500, 10), (101, 500, 5), (200, 200, -2), (201, 399, 0), (401, 500, 0), (600, 500, 0)],
)
def test_growth_is_what_was_added_and_clears_leave_it_alone(
    from_ns: int, through: int, count: int
) -> None:
    assert found(*EVENTS, growth(10, count, from_ns, through)) == []
    wrong = found(*EVENTS, growth(10, count + 1, from_ns, through))
    assert [rule for rule, _ in wrong] == [Rule.HONEST_READS]


def test_growth_has_some_of_the_unknown() -> None:
    unknown = add(5, 150, 1_000, UNKNOWN)
    for count in (3, 1_003):
        assert found(*EVENTS, unknown, growth(10, count, 0, 299)) == []
    assert len(found(*EVENTS, unknown, growth(10, 1_000, 0, 299))) == 1


@pytest.mark.parametrize(
    ("from_ns", "count", "rule"),
    [(0, 7, None), (101, 7, None), (301, 7, None), (401, 0, None), (101, 5, "I6"), (301, 0, "I5")],
)
def test_a_rolling_window_counts_from_its_start(from_ns: int, count: int, rule: str | None) -> None:
    wrong = found(*EVENTS, get(10, count, 500, epoch=1, from_ns=from_ns))
    assert [each.value for each, _ in wrong] == ([] if rule is None else [rule])


def test_a_rolling_window_does_not_hold_what_has_left_it() -> None:
    two = add(1, 100, 5), add(2, 200, 3)
    assert found(*two, get(10, 3, 300, from_ns=150)) == []
    assert found(*two, get(10, 8, 300, from_ns=150)) == [(Rule.HONEST_READS, (2, 3))]


def test_a_rolling_window_has_the_tail() -> None:
    known = add(1, 100, 5)
    late: dict[str, Any] = {"from_ns": 50, "accurate": True}
    assert found(known, get(10, 5, 60, **late)) == []
    assert found(known, get(10, 0, 60, **late)) == [(Rule.HONEST_READS, (1, 2))]
    # What was refused, or comes later, does not show; what is under way may.
    under_way = replace(add(9, 110, 2), completed_ns=30)
    for count in (5, 7):
        assert found(known, under_way, get(10, count, 60, **late)) == []
    refused = add(2, 120, 2, FAIL, reason=TOKEN_EXPIRED)
    assert len(found(known, refused, get(10, 7, 60, **late))) == 1


def test_ranges_keep_the_order_too() -> None:
    one, other = get(1, 0, 99, from_ns=0), get(10, 0, 98, from_ns=0, accurate=True)
    assert found(one, other) == [(Rule.NO_GOING_BACK, (1, 2))]
    assert found(get(1, 0, 99, at_least_ns=100, from_ns=0)) == [(Rule.NO_GOING_BACK, (1,))]


def test_ranges_without_a_stamp_are_not_judged() -> None:
    unstamped = replace(growth(10, 77, 0, 0), complete_through_ns=None)
    assert check([*EVENTS, unstamped]).violations == []
    assert check([replace(unstamped, outcome=Outcome.UNKNOWN)]).violations == []
