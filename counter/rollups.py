"""Rollups and fold records: what folds agree on and what they leave behind."""

from typing import NamedTuple

import msgspec

from counter.segments import SegmentRef


class RollupKey(NamedTuple):
    namespace_id: int
    bucket: int
    counter: str


class Recent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The deltas of the last windows, for a rolling window: those of its first window and later
    that a rollup holds. A window that is not listed added nothing."""

    from_window: int
    deltas: tuple[tuple[int, int], ...] = ()  # (window, delta), rising

    def since(self, window: int) -> int:
        return sum(delta for of_window, delta in self.deltas if of_window >= window)


class Rollup(msgspec.Struct, frozen=True, gc=False):
    """A counter's folded state."""

    count: int = 0  # exact: may exceed 64 bits
    epoch: int = 0  # how many times the counter was cleared
    cleared_at_ns: int = 0  # 0: never
    through_window: int = -1  # the end of the last fold record that touched the counter
    total: int = 0  # all that was ever added, which clears leave as it is
    changed_window: int = -1  # the last window with an event
    first_window: int = -1  # the first window with an event; -1: not known
    recent: Recent | None = None  # with strategy rolling_window


ZERO = Rollup()


class SetAside(msgspec.Struct, frozen=True):
    """An operator's decision that a segment which cannot be read shall not count."""

    segment: SegmentRef
    author: str
    reason: str
    time_ns: int


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
    digest: bytes = b""  # of the segments; empty: not known
    set_aside: tuple[SetAside, ...] = ()  # segments that were there and do not count


class CachedCount(msgspec.Struct, frozen=True, gc=False):
    """A count with the stamp it was stored with: the two are one value and never parted."""

    count: int
    complete_through_ns: int
    epoch: int
    cleared_at_ns: int
