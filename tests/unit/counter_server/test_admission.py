"""Admission: each mistake with its reason and field, and each trouble of the server's own."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counter.clock import NS_PER_MS, NS_PER_S, ManualClock
from counter.errors import (
    ClockSkewed,
    FoldLagging,
    InvalidRequest,
    TallyError,
    TokenFromFuture,
    WrongRegion,
)
from counter.namespaces import Namespace, Strategy
from counter.storage.ports import Closed
from counter_server.admission import Admission
from counter_server.ledger_watch import LedgerWatch
from counter_server.strategies import Accurate
from tests.unit.counter_server.parts import PLATFORM, Parts

PLAYS = Namespace(id=1, name="plays", strategy=Strategy.EVENTUAL, max_delta=100)


def refused(
    parts: Parts,
    counter: str = "views",
    delta: int | None = 1,
    token: tuple[str, int, str] | None = None,
) -> TallyError | None:
    try:
        parts.admission.event(PLAYS, counter, delta, token, parts.clock.now_ns())
    except TallyError as error:
        return error
    return None


@pytest.mark.parametrize("counter", ["v", "v" * 256, "é" * 128, "🎬" * 64, "\x00", " "])
def test_names_up_to_256_bytes_are_taken(parts: Parts, counter: str) -> None:
    assert refused(parts, counter) is None


@pytest.mark.parametrize(
    ("counter", "reason"),
    [
        ("", "NAME_EMPTY"),
        ("v" * 257, "NAME_TOO_LONG"),
        ("é" * 128 + "v", "NAME_TOO_LONG"),
        ("🎬" * 64 + "v", "NAME_TOO_LONG"),
        ("v" * 1_000_000, "NAME_TOO_LONG"),
    ],
)
def test_other_names_are_refused(parts: Parts, counter: str, reason: str) -> None:
    error = refused(parts, counter)
    assert isinstance(error, InvalidRequest)
    assert (error.reason, error.field) == (reason, "counter_name")
    assert len(error.message) < 200


@pytest.mark.parametrize("delta", [1, -1, 100, -100, None])
def test_deltas_up_to_max_delta_are_taken(parts: Parts, delta: int | None) -> None:
    assert refused(parts, delta=delta) is None


@pytest.mark.parametrize(
    ("delta", "reason"),
    [
        (0, "DELTA_ZERO"),
        (101, "DELTA_TOO_LARGE"),
        (-101, "DELTA_TOO_LARGE"),
        (2**63 - 1, "DELTA_TOO_LARGE"),
        (-(2**63), "DELTA_TOO_LARGE"),
    ],
)
def test_other_deltas_are_refused(parts: Parts, delta: int, reason: str) -> None:
    error = refused(parts, delta=delta)
    assert isinstance(error, InvalidRequest)
    assert (error.reason, error.field) == (reason, "delta")


@pytest.mark.parametrize("text", ["", "t" * 65, "é" * 33, "🎬" * 17])
def test_malformed_tokens_are_refused(parts: Parts, text: str) -> None:
    error = refused(parts, token=(text, parts.clock.now_ns(), ""))
    assert isinstance(error, InvalidRequest)
    assert (error.reason, error.field) == ("TOKEN_MALFORMED", "idempotency_token.token")


@pytest.mark.parametrize("text", ["t", "t" * 64, "é" * 32, "🎬" * 16])
@pytest.mark.parametrize("region", ["", "test"])
def test_a_good_token_becomes_the_event(parts: Parts, text: str, region: str) -> None:
    now_ns = parts.clock.now_ns()
    event = parts.admission.event(PLAYS, "views", -5, (text, now_ns - 7, region), now_ns)
    assert (event.counter, event.time_ns, event.token, event.delta) == (
        "views",
        now_ns - 7,
        text,
        -5,
    )


def test_a_token_of_another_region_is_refused(parts: Parts) -> None:
    error = refused(parts, token=("t", parts.clock.now_ns(), "mars"))
    assert isinstance(error, WrongRegion)
    assert "mars" in error.message


def test_a_token_may_be_ahead_by_accept_limit_and_no_more(parts: Parts) -> None:
    now_ns = parts.clock.now_ns()
    latest_ns = now_ns + PLATFORM.accept_limit_ns
    assert refused(parts, token=("t", latest_ns, "")) is None
    error = refused(parts, token=("t", latest_ns + 1, ""))
    assert isinstance(error, TokenFromFuture)
    assert error.server_time_ns == now_ns


def test_an_old_token_is_no_mistake_of_the_request(parts: Parts) -> None:
    assert refused(parts, token=("t", 0, "")) is None


def test_without_a_token_the_server_makes_one(parts: Parts) -> None:
    now_ns = parts.clock.now_ns()
    made = [parts.admission.event(PLAYS, "views", 1, None, now_ns) for _ in range(3)]
    assert [each.time_ns for each in made] == [now_ns, now_ns + 1, now_ns + 2]
    assert len({each.token for each in made}) == 3


# What the server knows about itself.


def test_nothing_is_accepted_before_the_store_was_asked(parts: Parts) -> None:
    assert isinstance(Admission(PLATFORM, parts.layout, parts.clock).problem(), ClockSkewed)
    assert parts.admission.problem() is None


@pytest.mark.parametrize(("skew_ms", "side"), [(501, "ahead of"), (-501, "behind")])
def test_a_skewed_clock_accepts_nothing_until_it_is_right(
    parts: Parts, skew_ms: int, side: str
) -> None:
    store_ns = parts.clock.now_ns() - skew_ms * NS_PER_MS
    parts.admission.observe(Closed(parts.layout.from_window, store_ns))
    problem = parts.admission.problem()
    assert isinstance(problem, ClockSkewed)
    assert f"0.5 s {side} the store's" in problem.message
    assert problem.retry_after_ms is not None
    parts.clock.advance_ms(-skew_ms)
    parts.admission.observe(Closed(parts.layout.from_window, store_ns))
    assert parts.admission.problem() is None


def test_a_server_whose_clock_is_behind_does_not_blame_its_callers(parts: Parts) -> None:
    right_ns = parts.clock.now_ns() + 60 * NS_PER_S
    parts.admission.observe(Closed(parts.layout.from_window, right_ns))
    in_time = ("t", right_ns, "")
    assert isinstance(refused(parts, token=in_time), ClockSkewed)
    admitted, errors = parts.admission.events(
        PLAYS, [("views", 1, "t", right_ns, "")], parts.clock.now_ns()
    )
    assert admitted == []
    assert isinstance(errors[0], ClockSkewed)


@pytest.mark.parametrize("skew_ms", [500, -500, 0])
def test_a_skew_within_the_limit_is_accepted(parts: Parts, skew_ms: int) -> None:
    store_ns = parts.clock.now_ns() - skew_ms * NS_PER_MS
    parts.admission.observe(Closed(parts.layout.from_window, store_ns))
    assert parts.admission.problem() is None


def test_a_clock_behind_the_closed_windows_accepts_nothing(parts: Parts) -> None:
    parts.admission.observe(Closed(parts.window - 1, parts.clock.now_ns()))
    assert parts.admission.problem() is None
    parts.admission.observe(Closed(parts.window + 60, parts.clock.now_ns()))
    problem = parts.admission.problem()
    assert isinstance(problem, ClockSkewed)
    assert "closed up to 61.0 s from now" in problem.message
    parts.clock.advance_ms(61_000)
    parts.admission.observe(Closed(parts.layout.from_window, parts.clock.now_ns()))
    assert parts.admission.problem() is None


def test_what_is_known_to_be_closed_never_goes_back(parts: Parts) -> None:
    parts.admission.observe(Closed(parts.window - 1, parts.clock.now_ns()))
    parts.admission.observe(Closed(parts.window - 3, parts.clock.now_ns()))
    assert parts.admission.closed_through == parts.window - 1


def test_folds_half_of_log_retention_behind_stop_writes(parts: Parts) -> None:
    half_ns = PLATFORM.log_retention_s * NS_PER_S // 2
    parts.admission.observe_fold_lag(half_ns - 1)
    assert parts.admission.problem() is None
    for lag_ns in (half_ns, half_ns + 1, 100 * half_ns):
        parts.admission.observe_fold_lag(lag_ns)
        for refused in (parts.admission.problem(), parts.admission.refusal()):
            assert isinstance(refused, FoldLagging)
            assert refused.retry_after_ms is not None
            assert 5_000 <= refused.retry_after_ms <= 30_000
    parts.admission.observe_fold_lag(0)
    assert parts.admission.problem() is parts.admission.refusal() is None


@pytest.mark.parametrize(
    ("of_retention", "share", "retry_ms"),
    [(0.1, 0.0, None), (0.25, 0.0, None), (0.3125, 0.25, 1_625), (0.375, 0.5, 2_750)],
)
def test_folds_a_quarter_of_log_retention_behind_slow_writes_down(
    parts: Parts, of_retention: float, share: float, retry_ms: int | None
) -> None:
    """A growing share of the calls is refused, for a growing time; health is not touched."""
    admission = Admission(PLATFORM, parts.layout, parts.clock, Random(7))
    admission.observe(Closed(parts.layout.from_window, parts.clock.now_ns()))
    admission.observe_fold_lag(round(of_retention * PLATFORM.log_retention_s * NS_PER_S))
    calls = [admission.refusal() for _ in range(2_000)]
    some = [each for each in calls if each is not None]
    assert len(some) == pytest.approx(2_000 * share, abs=100)
    for each in some:
        assert isinstance(each, FoldLagging)
        assert each.retry_after_ms == retry_ms
    assert admission.problem() is None
    admission.observe_fold_lag(0)
    assert all(admission.refusal() is None for _ in range(100))


@given(st.lists(st.integers(0, 2 * PLATFORM.log_retention_s), min_size=2, max_size=2))
def test_the_longer_the_lag_the_more_is_refused_and_the_longer(lags_s: list[int]) -> None:
    layout, clock = PLATFORM.layout(0), ManualClock()
    seen = []
    for lag_s in sorted(lags_s):
        admission = Admission(PLATFORM, layout, clock, Random(7))
        admission.observe(Closed(layout.from_window, clock.now_ns()))
        admission.observe_fold_lag(lag_s * NS_PER_S)
        refused = [each for _ in range(50) if (each := admission.refusal()) is not None]
        seen.append((len(refused), max((each.retry_after_ms or 0 for each in refused), default=0)))
    (few, shorter), (more, longer) = seen
    assert few <= more
    assert shorter <= longer


async def test_a_batch_is_refused_or_taken_as_a_whole_and_reads_go_on(parts: Parts) -> None:
    half_ns = PLATFORM.log_retention_s * NS_PER_S // 2
    parts.admission.observe_fold_lag(half_ns * 3 // 4)
    strategy = Accurate(parts.namespace, path=parts.path())
    taken = refused = 0
    for number in range(60):
        events = [parts.event("views", token=f"{number} {at}") for at in range(5)]
        try:
            assert await strategy.add(events, wait_s=0) == [False] * 5
            taken += 5
        except FoldLagging:
            refused += 1
        [value] = await strategy.read_accurately(["views"])
        assert value.count == taken
    assert taken
    assert refused


async def test_the_watch_sees_closes_skew_and_lag(parts: Parts) -> None:
    watch = LedgerWatch(parts.ledger, parts.admission, parts.layout, PLATFORM, parts.clock)
    await watch.look()
    assert parts.admission.problem() is None
    parts.clock.advance_ms(PLATFORM.log_retention_s * 1_000 * 3 // 4)
    await parts.close(parts.window - 6)  # closed, but nobody folds
    await watch.look()
    assert parts.admission.closed_through == parts.window - 6
    assert isinstance(parts.admission.problem(), FoldLagging)
    await parts.fold_through(parts.window - 6)
    await watch.look()
    assert parts.admission.problem() is None
