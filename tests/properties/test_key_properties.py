"""Keys: where a counter lives follows from its namespace's id and its name, and nothing else."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import Cardinality
from tests.properties.strategies import TEXT

NAMESPACE_IDS = st.integers(0, 2**63 - 1)


@given(NAMESPACE_IDS, TEXT)
def test_the_hash_is_of_the_id_and_the_name(namespace_id: int, counter: str) -> None:
    wanted = xxh3_64_intdigest(namespace_id.to_bytes(8, "big") + counter.encode())
    assert counter_hash(namespace_prefix(namespace_id), counter) == wanted


def test_the_hash_never_changes() -> None:
    """It is in every key that was ever stored."""
    assert counter_hash(namespace_prefix(1), "views") == 0xEE9BC6959D3F0FAF
    assert counter_hash(namespace_prefix(7), "🎬") == 0xC4A45696638FB9BA


@pytest.mark.parametrize("cardinality", list(Cardinality))
@pytest.mark.parametrize("shards", [1, 2, 4, 16, 64, 256, 1_024])
def test_the_fold_of_one_shard_touches_few_buckets(cardinality: Cardinality, shards: int) -> None:
    buckets = ROLLUP_BUCKETS[cardinality]
    prefix = namespace_prefix(3)
    touched: dict[int, set[int]] = {}
    for number in range(5_000):
        hashed = counter_hash(prefix, f"counter {number}")
        touched.setdefault(hashed % shards, set()).add(hashed % buckets)
    assert max(len(each) for each in touched.values()) <= max(1, buckets // shards)


def test_counters_spread_over_shards() -> None:
    prefix = namespace_prefix(1)
    sizes = Counter(counter_hash(prefix, f"title/{number}") % 16 for number in range(16_000))
    assert len(sizes) == 16
    assert 800 < min(sizes.values()) <= max(sizes.values()) < 1_200
