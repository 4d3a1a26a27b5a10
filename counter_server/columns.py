"""Adds in columns: one list of names, one of deltas, one of tokens and one of times.

A batch in which everything is plainly right is seen as such column by column, at the speed of the
lists, and then made into events in one go. Any doubt, about a single add, sends the whole batch
through the checks that items go through: they know what is wrong, and with which add.
"""

from itertools import repeat
from typing import NamedTuple

from counter.clock import NS_PER_S
from counter.errors import InvalidRequest, TallyError
from counter.events import Event
from counter.namespaces import Namespace
from counter.rpc.values import SECONDS_MAX
from counter.settings import COUNTER_NAME_BYTES_MAX
from counter.tokens import TOKEN_BYTES_MAX
from counter.v1 import counter_service_pb2 as pb
from counter_server.admission import Admission, RawAdd

_TIME_NS_MAX = SECONDS_MAX * NS_PER_S
_UTF8_BYTES_MAX = 4  # of one character


class Columns(NamedTuple):
    """All of the same length; `regions` may be empty: then all are of this region."""

    counters: list[str]
    deltas: list[int]
    tokens: list[str]
    times_ns: list[int]
    regions: list[str]


def size_of(message: pb.AddCountColumns) -> int:
    """How many adds there are. Columns that do not fit together cannot be told apart as adds."""
    size = len(message.counter_name)
    others = {
        "delta": len(message.delta),
        "token": len(message.token),
        "generation_time_ns": len(message.generation_time_ns),
        "region": len(message.region) or size,
    }
    for field, length in others.items():
        if length != size:
            raise InvalidRequest(
                "COLUMNS_UNEVEN",
                f"columns.{field}",
                f"columns.{field} has {length} entries and columns.counter_name {size}: give each "
                "add one in every column; only region may be left out as a whole",
            )
    return size


def columns_of(message: pb.AddCountColumns) -> Columns:
    # A slice is a list, and cheaper than one made by reading entry by entry.
    return Columns(
        message.counter_name[:],
        message.delta[:],
        message.token[:],
        message.generation_time_ns[:],
        message.region[:],
    )


def events_of(
    columns: Columns, admission: Admission, namespace: Namespace
) -> tuple[list[Event], dict[int, TallyError]]:
    """As `Admission.events`: the events in order, and by position what is wrong with the others."""
    counters, deltas, tokens, times_ns, _ = columns
    if _plainly_right(columns, namespace.max_delta, admission.latest_ns()):
        return list(map(Event, counters, times_ns, tokens, deltas)), {}
    return admission.events(namespace, raw_adds(columns), admission.now_ns())


def raw_adds(columns: Columns) -> list[RawAdd]:
    """The adds one by one. A time that no token can have is an error in the token's place."""
    counters, deltas, tokens, times_ns, regions = columns
    return [
        (counter, delta, token if 0 <= time_ns < _TIME_NS_MAX else _malformed(), time_ns, region)
        for counter, delta, token, time_ns, region in zip(
            counters, deltas, tokens, times_ns, regions or repeat("", len(counters)), strict=True
        )
    ]


def _plainly_right(columns: Columns, max_delta: int, latest_ns: int) -> bool:
    counters, deltas, tokens, times_ns, regions = columns
    different = set(deltas)
    return (
        not any(regions)
        and _fit(counters, COUNTER_NAME_BYTES_MAX)
        and _fit(tokens, TOKEN_BYTES_MAX)
        and min(times_ns) >= 0
        and max(times_ns) <= min(latest_ns, _TIME_NS_MAX - 1)
        and 0 not in different
        and -max_delta <= min(different)
        and max(different) <= max_delta
    )


def _fit(texts: list[str], bytes_max: int) -> bool:
    """Whether none is empty and none, plainly, too long in UTF-8."""
    lengths = set(map(len, texts))
    longest = max(lengths)
    if 0 in lengths or longest > bytes_max:
        return False
    return longest * _UTF8_BYTES_MAX <= bytes_max or "".join(texts).isascii()


def _malformed() -> TallyError:
    field = "columns.generation_time_ns"
    return InvalidRequest("TOKEN_MALFORMED", field, f"{field} must be a time between 1970 and 2262")
