"""What to do after a failed attempt: the one policy for single calls and for items of batches.

Pure: no clock, no network. The rules rest on what a failure proves about the event.

- Expired: the platform looked in everything that counts and the token is not there. It never will
  be, whatever earlier attempts did, so a new token is safe.
- Refused: this attempt wrote nothing. It says nothing about earlier attempts with the same token:
  if one of those has an unknown outcome, the whole call still has.
- Unknown: the attempt may have been written. Only the same token may be sent again.

An answer that no Tally server gave (`reason` is empty) proves that nothing was written only where
its code cannot mean anything else.
"""

from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from grpc import StatusCode

from clients.failures import Failure
from counter.clock import NS_PER_S

# One attempt gets this share of the time that is left, so that a hung server leaves time for
# another one, but at least ATTEMPT_MIN_S.
ATTEMPT_SHARE = 1 / 3
ATTEMPT_MIN_S = 0.25
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0
# A token further ahead than the time left and this has no hope: no platform accepts that much.
FUTURE_HOPE_S = 60.0


class Proof(Enum):
    """What a failed attempt proves about its event."""

    EXPIRED = "never applied, by no attempt"
    FROM_FUTURE = "not written: the token is ahead of the platform's clock"
    TOO_OLD = "nobody knows any more"
    BUSY = "not written, worth sending again"
    REFUSED = "not written, and not worth sending again"
    UNKNOWN = "may have been written"
    DAMAGED = "may have been written, and sending again does not help"


_REFUSALS = frozenset(
    {
        StatusCode.INVALID_ARGUMENT,
        StatusCode.NOT_FOUND,
        StatusCode.ALREADY_EXISTS,
        StatusCode.PERMISSION_DENIED,
        StatusCode.UNAUTHENTICATED,
        StatusCode.FAILED_PRECONDITION,
        StatusCode.OUT_OF_RANGE,
        StatusCode.UNIMPLEMENTED,
    }
)
# What a broken connection can look like, besides UNAVAILABLE.
_BROKEN = frozenset(
    {StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.ABORTED, StatusCode.CANCELLED}
)
_BUSY_READS = frozenset(
    {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.RESOURCE_EXHAUSTED}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What happened so far in one logical call."""

    own_token: bool  # the client made it, so the client may replace it
    attempts: int = 0
    new_tokens: int = 0  # how often it was replaced
    unknown: bool = False  # an attempt with the token in use may have been written


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    delay_s: float
    history: History
    # First correct the clock from the failure's server time, then make a new token.
    new_token: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveUp:
    history: History
    unknown: bool  # True: report that the outcome is unknown. False: report the failure itself.


def proof_of(failure: Failure) -> Proof:
    match failure.code, failure.reason:
        case StatusCode.FAILED_PRECONDITION, "TOKEN_EXPIRED":
            return Proof.EXPIRED
        case StatusCode.OUT_OF_RANGE, "TOKEN_FROM_FUTURE":
            return Proof.FROM_FUTURE
        case StatusCode.OUT_OF_RANGE, "TOKEN_TOO_OLD":
            return Proof.TOO_OLD
        case StatusCode.DATA_LOSS, _:
            return Proof.DAMAGED
        # As long as nobody raises the limit.
        case StatusCode.RESOURCE_EXHAUSTED, "COUNTERS_LIMITED":
            return Proof.REFUSED
        # Without a reason it may be an answer that was too large for this client: written already.
        case StatusCode.RESOURCE_EXHAUSTED, reason if reason:
            return Proof.BUSY
        case StatusCode.UNAVAILABLE, "NOT_READY":  # whoever said so had nothing to write with
            return Proof.BUSY
        case StatusCode.ABORTED, reason if reason:  # without one, a broken connection's word
            return Proof.REFUSED
        case code, _ if code in _REFUSALS:
            return Proof.REFUSED
    return Proof.UNKNOWN


def after_write(
    history: History,
    failure: Failure,
    *,
    generation_time_ns: int,
    remaining_s: float,
    random: Random,
) -> Retry | GiveUp:
    """What to do next with an add or a clear whose last attempt failed."""
    proof = proof_of(failure)
    unknown = history.unknown or proof in (Proof.UNKNOWN, Proof.DAMAGED)
    history = replace(history, attempts=history.attempts + 1, unknown=unknown)
    if proof is Proof.EXPIRED:
        settled = replace(history, unknown=False)
        return _with_new_token(settled, failure, remaining_s, random)
    if proof is Proof.FROM_FUTURE:
        if history.own_token and not unknown:
            return _with_new_token(history, failure, remaining_s, random)
        ahead_ns = generation_time_ns - (failure.server_time_ns or generation_time_ns)
        if ahead_ns / NS_PER_S > remaining_s + FUTURE_HOPE_S:
            return GiveUp(history=history, unknown=unknown)
    elif proof is Proof.TOO_OLD:
        return GiveUp(history=history, unknown=False)  # TokenTooOld says that it is unknown
    elif proof in (Proof.REFUSED, Proof.DAMAGED):
        return GiveUp(history=history, unknown=unknown)
    delay_s = delay_before(history.attempts, failure.retry_after_s, remaining_s, random)
    if delay_s is None:
        return GiveUp(history=history, unknown=unknown)
    return Retry(delay_s=delay_s, history=history)


def after_read(
    attempts: int, failure: Failure, *, remaining_s: float, random: Random
) -> float | None:
    """How long to wait before a read is sent again; None: report the failure.

    `attempts` includes the failed one. A read changes nothing, so whatever may be the connection's
    fault is tried again; a Tally server's own INTERNAL is not.
    """
    if failure.code in _BUSY_READS or (failure.code in _BROKEN and not failure.reason):
        return delay_before(attempts, failure.retry_after_s, remaining_s, random)
    return None


def attempt_timeout_s(remaining_s: float) -> float:
    """How much of the time that is left the next attempt may use."""
    return min(remaining_s, max(remaining_s * ATTEMPT_SHARE, ATTEMPT_MIN_S))


def delay_before(
    attempts: int, retry_after_s: float | None, remaining_s: float, random: Random
) -> float | None:
    """Exponential back-off with full jitter, after what the server asked for; None: no time left.

    A wait that would use up the rest is cut to half of it, so that a platform that comes back just
    in time is still reached; below ATTEMPT_MIN_S that ends.
    """
    asked_s = retry_after_s or 0.0
    if asked_s >= remaining_s:
        return None
    backoff_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(attempts - 1, 16))
    delay_s = asked_s + random.uniform(0.0, backoff_s)
    if delay_s < remaining_s:
        return delay_s
    if remaining_s < ATTEMPT_MIN_S:
        return None
    return max(asked_s, remaining_s / 2)


def _with_new_token(
    history: History, failure: Failure, remaining_s: float, random: Random
) -> Retry | GiveUp:
    if not history.own_token:
        return GiveUp(history=history, unknown=False)
    # The first replacement goes out at once. A second one means that the clocks do not settle.
    delay_s: float | None = 0.0
    if history.new_tokens > 0 or remaining_s <= 0:
        delay_s = delay_before(history.attempts, failure.retry_after_s, remaining_s, random)
    if delay_s is None:
        return GiveUp(history=history, unknown=False)
    renewed = replace(history, new_tokens=history.new_tokens + 1)
    return Retry(delay_s=delay_s, history=renewed, new_token=True)
