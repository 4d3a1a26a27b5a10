"""Times on the wire have nanoseconds; Python's datetime has microseconds. Nothing may be lost."""

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from counter.clock import NS_PER_S

_NS_PER_US = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def datetime_of(time_ns: int | None) -> datetime | None:
    """Rounded down, so that it never claims more than the exact time does."""
    if time_ns is None:
        return None
    return _EPOCH + timedelta(microseconds=time_ns // _NS_PER_US)


def ns_of_datetime(moment: datetime) -> int:
    """Exact. A datetime without a time zone is refused: it could mean any of them."""
    if moment.utcoffset() is None:
        raise ValueError(
            f"{moment!r} has no time zone: use an aware datetime, like datetime.now(UTC)"
        )
    return (moment - _EPOCH) // _MICROSECOND * _NS_PER_US


def ns_of_timestamp(stamp: Timestamp) -> int:
    return stamp.seconds * NS_PER_S + stamp.nanos


def ns_of_duration(duration: Duration) -> int:
    return duration.seconds * NS_PER_S + duration.nanos


def timestamp_of(time_ns: int) -> Timestamp:
    seconds, nanos = divmod(time_ns, NS_PER_S)
    return Timestamp(seconds=seconds, nanos=nanos)


def duration_of(delta: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(delta)  # the sign of both parts agrees, as the format demands
    return duration
