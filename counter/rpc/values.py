"""Times and counts as protobuf has them, for the translations of all programs."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from counter.clock import NS_PER_MS, NS_PER_S
from counter.errors import InvalidRequest

# Times that fit in 64 bits of nanoseconds: 1970 to 2262.
SECONDS_MAX = 2**63 // NS_PER_S
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def timestamp_ns(stamp: Timestamp, reason: str, field: str) -> int:
    seconds, nanos = stamp.seconds, stamp.nanos
    if not (0 <= seconds < SECONDS_MAX and 0 <= nanos < NS_PER_S):
        raise InvalidRequest(reason, field, f"{field} must be a time between 1970 and 2262")
    return seconds * NS_PER_S + nanos


def timestamp(time_ns: int) -> Timestamp:
    seconds, nanos = divmod(time_ns, NS_PER_S)
    return Timestamp(seconds=seconds, nanos=nanos)


def set_stamp(stamp: Timestamp, time_ns: int) -> None:
    """For fields that cannot be given by name, and where a copy would cost."""
    stamp.seconds, stamp.nanos = divmod(time_ns, NS_PER_S)


def duration_of(milliseconds: int) -> Duration:
    seconds, rest = divmod(milliseconds, 1_000)
    return Duration(seconds=seconds, nanos=rest * NS_PER_MS)


def clamped(number: int) -> tuple[int, bool]:
    """The number as it fits in an int64, and whether that changed it."""
    if _INT64_MIN <= number <= _INT64_MAX:
        return number, False
    return (_INT64_MAX if number > 0 else _INT64_MIN), True
