"""Between the SDK's values and the messages of counter.v1."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from clients.errors import Internal, InvalidRequest
from clients.platform_values import RollupStatus, ShardStatus, WorkerStatus
from clients.times import (
    duration_of,
    ns_of_datetime,
    ns_of_duration,
    ns_of_timestamp,
    timestamp_of,
)
from clients.values import CountValue, Source, Strategy, TokenStatus
from counter.clock import NS_PER_MS
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import rollup_service_pb2 as rollup_pb

STRATEGIES: dict[int, Strategy] = {
    pb.STRATEGY_BEST_EFFORT: Strategy.BEST_EFFORT,
    pb.STRATEGY_EVENTUAL: Strategy.EVENTUAL,
    pb.STRATEGY_ACCURATE: Strategy.ACCURATE,
    pb.STRATEGY_ROLLING_WINDOW: Strategy.ROLLING_WINDOW,
}
_SOURCES: dict[int, Source] = {
    pb.SOURCE_LOCAL_CACHE: Source.LOCAL_CACHE,
    pb.SOURCE_SHARED_CACHE: Source.SHARED_CACHE,
    pb.SOURCE_ROLLUP: Source.ROLLUP,
    pb.SOURCE_ROLLUP_AND_TAIL: Source.ROLLUP_AND_TAIL,
    pb.SOURCE_HISTORY: Source.HISTORY,
}
_TOKEN_STATUSES: dict[int, TokenStatus] = {
    pb.TOKEN_STATUS_PENDING: TokenStatus.PENDING,
    pb.TOKEN_STATUS_APPLIED: TokenStatus.APPLIED,
    pb.TOKEN_STATUS_NOT_APPLIED: TokenStatus.NOT_APPLIED,
}

_INT64_MAX = 2**63 - 1
# What `at_least` accepts; only the datetime has less than the full precision.
Freshness = datetime | CountValue | int


def check_name(name: str, field: str = "counter_name") -> str:
    """The name, if the wire can carry it; the server checks the rest of the rules."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{name!r} is not valid Unicode text: it has half of a surrogate pair",
            reason="NAME_MALFORMED",
            field=field,
        ) from error
    return name


def check_delta(delta: int) -> int:
    if not -_INT64_MAX - 1 <= delta <= _INT64_MAX:
        raise InvalidRequest(
            f"the delta {delta} does not fit in 64 bits: split it",
            reason="DELTA_TOO_LARGE",
            field="delta",
        )
    return delta


def token_message(token: Token) -> pb.IdempotencyToken:
    try:
        return pb.IdempotencyToken(
            token=token.token,
            generation_time=timestamp_of(token.generation_time_ns),
            region=token.region,
        )
    except ValueError as error:  # not Unicode, or a time that no message can hold
        raise InvalidRequest(
            f"{token!r} cannot be sent: {error}",
            reason="TOKEN_MALFORMED",
            field="idempotency_token",
        ) from error


def token_used(message: pb.IdempotencyToken, sent: Token) -> Token:
    """The token as the server used it, which may name its region; `sent` if it does not say."""
    if not message.token:
        return sent
    return Token(
        token=message.token,
        generation_time_ns=ns_of_timestamp(message.generation_time),
        region=message.region,
    )


def max_staleness_message(max_staleness: timedelta | None) -> Duration | None:
    return None if max_staleness is None else duration_of(max_staleness)


def at_least_message(at_least: Freshness | None) -> Timestamp | None:
    """A CountValue of unknown freshness asks for nothing."""
    try:
        if isinstance(at_least, CountValue):
            at_least = at_least.complete_through_ns
        elif isinstance(at_least, datetime):
            at_least = ns_of_datetime(at_least)
        return None if at_least is None else timestamp_of(at_least)
    except ValueError as error:
        raise InvalidRequest(
            f"at_least: {error}", reason="FRESHNESS_MALFORMED", field="at_least"
        ) from error


def count_value(message: pb.CountValue) -> CountValue:
    return CountValue(
        count=message.count,
        complete_through_ns=optional_ns(message, "complete_through"),
        epoch=message.epoch,
        cleared_at_ns=optional_ns(message, "cleared_at"),
        strategy=STRATEGIES.get(message.strategy),
        source=_SOURCES.get(message.source),
        saturated=message.saturated,
        window_start_ns=optional_ns(message, "window_start"),
        rate_per_s=message.rate_per_s if message.HasField("window_start") else None,
    )


def check_values(message: pb.BatchGetCountResponse, count: int) -> Sequence[pb.CountValue]:
    if len(message.values) != count:
        raise Internal(
            f"the server answered {len(message.values)} values for {count} counters",
            reason="INTERNAL",
        )
    return message.values


def token_status(message: pb.GetTokenStatusResponse) -> TokenStatus:
    status = _TOKEN_STATUSES.get(message.status)
    if status is None:
        raise Internal(
            f"the server answered the token status {message.status}, which this version of the "
            "SDK does not know: update it",
            reason="INTERNAL",
        )
    return status


def rollup_status(message: rollup_pb.GetRollupStatusResponse) -> RollupStatus:
    return RollupStatus(
        region=message.region,
        window_ms=ms_of(message.window),
        closed_through_ns=optional_ns(message, "closed_through"),
        folded_through_ns=optional_ns(message, "folded_through"),
        shards=tuple(
            ShardStatus(
                shard=each.shard,
                watermark_ns=optional_ns(each, "watermark"),
                lag_ms=ms_of(each.lag),
                owner=each.owner,
                queue_depth=each.queue_depth,
                batch_counters=each.batch_counters,
                problem=each.problem,
                folded_events=each.folded_events,
                duplicate_events=each.duplicate_events,
                conflicting_events=each.conflicting_events,
                last_pass_events=each.last_pass_events,
                last_pass_ms=ns_of_duration(each.last_pass_time) / NS_PER_MS,
            )
            for each in message.shards
        ),
        problem=message.problem,
        workers=tuple(
            WorkerStatus(
                member=each.member,
                shards=tuple(each.shards),
                passes_in_parallel=each.passes_in_parallel,
                problem=each.problem,
            )
            for each in message.workers
        ),
    )


def optional_ns(message: Message, field: str) -> int | None:
    return ns_of_timestamp(getattr(message, field)) if message.HasField(field) else None


def ms_of(duration: Duration) -> int:
    return ns_of_duration(duration) // NS_PER_MS
