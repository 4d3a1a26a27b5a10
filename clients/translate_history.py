"""Between the SDK's values of the past and of many counters, and the messages of counter.v1."""

from datetime import datetime, timedelta
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from clients.errors import Internal, InvalidRequest
from clients.history_values import (
    Adjustment,
    CountAt,
    CounterEntry,
    CounterPage,
    CountHistory,
    HistoryPoint,
    RankedCounter,
    TopCounters,
)
from clients.times import (
    duration_of,
    ns_of_datetime,
    ns_of_duration,
    ns_of_timestamp,
    timestamp_of,
)
from clients.translate import count_value, optional_ns
from counter.v1 import counter_service_pb2 as pb

T = TypeVar("T")

# A time of the past: a datetime with its zone, or nanoseconds since 1970.
Moment = datetime | int
_NS_PER_US = 1_000
_INT32_MAX = 2**31 - 1


def moment_message(moment: Moment, field: str) -> Timestamp:
    try:
        return timestamp_of(ns_of_datetime(moment) if isinstance(moment, datetime) else moment)
    except ValueError as error:
        raise InvalidRequest(f"{field}: {error}", reason="TIME_MALFORMED", field=field) from error


def optional_moment(moment: Moment | None, field: str) -> Timestamp | None:
    return None if moment is None else moment_message(moment, field)


def optional_duration(duration: timedelta | None) -> Duration | None:
    return None if duration is None else duration_of(duration)


def check_size(size: int, field: str) -> int:
    """The size, if the wire can carry it; the server checks the rest of the rules."""
    if not 1 <= size <= _INT32_MAX:
        raise InvalidRequest(
            f"{field} {size} makes no sense: ask for 1 or more",
            reason="PAGE_MALFORMED",
            field=field,
        )
    return size


def check_shard(shard: int) -> int:
    if not 0 <= shard <= _INT32_MAX:
        raise InvalidRequest(
            f"there is no shard {shard}: they count from 0", reason="SHARD_UNKNOWN", field="shard"
        )
    return shard


def count_at(message: pb.GetCountAtResponse) -> CountAt:
    return CountAt(
        value=count_value(message.value), resolution=optional_timedelta(message, "resolution")
    )


def count_history(message: pb.GetCountHistoryResponse) -> CountHistory:
    return CountHistory(
        points=tuple(
            HistoryPoint(
                start_ns=ns_of_timestamp(point.start),
                delta=point.delta,
                count=point.count,
                epoch=point.epoch,
                saturated=point.saturated,
                known=point.known,
            )
            for point in message.points
        ),
        step=timedelta_of(message.step),
        resolution=timedelta_of(message.resolution),
        complete_through_ns=optional_ns(message, "complete_through"),
        adjustments=tuple(adjustment(each) for each in message.adjustments),
    )


def adjustment(message: pb.Adjustment) -> Adjustment:
    return Adjustment(
        time_ns=ns_of_timestamp(message.time),
        delta=message.delta,
        author=message.author,
        reason=message.reason,
    )


def counter_page(message: pb.ListCountersResponse) -> CounterPage:
    return CounterPage(
        counters=tuple(
            CounterEntry(counter=each.counter_name, value=count_value(each.value))
            for each in message.counters
        ),
        next_page_token=message.next_page_token,
        complete_through_ns=optional_ns(message, "complete_through"),
    )


def top_counters(message: pb.TopCountersResponse, *, by_growth: bool) -> TopCounters:
    return TopCounters(
        counters=tuple(
            RankedCounter(
                counter=each.counter_name,
                value=count_value(each.value),
                growth=each.growth if by_growth else None,
            )
            for each in message.counters
        ),
        complete_through_ns=optional_ns(message, "complete_through"),
        counters_seen=message.counters_seen,
        growth_from_ns=optional_ns(message, "growth_from"),
        resolution=optional_timedelta(message, "resolution"),
    )


def timedelta_of(duration: Duration) -> timedelta:
    return timedelta(microseconds=ns_of_duration(duration) // _NS_PER_US)


def optional_timedelta(message: Message, field: str) -> timedelta | None:
    return timedelta_of(getattr(message, field)) if message.HasField(field) else None


def word_of(words: dict[int, T], number: int, what: str) -> T:
    """What a number of the contract means, where a guess would be wrong."""
    word = words.get(number)
    if word is None:
        raise Internal(
            f"the server answered the {what} {number}, which this version of the SDK does not "
            "know: update it",
            reason="INTERNAL",
        )
    return word
