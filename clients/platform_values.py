"""What the SDK's calls on the platform itself give: the state of the rollups."""

from dataclasses import dataclass
from datetime import datetime

from clients.times import datetime_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardStatus:
    shard: int
    watermark_ns: int | None  # everything up to here is in this shard's rollups
    lag_ms: int  # now minus the watermark
    owner: str  # the worker that folds this shard
    queue_depth: int  # closed windows that are not folded yet
    batch_counters: int  # how many counters its owner writes at once now
    problem: str  # why this shard is stuck, and what to do; empty when it is not
    # Since its owner started.
    folded_events: int
    duplicate_events: int
    conflicting_events: int  # same counter and token, another delta: the first in fold order won
    last_pass_events: int
    last_pass_ms: float

    @property
    def watermark(self) -> datetime | None:
        """`watermark_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.watermark_ns)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerStatus:
    member: str
    shards: tuple[int, ...]  # those that it folds
    passes_in_parallel: int  # at once now: fewer when the store is slow or fails. 0: not known
    problem: str  # what keeps it from closing or folding as a whole; empty when nothing does


@dataclass(frozen=True, kw_only=True, slots=True)
class RollupStatus:
    """How far the folding of events into rollups has come."""

    region: str
    window_ms: int
    closed_through_ns: int | None  # nothing up to here can be acknowledged any more
    folded_through_ns: int | None  # everything up to here is in the rollups, in every shard
    shards: tuple[ShardStatus, ...]
    problem: str  # what keeps workers from closing or folding; empty when nothing does
    workers: tuple[WorkerStatus, ...]  # those that are alive

    @property
    def closed_through(self) -> datetime | None:
        """`closed_through_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.closed_through_ns)

    @property
    def folded_through(self) -> datetime | None:
        """`folded_through_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.folded_through_ns)
