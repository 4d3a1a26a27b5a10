"""The decisions after a failed attempt, without a network."""

from dataclasses import replace
from random import Random

import pytest
from grpc import StatusCode

from clients.failures import Failure
from clients.retry import (
    ATTEMPT_MIN_S,
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    GiveUp,
    History,
    Proof,
    Retry,
    after_read,
    after_write,
    attempt_timeout_s,
    delay_before,
    proof_of,
)
from counter.clock import NS_PER_S

NOW_NS = 1_700_000_000 * NS_PER_S
OWN = History(own_token=True)
CALLERS = History(own_token=False)

NO_ANSWER = Failure(code=StatusCode.UNAVAILABLE, message="connection refused")
STORE_DOWN = Failure(code=StatusCode.UNAVAILABLE, reason="STORE_UNAVAILABLE")
BUSY = Failure(code=StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED", retry_after_s=0.2)
NOT_READY = Failure(code=StatusCode.UNAVAILABLE, reason="NOT_READY", retry_after_s=0.2)
EXPIRED = Failure(
    code=StatusCode.FAILED_PRECONDITION, reason="TOKEN_EXPIRED", server_time_ns=NOW_NS
)
FUTURE = Failure(code=StatusCode.OUT_OF_RANGE, reason="TOKEN_FROM_FUTURE", server_time_ns=NOW_NS)
TOO_OLD = Failure(code=StatusCode.OUT_OF_RANGE, reason="TOKEN_TOO_OLD")
INVALID = Failure(code=StatusCode.INVALID_ARGUMENT, reason="DELTA_ZERO", field="delta")
UNKNOWN_NAMESPACE = Failure(code=StatusCode.NOT_FOUND, reason="NAMESPACE_UNKNOWN")
DAMAGED = Failure(code=StatusCode.DATA_LOSS, reason="STORE_DAMAGED")


def after(
    history: History, failure: Failure, *, remaining_s: float = 10.0, ahead_s: float = 0.0
) -> Retry | GiveUp:
    return after_write(
        history,
        failure,
        generation_time_ns=NOW_NS + int(ahead_s * NS_PER_S),
        remaining_s=remaining_s,
        random=Random(7),
    )


def retried(step: Retry | GiveUp) -> Retry:
    assert isinstance(step, Retry)
    return step


def ended(step: Retry | GiveUp) -> GiveUp:
    assert isinstance(step, GiveUp)
    return step


@pytest.mark.parametrize(
    "code",
    [
        StatusCode.UNAVAILABLE,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.ABORTED,
        StatusCode.CANCELLED,
        StatusCode.INTERNAL,
        StatusCode.UNKNOWN,
    ],
)
@pytest.mark.parametrize("history", [OWN, CALLERS])
def test_an_unknown_outcome_is_sent_again_with_the_same_token(
    code: StatusCode, history: History
) -> None:
    step = retried(after(history, Failure(code=code)))
    assert not step.new_token
    assert step.history.unknown


def test_unknown_stays_unknown_until_the_deadline() -> None:
    first = retried(after(OWN, STORE_DOWN))
    second = retried(after(first.history, BUSY))
    assert ended(after(second.history, BUSY, remaining_s=0.0)).unknown


@pytest.mark.parametrize("failure", [BUSY, NOT_READY])
def test_only_refusals_until_the_deadline_are_definitely_not_applied(failure: Failure) -> None:
    step = retried(after(OWN, failure))
    assert not step.history.unknown
    assert step.delay_s >= 0.2
    assert not ended(after(step.history, failure, remaining_s=0.0)).unknown


def test_a_wait_that_the_server_asked_for_beyond_the_deadline_ends_the_call() -> None:
    slow = replace(BUSY, retry_after_s=11.0)
    assert not ended(after(OWN, slow)).unknown


def test_exhaustion_without_a_reason_proves_nothing() -> None:
    # It may be the answer that was too large for this client, after the write.
    step = retried(after(OWN, Failure(code=StatusCode.RESOURCE_EXHAUSTED)))
    assert step.history.unknown


def test_no_connection_at_all_is_unknown() -> None:
    assert ended(after(OWN, NO_ANSWER, remaining_s=0.0)).unknown


@pytest.mark.parametrize("unknown_before", [False, True])
def test_an_expired_token_of_the_client_is_replaced(unknown_before: bool) -> None:
    step = retried(after(replace(OWN, unknown=unknown_before), EXPIRED))
    assert step.new_token
    assert step.delay_s == 0.0
    assert not step.history.unknown  # the new token has no past


def test_clocks_that_do_not_settle_are_not_asked_in_a_hot_loop() -> None:
    history = OWN
    delays = []
    for _ in range(6):
        step = retried(after(history, EXPIRED))
        delays.append(step.delay_s)
        history = step.history
    assert delays[0] == 0.0
    assert all(delay > 0.0 for delay in delays[1:])


@pytest.mark.parametrize("unknown_before", [False, True])
def test_an_expired_token_of_the_caller_ends_the_call_definitely(unknown_before: bool) -> None:
    assert not ended(after(replace(CALLERS, unknown=unknown_before), EXPIRED)).unknown


def test_an_expired_token_without_time_left_ends_definitely() -> None:
    assert not ended(after(replace(OWN, unknown=True), EXPIRED, remaining_s=0.0)).unknown


def test_a_future_token_of_the_client_is_replaced() -> None:
    assert retried(after(OWN, FUTURE, ahead_s=3600)).new_token


def test_a_future_token_that_may_be_written_is_kept() -> None:
    step = retried(after(replace(OWN, unknown=True), FUTURE, ahead_s=6))
    assert not step.new_token
    assert step.history.unknown


def test_a_future_token_of_the_caller_waits_for_its_time() -> None:
    step = retried(after(CALLERS, FUTURE, ahead_s=6))
    assert not step.new_token
    assert not step.history.unknown
    assert not ended(after(step.history, FUTURE, ahead_s=6, remaining_s=0.0)).unknown


def test_a_future_token_without_hope_ends_at_once() -> None:
    assert not ended(after(CALLERS, FUTURE, ahead_s=3600)).unknown
    assert ended(after(replace(OWN, unknown=True), FUTURE, ahead_s=3600)).unknown


@pytest.mark.parametrize("history", [OWN, replace(OWN, unknown=True), CALLERS])
def test_a_token_too_old_ends_with_its_own_error(history: History) -> None:
    assert not ended(after(history, TOO_OLD)).unknown


@pytest.mark.parametrize("failure", [INVALID, UNKNOWN_NAMESPACE])
def test_a_refusal_is_final_but_proves_nothing_about_earlier_attempts(failure: Failure) -> None:
    assert not ended(after(OWN, failure)).unknown
    assert ended(after(replace(OWN, unknown=True), failure)).unknown


def test_a_damaged_store_is_not_asked_again() -> None:
    assert ended(after(OWN, DAMAGED)).unknown


def test_the_reasons_count_only_with_their_codes() -> None:
    assert proof_of(replace(EXPIRED, code=StatusCode.UNAVAILABLE)) is Proof.UNKNOWN
    assert proof_of(replace(TOO_OLD, code=StatusCode.UNKNOWN)) is Proof.UNKNOWN
    assert proof_of(Failure(code=StatusCode.FAILED_PRECONDITION)) is Proof.REFUSED


@pytest.mark.parametrize("code", list(StatusCode))
def test_every_code_has_a_decision(code: StatusCode) -> None:
    if code is not StatusCode.OK:
        assert isinstance(after(OWN, Failure(code=code)), Retry | GiveUp)


def test_reads_repeat_what_may_pass() -> None:
    def delay_s(failure: Failure, remaining_s: float = 10.0) -> float | None:
        return after_read(1, failure, remaining_s=remaining_s, random=Random(7))

    broken = Failure(code=StatusCode.INTERNAL, message="stream removed")
    for failure in (NO_ANSWER, STORE_DOWN, BUSY, broken):
        assert delay_s(failure) is not None
        assert delay_s(failure, remaining_s=0.0) is None
    for failure in (INVALID, UNKNOWN_NAMESPACE, DAMAGED, replace(broken, reason="INTERNAL")):
        assert delay_s(failure) is None


def test_back_off_grows_with_full_jitter_up_to_its_limit() -> None:
    random = Random(7)
    for attempts in (1, 2, 3, 8, 1_000):
        limit_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(attempts - 1, 20))
        delays = [delay_before(attempts, None, 60.0, random) or 0.0 for _ in range(500)]
        assert max(delays) <= limit_s
        assert max(delays) > 0.9 * limit_s
        assert min(delays) < 0.1 * limit_s


def test_the_end_of_the_deadline_is_used_but_not_hammered() -> None:
    class Longest(Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    remaining_s, attempts = 0.9, 0
    while (delay_s := delay_before(20, None, remaining_s, Longest())) is not None:
        assert 0.0 < delay_s < remaining_s
        remaining_s -= delay_s
        attempts += 1
    assert 1 <= attempts <= 5


def test_an_attempt_leaves_time_for_others() -> None:
    assert attempt_timeout_s(30.0) == pytest.approx(10.0)
    assert attempt_timeout_s(0.5) == ATTEMPT_MIN_S
    assert attempt_timeout_s(0.1) == 0.1
