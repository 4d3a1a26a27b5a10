"""Between protobuf and the domain. Protobuf goes no deeper than this."""

from collections.abc import Iterable, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from counter.clock import NS_PER_MS, NS_PER_S
from counter.errors import InvalidRequest, TallyError
from counter.events import Event
from counter.history import Adjustment
from counter.metrics import ITEM_ERRORS
from counter.namespaces import Strategy
from counter.rpc.status import code_of
from counter.rpc.values import SECONDS_MAX, clamped, duration_of, timestamp, timestamp_ns
from counter.v1 import counter_service_pb2 as pb
from counter_server.admission import RawAdd, RawToken
from counter_server.comparison import ComparedPage
from counter_server.count_history import CountHistory
from counter_server.late import TokenStatus
from counter_server.listing import Page
from counter_server.ranking import Ranking
from counter_server.strategies.strategy import Freshness, Outcome, Source, Value

_STRATEGIES = {
    Strategy.BEST_EFFORT: pb.STRATEGY_BEST_EFFORT,
    Strategy.EVENTUAL: pb.STRATEGY_EVENTUAL,
    Strategy.ACCURATE: pb.STRATEGY_ACCURATE,
    Strategy.ROLLING_WINDOW: pb.STRATEGY_ROLLING_WINDOW,
}
_SOURCES = {
    Source.LOCAL_CACHE: pb.SOURCE_LOCAL_CACHE,
    Source.SHARED_CACHE: pb.SOURCE_SHARED_CACHE,
    Source.ROLLUP: pb.SOURCE_ROLLUP,
    Source.ROLLUP_AND_TAIL: pb.SOURCE_ROLLUP_AND_TAIL,
    Source.HISTORY: pb.SOURCE_HISTORY,
}
# By the kind of answer: one outcome of which there is nothing to say.
_PLAINLY_OK = {
    kind: kind(outcomes=[pb.AddCountOutcome()]).SerializeToString()
    for kind in (pb.BatchAddCountResponse, pb.StreamAddCountResponse)
}
TOKEN_STATUSES = {
    TokenStatus.PENDING: pb.TOKEN_STATUS_PENDING,
    TokenStatus.APPLIED: pb.TOKEN_STATUS_APPLIED,
    TokenStatus.NOT_APPLIED: pb.TOKEN_STATUS_NOT_APPLIED,
}


def raw_token(message: pb.IdempotencyToken) -> RawToken:
    """A token string without a time is refused: a time made up here would make a retry another
    event."""
    field = "idempotency_token.generation_time"
    if not message.HasField("generation_time"):
        raise InvalidRequest(
            "TOKEN_MALFORMED",
            field,
            f"{field} is missing: send the time at which you made the token, the same with every "
            "retry",
        )
    time_ns = timestamp_ns(message.generation_time, "TOKEN_MALFORMED", field)
    return message.token, time_ns, message.region


def raw_adds(items: Iterable[pb.AddCountItem]) -> tuple[list[RawAdd], set[int]]:
    """The fields of many adds, and the positions of those without a token.

    A token that cannot be read is an error in its place.
    """
    adds: list[RawAdd] = []
    without_token: set[int] = set()
    for item in items:
        message = item.idempotency_token
        stamp = message.generation_time
        seconds, nanos = stamp.seconds, stamp.nanos
        if 0 < seconds < SECONDS_MAX and 0 <= nanos < NS_PER_S:
            time_ns = seconds * NS_PER_S + nanos
            adds.append((item.counter_name, item.delta, message.token, time_ns, message.region))
        elif not item.HasField("idempotency_token"):
            without_token.add(len(adds))
            adds.append((item.counter_name, item.delta, None, 0, ""))
        else:
            try:
                adds.append((item.counter_name, item.delta, *raw_token(message)))
            except TallyError as error:
                adds.append((item.counter_name, item.delta, error, 0, ""))
    return adds, without_token


def token_message(event: Event) -> pb.IdempotencyToken:
    message = pb.IdempotencyToken(token=event.token)
    message.generation_time.seconds, message.generation_time.nanos = divmod(event.time_ns, NS_PER_S)
    return message


def freshness(request: pb.GetCountRequest | pb.BatchGetCountRequest) -> Freshness | None:
    """What the reader asks for; None: anything."""
    has_staleness = request.HasField("max_staleness")
    has_at_least = request.HasField("at_least")
    if not has_staleness and not has_at_least:
        return None
    max_staleness_ns = None
    if has_staleness:
        duration: Duration = request.max_staleness
        max_staleness_ns = duration.seconds * NS_PER_S + duration.nanos
        if max_staleness_ns < 0 or abs(duration.nanos) >= NS_PER_S:
            raise InvalidRequest(
                "FRESHNESS_MALFORMED", "max_staleness", "max_staleness must not be negative"
            )
    at_least_ns = None
    if has_at_least:
        at_least_ns = timestamp_ns(request.at_least, "FRESHNESS_MALFORMED", "at_least")
    return Freshness(max_staleness_ns=max_staleness_ns, at_least_ns=at_least_ns)


def value_message(value: Value, strategy: Strategy) -> pb.CountValue:
    count, saturated = clamped(value.count)
    message = pb.CountValue(
        count=count,
        epoch=value.epoch,
        strategy=_STRATEGIES[strategy],
        source=_SOURCES[value.source],
        saturated=saturated,
    )
    if value.complete_through_ns is not None:
        stamp = message.complete_through
        stamp.seconds, stamp.nanos = divmod(value.complete_through_ns, NS_PER_S)
    if value.cleared_at_ns:
        stamp = message.cleared_at
        stamp.seconds, stamp.nanos = divmod(value.cleared_at_ns, NS_PER_S)
    if value.window_start_ns is not None:
        message.window_start.CopyFrom(timestamp(value.window_start_ns))
        message.rate_per_s = value.rate_per_s
    return message


def add_values(into: pb.BatchGetCountResponse, values: Sequence[Value], strategy: Strategy) -> None:
    """One message per value, in order."""
    # Most values of one read differ in their counts alone: what they share is copied from a message
    # that is made once, which takes a third of the time.
    shared: tuple[object, ...] | None = None
    message = pb.CountValue()
    for value in values:
        count, saturated = clamped(value.count)
        like = (value.complete_through_ns, value.epoch, value.cleared_at_ns, value.source)
        if saturated or value.window_start_ns is not None:
            into.values.append(value_message(value, strategy))
            continue
        if like != shared:
            shared, message = like, value_message(value, strategy)
        copied = into.values.add()
        copied.CopyFrom(message)
        copied.count = count


def history_message(history: CountHistory) -> pb.GetCountHistoryResponse:
    response = pb.GetCountHistoryResponse(
        step=duration_of(history.step_ms),
        resolution=duration_of(history.resolution_ms),
        complete_through=timestamp(history.complete_through_ns),
        adjustments=[_adjustment_message(each) for each in history.adjustments],
    )
    for point in history.points:
        delta, delta_saturated = clamped(point.delta)
        count, count_saturated = clamped(point.count)
        response.points.add(
            start=timestamp(point.start_ns),
            delta=delta,
            count=count,
            epoch=point.epoch,
            saturated=delta_saturated or count_saturated,
            known=point.known,
        )
    return response


def page_message(page: Page, strategy: Strategy) -> pb.ListCountersResponse:
    return pb.ListCountersResponse(
        counters=[
            pb.CounterEntry(counter_name=each.counter, value=value_message(each.value, strategy))
            for each in page.entries
        ],
        next_page_token=page.next_token,
        complete_through=timestamp(page.complete_through_ns),
    )


def ranking_message(ranking: Ranking, strategy: Strategy) -> pb.TopCountersResponse:
    response = pb.TopCountersResponse(
        counters=[
            pb.RankedCounter(
                counter_name=each.counter,
                value=value_message(each.value, strategy),
                growth=clamped(each.growth)[0],
            )
            for each in ranking.counters
        ],
        complete_through=timestamp(ranking.complete_through_ns),
        counters_seen=ranking.counters_seen,
    )
    if ranking.growth_from_ns is not None:
        response.growth_from.CopyFrom(timestamp(ranking.growth_from_ns))
    if ranking.resolution_ms is not None:
        response.resolution.CopyFrom(duration_of(ranking.resolution_ms))
    return response


def comparison_message(page: ComparedPage) -> pb.CompareShadowResponse:
    return pb.CompareShadowResponse(
        counters=[
            pb.ShadowCount(
                counter_name=each.counter,
                count=clamped(each.count)[0],
                shadow_count=clamped(each.shadow_count)[0],
            )
            for each in page.counters
        ],
        next_page_token=page.next_token,
        complete_through=timestamp(page.complete_through_ns),
    )


def _adjustment_message(adjustment: Adjustment) -> pb.Adjustment:
    return pb.Adjustment(
        time=timestamp(adjustment.time_ns),
        delta=adjustment.delta,
        author=adjustment.author,
        reason=adjustment.reason,
    )


def time_ns(stamp: Timestamp, field: str, *, latest_ns: int) -> int:
    """A past time. Callers' clocks may be a little ahead: `latest_ns` allows for that."""
    read_ns = timestamp_ns(stamp, "TIME_MALFORMED", field)
    if read_ns > latest_ns:
        ahead_s = (read_ns - latest_ns) / NS_PER_S
        raise InvalidRequest(
            "TIME_MALFORMED",
            field,
            f"{field} is in the future, {ahead_s:.1f} s beyond what clocks may be off: ask for "
            "what has been",
        )
    return read_ns


def duration_ns(duration: Duration, reason: str, field: str) -> int:
    """A length of time, longer than 0."""
    read_ns = duration.seconds * NS_PER_S + duration.nanos
    if not 0 < read_ns < SECONDS_MAX * NS_PER_S or abs(duration.nanos) >= NS_PER_S:
        raise InvalidRequest(reason, field, f"{field} must be longer than 0")
    return read_ns


def step_ms(duration: Duration) -> int:
    """A length of steps: whole milliseconds."""
    step_ns = duration_ns(duration, "STEP_NOT_KEPT", "step")
    if step_ns % NS_PER_MS:
        raise InvalidRequest("STEP_NOT_KEPT", "step", "step must be of whole milliseconds")
    return step_ns // NS_PER_MS


def add_outcomes(
    into: pb.BatchAddCountResponse | pb.StreamAddCountResponse,
    outcomes: Sequence[Outcome],
    made: dict[int, Event],
) -> None:
    """One message per item; `made` has the events, by position, whose token the server made."""
    # One empty message per item is parsed in one go; only what is not plainly OK is filled in.
    into.MergeFromString(_PLAINLY_OK[type(into)] * len(outcomes))
    for position, outcome in enumerate(outcomes):
        if outcome is False:
            continue
        message = into.outcomes[position]
        if isinstance(outcome, TallyError):
            message.code = code_of(outcome)
            message.reason = outcome.reason
            ITEM_ERRORS.at(reason=outcome.reason).add()
            message.message = outcome.message
            if outcome.server_time_ns is not None:
                stamp = message.server_time
                stamp.seconds, stamp.nanos = divmod(outcome.server_time_ns, NS_PER_S)
            if outcome.retry_after_ms is not None:
                message.retry_delay.CopyFrom(duration_of(outcome.retry_after_ms))
        else:
            message.duplicate = True
    for position, event in made.items():
        into.outcomes[position].idempotency_token.CopyFrom(token_message(event))
