"""The digest of a set of segments: a sum modulo 2^128 of a 128-bit hash of each body.

A sum does not depend on order, and digests of parts add up to the digest of the whole. Segments are
written once and never again, so whoever reads the same ones gets the same digest; one event more,
less or different changes it. It is no protection against somebody who forges segments.
"""

from xxhash import xxh3_128_intdigest

_MODULUS_BITS = 128
_MASK = (1 << _MODULUS_BITS) - 1
# The first byte of a digest: how it was made. Those of an earlier build, which hashed events, have
# no such byte and are shorter.
_OF_SEGMENTS = b"\x02"


class Digest:
    """Adds up as it goes."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, namespace_id: int, body: bytes) -> None:
        self._sum += xxh3_128_intdigest(body, namespace_id)

    def value(self) -> bytes:
        return _OF_SEGMENTS + (self._sum & _MASK).to_bytes(_MODULUS_BITS // 8, "big")


def differ(recorded: bytes, computed: bytes) -> bool:
    """Whether segments are not those that were recorded. A digest of an earlier build, or none at
    all, does not tell."""
    return len(recorded) == len(computed) and recorded != computed
