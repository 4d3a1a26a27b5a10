"""Rollups and fold records: what folds agree on and what they leave behind."""

from typing import NamedTuple

import msgspec

from counter.segments import SegmentRef


class RollupKey(NamedTuple):
    namespace_id: int
    bucket: int
    counter: str


class Rollup(msgspec.Struct, frozen=True, gc=False):
    """A counter's folded state."""

    count: int = 0  # exact: may exceed 64 bits
    epoch: int = 0  # how many times the counter was cleared
    cleared_at_ns: int = 0  # 0: never
    through_window: int = -1  # the end of the last fold record that touched the counter


ZERO = Rollup()


class FoldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The agreed list of the segments that count for a range of closed windows of one shard.

    Records of a shard form one chain without gaps: each starts where the previous one ended.
    """

    shard: int
    from_window: int
    to_window: int
    segments: tuple[SegmentRef, ...]  # sorted
    event_count: int
    namespaces_version: int


class CachedCount(msgspec.Struct, frozen=True, gc=False):
    """A count with the stamp it was stored with: the two are one value and never parted."""

    count: int
    complete_through_ns: int
    epoch: int
    cleared_at_ns: int
