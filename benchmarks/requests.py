"""Requests as bytes.

A batch of 1,000 adds costs a Python client nearly as much to build as the server to take, and its
tokens must be fresh. So a batch is built and serialized once, with a placeholder for its time;
each send puts the present time in its place, in all items, by one `bytes.replace`. (Counter,
time, token) is an event's identity, so the new time makes every item of every send a new event.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from benchmarks.servers import NAMESPACE
from counter.clock import NS_PER_S, SystemClock
from counter.tokens import TokenFactory
from counter.v1 import counter_service_pb2 as pb

Add = tuple[str, int]  # counter, delta

BATCH_ITEMS = 1_000
OK_BATCH = pb.BatchAddCountResponse(
    outcomes=[pb.AddCountOutcome()] * BATCH_ITEMS
).SerializeToString()

# Nanoseconds from here on are five bytes in protobuf's encoding, as are seconds until 3058: a time
# never changes the length of the messages around it.
_NANOS_MIN = 2**28
_PLACEHOLDER = Timestamp(seconds=2**34, nanos=NS_PER_S - 1)
_PLACEHOLDER_BYTES = _PLACEHOLDER.SerializeToString()


def counter_name(number: int) -> str:
    return f"title-{number:07d}"


def add_requests(counters: int) -> Iterator[bytes]:
    """AddCount, for ever, over so many counters; each with a token of its own."""
    tokens = TokenFactory(SystemClock())
    request = pb.AddCountRequest(namespace=NAMESPACE, delta=1)
    stamp = request.idempotency_token.generation_time
    for number in itertools.cycle(range(counters)):
        token = tokens.next()
        request.counter_name = counter_name(number)
        request.idempotency_token.token = token.token
        stamp.seconds, stamp.nanos = divmod(token.generation_time_ns, NS_PER_S)
        yield request.SerializeToString()


def get_requests(counters: int) -> Iterator[bytes]:
    """GetCount, for ever, over so many counters."""
    return itertools.cycle(
        pb.GetCountRequest(
            namespace=NAMESPACE, counter_name=counter_name(number)
        ).SerializeToString()
        for number in range(counters)
    )


def batch_template(adds: Sequence[Add]) -> bytes:
    """A BatchAddCount with the placeholder for its time."""
    assert len(adds) == BATCH_ITEMS, len(adds)
    request = pb.BatchAddCountRequest(namespace=NAMESPACE)
    for position, (counter, delta) in enumerate(adds):
        item = request.items.add(counter_name=counter, delta=delta)
        item.idempotency_token.token = f"bench-{position:010d}"
        item.idempotency_token.generation_time.CopyFrom(_PLACEHOLDER)
    template = request.SerializeToString()
    assert template.count(_PLACEHOLDER_BYTES) == BATCH_ITEMS
    return template


class Stamper:
    """Turns templates into requests whose times are now, and never the same twice."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._last_ns = 0

    @property
    def last_ns(self) -> int:
        """The time of the last request: when folds have come this far, all of them are folded."""
        return self._last_ns

    def stamped(self, templates: Iterable[bytes]) -> Iterator[bytes]:
        for template in templates:
            seconds, nanos = divmod(max(self._now_ns(), self._last_ns + 1), NS_PER_S)
            # At most a quarter of a second ahead of the clock, well within the accept limit.
            nanos = max(nanos, _NANOS_MIN)
            self._last_ns = seconds * NS_PER_S + nanos
            stamp = Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
            yield template.replace(_PLACEHOLDER_BYTES, stamp)
