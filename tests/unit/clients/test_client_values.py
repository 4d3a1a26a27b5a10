"""Times and values: nothing is lost between the wire and Python."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from clients import translate
from clients.errors import Internal, InvalidRequest
from clients.times import datetime_of, duration_of, ns_of_datetime, ns_of_timestamp
from clients.values import Add, CountValue, Source, Strategy
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb

EXACT_NS = 1_700_000_000_123_456_789


def value_at(complete_through_ns: int | None) -> CountValue:
    return CountValue(
        count=1,
        complete_through_ns=complete_through_ns,
        epoch=0,
        cleared_at_ns=None,
        strategy=None,
        source=None,
        saturated=False,
    )


@pytest.mark.parametrize("time_ns", [EXACT_NS, 0, -1, 999, 253_402_300_799_999_999_999])
def test_datetimes_are_rounded_down(time_ns: int) -> None:
    moment = datetime_of(time_ns)
    assert moment is not None
    assert 0 <= time_ns - ns_of_datetime(moment) < 1_000


def test_a_count_value_keeps_the_nanoseconds() -> None:
    message = pb.CountValue(count=-7, epoch=2, strategy=pb.STRATEGY_ACCURATE, saturated=True)
    message.complete_through.FromNanoseconds(EXACT_NS)
    message.source = pb.SOURCE_ROLLUP_AND_TAIL
    value = translate.count_value(message)
    assert value.complete_through_ns == EXACT_NS
    assert value.complete_through == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert (value.count, value.epoch, value.saturated) == (-7, 2, True)
    assert (value.strategy, value.source) == (Strategy.ACCURATE, Source.ROLLUP_AND_TAIL)
    assert value.cleared_at is None


def test_a_rolling_window_has_a_start_and_a_rate() -> None:
    message = pb.CountValue(count=30, strategy=pb.STRATEGY_ROLLING_WINDOW, rate_per_s=0.1)
    message.source = pb.SOURCE_HISTORY
    message.window_start.FromNanoseconds(EXACT_NS)
    value = translate.count_value(message)
    assert (value.strategy, value.source) == (Strategy.ROLLING_WINDOW, Source.HISTORY)
    assert (value.window_start_ns, value.rate_per_s) == (EXACT_NS, 0.1)
    assert value.window_start == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    idle = pb.CountValue(strategy=pb.STRATEGY_ROLLING_WINDOW)
    idle.window_start.FromNanoseconds(EXACT_NS)
    assert translate.count_value(idle).rate_per_s == 0.0
    other = translate.count_value(pb.CountValue(strategy=pb.STRATEGY_EVENTUAL))
    assert (other.window_start_ns, other.window_start, other.rate_per_s) == (None, None, None)


def test_absent_is_not_1970() -> None:
    value = translate.count_value(pb.CountValue())
    assert value.complete_through_ns is None
    assert value.complete_through is None
    assert value.strategy is None


def test_at_least_takes_all_three_forms() -> None:
    exact = translate.at_least_message(value_at(EXACT_NS))
    assert exact is not None
    assert ns_of_timestamp(exact) == EXACT_NS
    assert translate.at_least_message(EXACT_NS) == exact
    elsewhere = datetime(2023, 11, 15, 0, 13, 20, 123456, tzinfo=timezone(timedelta(hours=2)))
    rounded = translate.at_least_message(elsewhere)
    assert rounded is not None
    assert ns_of_timestamp(rounded) == EXACT_NS - 789


def test_a_value_of_unknown_freshness_asks_for_nothing() -> None:
    assert translate.at_least_message(value_at(None)) is None
    assert translate.at_least_message(None) is None


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="has no time zone") as caught:
        translate.at_least_message(datetime(2024, 1, 1))
    assert (caught.value.reason, caught.value.field) == ("FRESHNESS_MALFORMED", "at_least")


@pytest.mark.parametrize("delta", [timedelta(milliseconds=1500), timedelta(milliseconds=-1500)])
def test_durations_are_exact(delta: timedelta) -> None:
    assert duration_of(delta).ToTimedelta() == delta


@pytest.mark.parametrize("delta", [2**63, -(2**63) - 1])
def test_a_delta_that_the_wire_cannot_carry_is_an_invalid_request(delta: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        translate.check_delta(delta)
    assert (caught.value.reason, caught.value.field) == ("DELTA_TOO_LARGE", "delta")


def test_a_name_that_the_wire_cannot_carry_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        translate.check_name("bad \ud800")


def test_a_token_that_the_wire_cannot_carry_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest) as caught:
        translate.token_message(Token(token="x", generation_time_ns=2**100))
    assert caught.value.reason == "TOKEN_MALFORMED"


def test_tokens_come_back_as_they_were_used() -> None:
    sent = Token(token="x", generation_time_ns=EXACT_NS)
    echoed = translate.token_message(Token(token="x", generation_time_ns=EXACT_NS, region="eu"))
    assert translate.token_used(echoed, sent).region == "eu"
    assert translate.token_used(echoed, sent).generation_time_ns == EXACT_NS
    assert translate.token_used(pb.IdempotencyToken(), sent) == sent


def test_a_status_from_a_newer_server_is_not_guessed() -> None:
    with pytest.raises(Internal, match="update"):
        translate.token_status(pb.GetTokenStatusResponse())


def test_a_wrong_item_is_found_before_anything_is_sent() -> None:
    with pytest.raises(TypeError, match=r"delta \(int\)"):
        Add("title-42", 1.5)  # type: ignore[arg-type]
