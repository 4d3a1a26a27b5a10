"""The digest of a set of events: a sum modulo 2^128 of a 128-bit hash of each.

A sum does not depend on order, nor on how events are spread over segments, and digests of parts add
up to the digest of the whole. Whoever reads the same events again gets the same digest; one event
more, less or different changes it. It is no protection against somebody who forges events.
"""

from collections.abc import Iterable

import msgspec
from xxhash import xxh3_128_intdigest

from counter.events import Event

_MODULUS_BITS = 128
_MASK = (1 << _MODULUS_BITS) - 1
_encode = msgspec.msgpack.Encoder().encode


class Digest:
    """Adds up as it goes."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, namespace_id: int, events: Iterable[Event]) -> None:
        hashed, encode = xxh3_128_intdigest, _encode
        self._sum += sum([hashed(encode(event), namespace_id) for event in events])

    def value(self) -> bytes:
        return (self._sum & _MASK).to_bytes(_MODULUS_BITS // 8, "big")
