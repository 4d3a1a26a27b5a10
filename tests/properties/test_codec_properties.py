"""Segments: what was packed comes back, and damage is an error, never another answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from counter.errors import StoreDamaged
from counter.events import Event
from counter.segments import SEGMENT_EVENTS_MAX, decode, encode
from counter.settings import COUNTER_NAME_BYTES_MAX
from counter.tokens import TOKEN_BYTES_MAX
from tests.properties.strategies import TEXT

MEBIBYTE = 2**20

EVENTS = st.lists(
    st.builds(
        Event,
        counter=TEXT,
        time_ns=st.integers(0, 2**63 - 1),
        token=TEXT,
        delta=st.none() | st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=20,
)


@given(EVENTS)
def test_events_come_back_as_they_were(events: list[Event]) -> None:
    assert decode(encode(events)) == events


@given(EVENTS, st.data())
def test_any_changed_byte_is_damage(events: list[Event], data: st.DataObject) -> None:
    body = bytearray(encode(events))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StoreDamaged):
        decode(bytes(body))


@given(EVENTS, st.data())
def test_a_truncated_or_longer_body_is_damage(events: list[Event], data: st.DataObject) -> None:
    body = encode(events)
    with pytest.raises(StoreDamaged):
        decode(body[: data.draw(st.integers(0, len(body) - 1))])
    with pytest.raises(StoreDamaged):
        decode(body + data.draw(st.binary(min_size=1, max_size=10)))


@given(st.binary(max_size=200))
def test_bytes_of_any_origin_are_damage(body: bytes) -> None:
    with pytest.raises(StoreDamaged):
        decode(body)
    with pytest.raises(StoreDamaged):
        decode(b"\x01" + body)


@given(st.binary(max_size=60))
def test_a_checksum_that_fits_does_not_make_events(packed: bytes) -> None:
    """Written by something else than `encode`: still an error of our own, or events."""
    try:
        events = decode(b"\x01" + xxh3_64_digest(packed) + packed)
    except StoreDamaged:
        return
    assert all(isinstance(event, Event) for event in events)


@pytest.mark.parametrize(
    "packed",
    [
        b"\x91\x94\xa1\xff\x01\xa1t\x01",  # a name that is not UTF-8
        b"\x91\x93\xa1a\x01\xa1t",  # a field is missing
        b"\x91\x94\xa1a\xa1b\xa1t\x01",  # a time that is text
        b"\x80",
    ],
)
def test_packed_events_of_another_shape_are_damage(packed: bytes) -> None:
    with pytest.raises(StoreDamaged):
        decode(b"\x01" + xxh3_64_digest(packed) + packed)


def test_another_version_is_named() -> None:
    with pytest.raises(StoreDamaged, match="unknown version 2"):
        decode(b"\x02" + encode([])[1:])


@pytest.mark.parametrize("character", ["a", "é", "€", "🎬"])
def test_the_largest_segment_is_under_a_mebibyte(character: str) -> None:
    size = len(character.encode())
    name, token = (
        character * (COUNTER_NAME_BYTES_MAX // size),
        character * (TOKEN_BYTES_MAX // size),
    )
    largest = encode([Event(name, 2**63 - 1, token, -(2**63))] * SEGMENT_EVENTS_MAX)
    assert 0.5 * MEBIBYTE < len(largest) < MEBIBYTE
