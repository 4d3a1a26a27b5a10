"""Where a counter lives: its shard in the event log and its bucket in the rollup store."""

from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

from counter.namespaces import Cardinality

# Powers of two, so that each is a multiple or a divisor of any power-of-two number of shards and
# the fold of one shard touches few buckets.
ROLLUP_BUCKETS = {Cardinality.LOW: 1, Cardinality.MEDIUM: 16, Cardinality.HIGH: 256}


def namespace_prefix(namespace_id: int) -> bytes:
    return namespace_id.to_bytes(8, "big")


def shards_of(namespace_id: int, counters: Iterable[str], shards: int) -> list[int]:
    """The shard of each counter."""
    prefix = namespace_prefix(namespace_id)
    return [xxh3_64_intdigest(prefix + counter.encode()) % shards for counter in counters]


def counter_hash(prefix: bytes, counter: str) -> int:
    """`prefix` is namespace_prefix(id): made once per namespace, not once per counter."""
    return xxh3_64_intdigest(prefix + counter.encode())
