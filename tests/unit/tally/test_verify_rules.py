"""The rules of `tally verify`: good histories pass, and each planted violation is found."""

import io
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.verify.check import Report, check
from tally.verify.history import (
    TOKEN_EXPIRED,
    Call,
    CallKind,
    HistoryMistake,
    Outcome,
    read_history,
    write_history,
)
from tally.verify.sums import EXACT_SUMS_MAX, INT64_MAX, INT64_MIN, NOTHING, Sums
from tally.verify.violation import Rule

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN


def call(kind: CallKind, outcome: Outcome, at: int, **more: Any) -> Call:
    return Call(
        client="c",
        call=kind,
        namespace="plays",
        counter="a",
        outcome=outcome,
        invoked_ns=at,
        completed_ns=more.pop("completed_ns", at + 1),
        **more,
    )


def add(at: int, time_ns: int, delta: int = 1, outcome: Outcome = OK, **more: Any) -> Call:
    token = more.pop("token", f"t{time_ns}")
    return call(
        CallKind.ADD,
        outcome,
        at,
        generation_time_ns=time_ns,
        token=token,
        delta=delta,
        **more,
    )


def clear(at: int, time_ns: int, outcome: Outcome = OK) -> Call:
    return call(CallKind.CLEAR, outcome, at, generation_time_ns=time_ns, token=f"t{time_ns}")


def status(at: int, time_ns: int, outcome: Outcome) -> Call:
    return call(CallKind.TOKEN_STATUS, outcome, at, generation_time_ns=time_ns, token=f"t{time_ns}")


def get(at: int, count: int, through: int, epoch: int = 0, **more: Any) -> Call:
    return call(CallKind.GET, OK, at, count=count, complete_through_ns=through, epoch=epoch, **more)


def numbered(*calls: Call) -> Report:
    return check(replace(each, line=line) for line, each in enumerate(calls, start=1))


def found(*calls: Call) -> list[tuple[Rule, tuple[int, ...]]]:
    """The violations: which rule, and the lines that contradict each other."""
    violations = numbered(*calls).violations
    return [(each.rule, tuple(call.line for call in each.calls)) for each in violations]


GOOD = (
    add(10, 100, 5),
    add(12, 100, 5),  # a retry
    add(20, 200, -2, UNKNOWN),
    get(22, 3, 99, accurate=True),  # the unknown one may show already
    add(30, 300, 7, FAIL, reason=TOKEN_EXPIRED),
    get(40, 5, 150, at_least_ns=150),
    clear(50, 400),
    add(60, 500, 1),
    get(70, 1, 150, epoch=1, accurate=True),
    get(80, 3, 399),
    status(90, 200, OK),
    status(91, 300, FAIL),
    get(100, 1, 600, epoch=1),
    get(110, 1, 600, epoch=1, accurate=True),
)


def test_a_good_history_passes_every_rule() -> None:
    report = numbered(*GOOD)
    assert report.violations == []
    assert all(report.checked.values()), report.checked
    assert (report.tokens, report.tokens_unsettled) == (5, 0)
    assert (report.counters, report.counters_read_whole) == (1, 1)


def test_i1_an_acknowledged_add_that_is_lost() -> None:
    calls = add(1, 100, 5), add(2, 200, 3), get(10, 5, 300)
    assert found(*calls) == [(Rule.EXACTLY_ONCE, (1, 2, 3))]
    [violation] = numbered(*calls).violations
    assert "One explanation: line 2 (add by c) was lost" in violation.why


def test_i1_a_retry_that_counts_twice() -> None:
    calls = add(1, 100, 5), add(3, 100, 5), get(10, 10, 300)
    assert found(*calls) == [(Rule.EXACTLY_ONCE, (1, 3))]
    [violation] = numbered(*calls).violations
    assert "counted twice" in violation.why


def test_i1_a_refused_add_that_counts() -> None:
    refused = add(1, 100, 5, FAIL)
    assert found(refused, add(3, 200, 1), get(10, 6, 300)) == [(Rule.EXACTLY_ONCE, (1, 2, 3))]
    # Another attempt was taken: the refusal speaks of its own call only.
    assert found(refused, add(3, 100, 5), get(10, 5, 300)) == []


def test_i1_one_token_with_two_deltas_counts_as_one_of_them() -> None:
    two = add(1, 100, 5), add(3, 100, 7)
    for count in (5, 7):
        assert found(*two, get(10, count, 300)) == []
    assert found(*two, get(10, 12, 300)) == [(Rule.EXACTLY_ONCE, (1, 3))]


def test_i1_an_unknown_add_counts_once_or_never_and_the_same_for_every_read() -> None:
    unknown = add(1, 100, 5, UNKNOWN)
    assert found(unknown, get(10, 5, 300), get(20, 5, 400)) == []
    assert found(unknown, get(10, 0, 300), get(20, 0, 400)) == []
    assert found(unknown, get(10, 10, 300)) == [(Rule.EXACTLY_ONCE, (1, 2))]
    # A read has shown that it counts: it is not forgotten again, whatever comes after it.
    later = add(2, 350, 1)
    assert found(unknown, later, get(10, 5, 300), get(20, 1, 400)) == [
        (Rule.EXACTLY_ONCE, (3, 2, 4))
    ]


def test_i1_a_settled_token_is_no_longer_unknown() -> None:
    unknown = add(1, 100, 5, UNKNOWN)
    assert found(unknown, status(5, 100, OK), get(10, 0, 300)) == [(Rule.EXACTLY_ONCE, (1, 3))]
    assert found(unknown, status(5, 100, FAIL), get(10, 5, 300)) == [(Rule.EXACTLY_ONCE, (1, 3))]


def test_i4_an_answer_older_than_it_was_asked_to_be() -> None:
    assert found(get(1, 0, 99, at_least_ns=100)) == [(Rule.NO_GOING_BACK, (1,))]


def test_i4_an_accurate_read_that_goes_back() -> None:
    assert found(get(1, 0, 99), get(10, 0, 98, accurate=True)) == [(Rule.NO_GOING_BACK, (1, 2))]
    # Caches of several servers may; and so may reads at the same time.
    assert found(get(1, 0, 99), get(10, 0, 98)) == []
    assert found(get(1, 0, 99, completed_ns=12), get(10, 0, 98, accurate=True)) == []


def test_i5_a_stamp_that_is_too_new() -> None:
    calls = add(1, 100, 5), get(5, 0, 150), add(7, 300)
    assert found(*calls) == [(Rule.HONEST_READS, (1, 2))]


def test_i5_an_event_counted_before_its_time() -> None:
    calls = add(1, 100, 5), get(5, 5, 50)
    assert found(*calls) == [(Rule.HONEST_READS, (2,))]
    [violation] = numbered(*calls).violations
    assert "line 1 (add by c) counted, which comes later" in violation.why


def test_i5_an_add_acknowledged_into_a_window_that_a_read_called_complete() -> None:
    calls = get(5, 0, 150), add(10, 100, 5), add(12, 300)
    assert found(*calls) == [(Rule.HONEST_READS, (2, 1))]


def test_i5_an_accurate_read_without_an_add_that_was_completed() -> None:
    before = add(1, 100, 5, completed_ns=8)
    assert found(before, get(10, 0, 50, accurate=True)) == [(Rule.HONEST_READS, (1, 2))]
    # While it is under way it may show or not.
    for count in (0, 5):
        assert found(before, get(7, count, 50, accurate=True)) == []
    # What was refused before cannot show; until then it may.
    expired = add(1, 100, 5, FAIL, reason=TOKEN_EXPIRED, completed_ns=8)
    assert found(expired, get(7, 5, 50, accurate=True)) == []
    assert found(expired, get(10, 5, 50, accurate=True)) == [(Rule.HONEST_READS, (2,))]


def test_i6_a_clear_by_the_order_of_arrival() -> None:
    # The clear came last and has the earlier time: the add after it counts.
    calls = add(1, 200, 5), clear(3, 100), get(10, 0, 300, epoch=1)
    assert found(*calls) == [(Rule.CLEARS, (2, 1, 3))]
    assert found(*calls[:2], get(10, 5, 300, epoch=1)) == []


def test_i6_a_retried_clear_that_is_two() -> None:
    assert found(clear(1, 100), clear(3, 100), get(10, 0, 300, epoch=2)) == [(Rule.CLEARS, (1, 3))]


def test_i6_an_unknown_clear_happened_or_not() -> None:
    two = add(1, 100, 5), clear(2, 200, UNKNOWN)
    assert found(*two, get(10, 5, 300, epoch=0)) == []
    assert found(*two, get(10, 0, 300, epoch=1)) == []
    assert found(*two, get(10, 5, 300, epoch=1)) == [(Rule.CLEARS, (1, 2, 3))]


def test_i7_a_token_with_two_outcomes() -> None:
    calls = add(1, 100), add(3, 100, outcome=FAIL, reason=TOKEN_EXPIRED)
    assert found(*calls) == [(Rule.DEFINITE_OUTCOMES, (1, 2))]
    assert found(add(1, 100), status(3, 100, FAIL)) == [(Rule.DEFINITE_OUTCOMES, (1, 2))]
    assert found(status(1, 100, OK)) == [(Rule.DEFINITE_OUTCOMES, (1,))]


def test_reads_that_are_equally_complete_agree() -> None:
    unknown = add(1, 100, 5, UNKNOWN)
    assert found(unknown, get(10, 5, 300), get(20, 0, 300)) == [(Rule.AGREEMENT, (2, 3))]
    assert found(unknown, get(10, 5, 300), get(20, 0, 320, accurate=True)) == [
        (Rule.AGREEMENT, (2, 3))
    ]


def test_answers_without_a_stamp_are_not_judged() -> None:
    unstamped = replace(get(10, 77, 0), complete_through_ns=None)
    assert found(add(1, 100), unstamped) == []


def test_counts_are_clamped_to_64_bits() -> None:
    two = add(1, 100, INT64_MAX), add(2, 200, 10)
    assert found(*two, get(10, INT64_MAX, 300)) == []
    assert (
        found(*two, add(3, 350, -20), get(10, INT64_MAX, 300), get(20, INT64_MAX - 10, 400)) == []
    )
    assert found(*two, get(10, INT64_MIN, 300)) == [(Rule.EXACTLY_ONCE, (1, 2, 3))]


def test_very_many_unknown_outcomes_become_a_range() -> None:
    state = NOTHING
    for power in range(64):
        state = state.after([3 * 2**power], surely=False)
    [sums] = state.by_epoch.values()
    assert (sums.low, sums.high) == (0, 3 * (2**64 - 1))
    assert sums.answered_with(3 * 12345) is not None
    assert sums.answered_with(3 * 12345 + 1) is None  # all deltas are multiples of 3
    assert sums.answered_with(-3) is None
    assert sums.answered_with(INT64_MAX) is not None
    assert sums.answered_with(INT64_MIN) is None


@given(st.lists(st.integers(-50, 50), max_size=12), st.integers(-200, 200))
def test_small_sets_of_sums_are_exact(deltas: list[int], count: int) -> None:
    state, possible = NOTHING, {0}
    for delta in deltas:
        state = state.after([delta], surely=False)
        possible |= {each + delta for each in possible}
    assert len(possible) <= EXACT_SUMS_MAX
    assert (state.answered_with(count, None) is not None) == (count in possible)


@given(st.sets(st.integers(), min_size=1, max_size=20), st.sets(st.integers(), min_size=1))
def test_a_range_contains_its_sums(one: set[int], other: set[int]) -> None:
    wide = Sums(one)._range(min(one), max(one), Sums(one).step).united(Sums(other)).plus(5)
    assert all(each + 5 in wide for each in one | other)


# Histories of a correct platform: windows are 10 long, times are small, and events are listed some
# steps before their record is made, so that an accurate read may show what will not count.

_steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "retry", "clear", "close", "list", "record", "read"]),
        st.integers(0, 59),  # an event's time, or which token is retried
        st.sampled_from([-3, -1, 1, 2, 5, 1000, INT64_MAX]),
        st.integers(0, 30),  # the call began so much before it took effect
        st.integers(0, 30),  # and ended so much after it
        st.booleans(),  # whether the answer arrives; accurate or not
    ),
    max_size=60,
)


class CorrectPlatform:
    """One counter: windows close, are listed and are recorded, one after the other."""

    def __init__(self) -> None:
        self.deltas: dict[tuple[int, str], int | None] = {}
        self.landed: set[tuple[int, str]] = set()
        self.listed: set[tuple[int, str]] | None = None
        self.applied: set[tuple[int, str]] = set()
        self.closed = self.recorded = -1  # the last window
        self.arrived: list[tuple[int, str]] = []

    @property
    def complete_through(self) -> int:
        return self.recorded * 10 + 9

    def send(self, event: tuple[int, str]) -> tuple[Outcome, str]:
        self.arrived.append(event)
        window = event[0] // 10
        if window <= self.recorded:
            return (OK, "") if event in self.applied else (FAIL, TOKEN_EXPIRED)
        self.landed.add(event)
        return (OK if window > self.closed else UNKNOWN), ""

    def list_next(self) -> None:
        if self.recorded < self.closed:
            self.listed = {e for e in self.landed if e[0] // 10 == self.recorded + 1}

    def record_next(self) -> None:
        if self.listed is not None:
            self.recorded += 1
            self.applied |= self.listed
            self.listed = None

    def value(self, *, accurate: bool) -> tuple[int, int]:
        count = epoch = 0
        for event in self.in_order(self.applied | self.tail() if accurate else self.applied):
            delta = self.deltas[event]
            count, epoch = (0, epoch + 1) if delta is None else (count + delta, epoch)
        return max(INT64_MIN, min(INT64_MAX, count)), epoch

    def tail(self) -> set[tuple[int, str]]:
        return {event for event in self.landed if event[0] // 10 > self.recorded}

    def in_order(self, events: set[tuple[int, str]]) -> list[tuple[int, str]]:
        return sorted(events)


def history_of(
    steps: list[tuple[str, int, int, int, int, bool]],
    kind: type[CorrectPlatform] = CorrectPlatform,
) -> list[Call]:
    platform, calls = kind(), []
    for number, (what, time_ns, delta, before, after, flag) in enumerate(steps, start=10):
        when = {"invoked_ns": 10 * number - before, "completed_ns": 10 * number + after}
        common = {"client": "c", "namespace": "plays", "counter": "a", **when}
        if what in ("add", "clear", "retry"):
            events = sorted(platform.deltas)
            event = (time_ns, f"t{number}")
            if what == "retry" and events:
                event = events[time_ns % len(events)]
            platform.deltas.setdefault(event, None if what == "clear" else delta)
            outcome, reason = platform.send(event)
            sent = platform.deltas[event]
            calls.append(
                Call(
                    **common,
                    call=CallKind.CLEAR if sent is None else CallKind.ADD,
                    outcome=outcome if flag else UNKNOWN,
                    reason=reason if flag else "",
                    token=event[1],
                    generation_time_ns=event[0],
                    delta=sent,
                )
            )
        elif what == "close":
            platform.closed += 1
        elif what == "list":
            platform.list_next()
        elif what == "record":
            platform.record_next()
        else:
            count, epoch = platform.value(accurate=flag)
            calls.append(
                Call(
                    **common,
                    call=CallKind.GET,
                    outcome=OK,
                    accurate=flag,
                    count=count,
                    epoch=epoch,
                    complete_through_ns=platform.complete_through,
                )
            )
    return calls


@settings(max_examples=300)
@given(_steps)
def test_histories_of_a_correct_platform_pass(
    steps: list[tuple[str, int, int, int, int, bool]],
) -> None:
    calls = history_of(steps)
    assert check(calls).violations == []
    stream = io.BytesIO()
    write_history(calls, stream)
    stream.seek(0)
    assert [replace(each, line=0) for each in read_history(stream)] == calls


class AcknowledgesTooLate(CorrectPlatform):
    def send(self, event: tuple[int, str]) -> tuple[Outcome, str]:
        outcome, reason = super().send(event)
        return (OK, "") if outcome is UNKNOWN else (outcome, reason)


class CountsCopies(CorrectPlatform):
    def in_order(self, events: set[tuple[int, str]]) -> list[tuple[int, str]]:
        return sorted(event for event in self.arrived if event in events)


class ClearsByArrival(CorrectPlatform):
    def in_order(self, events: set[tuple[int, str]]) -> list[tuple[int, str]]:
        return sorted(events, key=self.arrived.index)


class StampsTooNew(CorrectPlatform):
    @property
    def complete_through(self) -> int:
        return self.closed * 10 + 9


class ReadsWithoutTail(CorrectPlatform):
    def tail(self) -> set[tuple[int, str]]:
        return set()


class ForgetsOutcomes(CorrectPlatform):
    def send(self, event: tuple[int, str]) -> tuple[Outcome, str]:
        outcome, reason = super().send(event)
        is_folded = event[0] // 10 <= self.recorded
        return (FAIL, TOKEN_EXPIRED) if is_folded else (outcome, reason)


class LosesRecords(CorrectPlatform):
    def record_next(self) -> None:
        if self.listed is not None and self.recorded == 2:
            self.listed, self.recorded = None, 0  # a restore from an old copy
        super().record_next()


def random_steps(chance: random.Random) -> list[tuple[str, int, int, int, int, bool]]:
    whats = ["add", "add", "add", "retry", "clear", "close", "list", "record", "read"]
    return [
        (
            chance.choice(whats),
            chance.randrange(60),
            chance.choice([-3, -1, 1, 2, 5, 1000]),
            chance.randrange(30),
            chance.randrange(30),
            chance.random() < 0.8,
        )
        for _ in range(80)
    ]


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (AcknowledgesTooLate, {Rule.HONEST_READS}),
        (CountsCopies, {Rule.HONEST_READS, Rule.CLEARS}),
        (ClearsByArrival, {Rule.CLEARS}),
        (StampsTooNew, {Rule.HONEST_READS}),
        (ReadsWithoutTail, {Rule.HONEST_READS}),
        (ForgetsOutcomes, {Rule.DEFINITE_OUTCOMES}),
        (LosesRecords, {Rule.NO_GOING_BACK}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_platform_with_a_mistake_is_found_within_20_histories(
    kind: type[CorrectPlatform], rules: set[Rule]
) -> None:
    broken: set[Rule] = set()
    for seed in range(20):
        chance = random.Random(seed)
        steps = random_steps(chance)
        assert check(history_of(steps)).violations == []
        broken |= {each.rule for each in check(history_of(steps, kind)).violations}
    assert broken >= rules


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        (b"\xff", "is not UTF-8"),
        ('{"clinet": "c"}', "has a field 'clinet'"),
        ('{"client": "c"}', "has no call"),
        ("GET outcome=maybe", "has 'maybe' as outcome; it is one of: ok, fail, unknown"),
        ("GET call=put", "has 'put' as call"),
        ("GET invoked_ns=1.5", "has 1.5 as invoked_ns, which is not a whole number"),
        ("GET completed_ns=1", "was completed before it was invoked"),
        ("GET completed_ns=null", "has the outcome 'ok' and no completed_ns"),
        ("GET count=null", "is a get that was answered, and has no count"),
        ("GET counter=7", "has 7 as counter, which is not a string"),
        ("GET accurate=1", "neither true nor false"),
        ("GET call=add", "has no token, which add needs"),
        ("GET call=add token=t", "has no delta, which add needs"),
        ("GET call=clear token=t delta=1", "has a delta, which clear does not take"),
        ("GET call=growth", "has no from_ns, which growth needs"),
        ("GET call=growth from_ns=1 count=null", "is a growth that was answered, and has no count"),
    ],
)
def test_a_line_that_is_no_call_is_named(line: str | bytes, problem: str) -> None:
    if isinstance(line, str) and line.startswith("GET"):
        document: dict[str, Any] = {
            "client": "c",
            "call": "get",
            "namespace": "plays",
            "counter": "a",
            "invoked_ns": 5,
            "completed_ns": 6,
            "outcome": "ok",
            "count": 0,
        }
        for each in line.split()[1:]:
            name, _, text = each.partition("=")
            try:
                document[name] = json.loads(text)
            except ValueError:
                document[name] = text
        line = json.dumps(document)
    body = b"\n" + (line.encode() if isinstance(line, str) else line) + b"\n"
    with pytest.raises(HistoryMistake, match="line 2 ") as mistake:
        list(read_history(io.BytesIO(body)))
    assert problem in str(mistake.value)
