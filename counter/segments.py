"""Segments: immutable packed groups of events of one namespace, one window and one shard.

A body is one version byte, eight bytes of xxh3_64 over the rest, and the events as msgpack arrays.
The checksum makes a damaged segment an error of its own instead of a wrong count.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_digest

from counter.decoding import UNREADABLE
from counter.errors import SegmentDamaged, StoreDamaged
from counter.events import Event

# With the longest name (256 bytes), the longest token (64) and 24 bytes of msgpack around them,
# a full segment has 860 KB: always under the 1 MiB that one mutation may carry.
SEGMENT_EVENTS_MAX = 2_500
# To fetch and to open one takes as long as to read so many of its events.
_SEGMENT_COSTS_EVENTS = 20

_VERSION = 1
_HEADER_BYTES = 9
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Event])


class SegmentRef(NamedTuple):
    """Names a segment; sorts by window, then namespace, then id."""

    window: int
    namespace_id: int
    segment_id: bytes  # random, 128 bits, never reused
    event_count: int
    shard: int
    lane: int


class Segment(NamedTuple):
    ref: SegmentRef
    body: bytes


def encode(events: Sequence[Event]) -> bytes:
    packed = _encoder.encode(events)
    return bytes((_VERSION,)) + xxh3_64_digest(packed) + packed


def decode(body: bytes) -> list[Event]:
    if not body or body[0] != _VERSION:
        version = body[0] if body else None
        raise StoreDamaged(f"segment of unknown version {version}: this Tally reads {_VERSION}")
    packed = body[_HEADER_BYTES:]
    if xxh3_64_digest(packed) != body[1:_HEADER_BYTES]:
        raise StoreDamaged("segment checksum does not match its events")
    try:
        return _decoder.decode(packed)
    except UNREADABLE as error:
        raise StoreDamaged(f"segment cannot be decoded: {error}") from error


def slices(refs: Iterable[SegmentRef], *, events_max: int) -> Iterator[list[SegmentRef]]:
    """Cuts segments into pieces of about `events_max` events, or fewer if the segments are small:
    about the same work each."""
    slice_: list[SegmentRef] = []
    events = 0
    for ref in refs:
        slice_.append(ref)
        events += ref.event_count + _SEGMENT_COSTS_EVENTS
        if events >= events_max:
            yield slice_
            slice_, events = [], 0
    if slice_:
        yield slice_


def unfolded_events(ref: SegmentRef, body: bytes | None) -> list[Event]:
    """The events of a segment that is not folded yet, so that its shard cannot go on without it."""
    where = f"segment {ref.segment_id.hex()} of window {ref.window}, shard {ref.shard}"
    if body is None:
        raise StoreDamaged(f"{where} is gone before it was folded: restore it from a backup")
    try:
        return decode(body)
    except StoreDamaged as error:
        raise SegmentDamaged(
            f"{where} cannot be read ({error.message}). Its shard waits. Restore it from another "
            f"replica or a backup, or let it not count: tally quarantine {ref.segment_id.hex()}",
            segment_id=ref.segment_id,
        ) from error
