"""The ports: what Tally needs from a store, and what each store guarantees.

An adapter belongs to one region; the region is part of every key that it writes. All methods raise
`StoreUnavailable` when the store does not answer or refuses, and then the outcome of a write is
unknown: it may have happened, and may even happen later. Every write is therefore safe to repeat.
`StoreDamaged` means that something was read back differently from how it was written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from counter.errors import TallyError
from counter.history import Adjustment, HistoryRow
from counter.namespaces import Snapshot, VersionInfo
from counter.rollups import CachedCount, FoldRecord, Rollup, RollupKey, SetAside
from counter.segments import Segment, SegmentRef
from counter.windows import Layout

RollupRow = tuple[RollupKey, Rollup]
CounterKey = tuple[int, str]  # namespace id, counter
# As the end of a range of windows: there is none.
FOREVER = 2**62


class Closed(NamedTuple):
    """How far windows are closed, and what the store's clock said at that moment."""

    through: int
    store_time_ns: int
    # How long ago that moment may be: the time that the read took. A slow store is not skew.
    age_ns_max: int = 0


class EventLog(Protocol):
    """Segments, each of one window and shard. In which lane one lies is its writer's choice."""

    async def append(self, segments: Sequence[Segment]) -> Closed:
        """Stores the segments; durable when it returns, idempotent by segment id.

        Answers with a read of the close mark that began after the write was durable (or that is
        in the write's own transaction). The exactness of every add rests on that order: see
        docs/closing-protocol.md.
        """
        ...

    async def refs(self, shard: int, from_window: int, to_window: int) -> list[SegmentRef]:
        """The segments of a range of windows, sorted; sees every append that returned before.

        Up to FOREVER means: up to the last window that an acknowledged event can be in. A store
        that must go through windows one by one looks accept_limit + 2 max_clock_skew ahead of its
        process's clock: the server that took an event may be ahead of the store's clock by one
        skew while this one is behind by another.
        """
        ...

    async def bodies(self, refs: Sequence[SegmentRef]) -> list[bytes | None]:
        """The bodies in the order of `refs`; None where there is no such segment (any more)."""
        ...

    async def drop_through(self, window: int) -> int:
        """Forgets segments of windows up to `window`; answers how many. Bounded: call until 0.

        A store whose segments expire by themselves has nothing to do here and answers 0.
        """
        ...


class Ledger(Protocol):
    """What was decided: the layout, closes, fold records and watermarks."""

    async def open_layout(self, wanted: Layout) -> Layout:
        """Writes the layout if the store has none; answers with the one that holds."""
        ...

    async def closed(self) -> Closed:
        """Sees every `close` that returned before. Never goes back (I4)."""
        ...

    async def close(self, window: int) -> None:
        """Closes windows up to `window`, durably. Closing less than is closed changes nothing."""
        ...

    async def watermarks(self) -> list[int]:
        """By shard: the last window that is folded with its rollups written. Never go back."""
        ...

    async def advance(self, shard: int, window: int) -> None:
        """Moves a watermark forward; moving it back changes nothing."""
        ...

    async def propose(self, record: FoldRecord) -> FoldRecord:
        """Inserts the record if there is none for its shard and from_window.

        Answers with the record that holds, which every proposer gets alike, for ever. A proposal
        that timed out is simply made again.
        """
        ...

    async def folds(self, shard: int, from_window: int, to_window: int) -> list[FoldRecord]:
        """The records that touch the range, in order."""
        ...

    async def drop_folds_through(self, window: int) -> int:
        """Forgets records that end at or before `window`. Bounded: call until 0.

        A store whose records expire by themselves has nothing to do here and answers 0.
        """
        ...

    async def set_aside(self, decision: SetAside) -> None:
        """Keeps an operator's decision for as long as fold records; the first one stays."""
        ...

    async def set_asides(self, shard: int) -> list[SetAside]:
        """The decisions on segments of the shard. They take effect in the records that say so."""
        ...


class RollupStore(Protocol):
    async def read(self, keys: Sequence[RollupKey]) -> list[Rollup | None]:
        """The rows in the order of `keys`; None where a counter has none."""
        ...

    async def write(self, rows: Sequence[RollupRow]) -> None:
        """Writes rows; one with an older through_window never replaces a newer one.

        Two rows of a counter with the same through_window are equal (I3), so either may stay.
        """
        ...

    async def page(
        self, namespace_id: int, bucket: int, *, prefix: str, after: str, limit: int
    ) -> list[tuple[str, Rollup]]:
        """Counters of a bucket by name (as UTF-8 bytes order them), with their rows: the first
        `limit` that begin with `prefix` and come after `after`."""
        ...

    async def count(self, namespace_id: int, bucket: int) -> int:
        """How many counters of a bucket have rows. It takes as long as the bucket is large, and
        nobody else waits for it."""
        ...


class HistoryKey(NamedTuple):
    namespace_id: int
    counter: str
    step_ms: int


class HistoryWrite(NamedTuple):
    key: HistoryKey
    row: HistoryRow
    retention_ms: int

    @property
    def expires_at_ms(self) -> int:
        """A row is of use until the step that put an end to it is older than the retention."""
        return (self.row.until_step + 1) * self.key.step_ms + self.retention_ms


class HistoryStore(Protocol):
    """What became of counters: their states at the end of past steps, and corrections."""

    async def write(
        self, rows: Sequence[HistoryWrite], adjustments: Sequence[Adjustment] = ()
    ) -> None:
        """Writes rows; one that is there is written again unchanged (I3)."""
        ...

    async def at(self, keys: Sequence[HistoryKey], step: int) -> list[HistoryRow | None]:
        """For each key the last row of a step up to `step`; None where there is none."""
        ...

    async def between(
        self, key: HistoryKey, from_step: int, to_step: int, *, limit: int
    ) -> list[HistoryRow]:
        """The first `limit` rows of these steps, both included, in order."""
        ...

    async def adjustments(
        self, namespace_id: int, counter: str, from_ns: int, to_ns: int, *, limit: int
    ) -> list[Adjustment]:
        """The first `limit` corrections of a range of time, both ends included, in order."""
        ...

    async def drop_expired(self, now_ns: int) -> int:
        """Forgets rows that expired: see `HistoryWrite`. Bounded: call until 0.

        A store whose rows expire by themselves has nothing to do here and answers 0.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """A record and everything that it leads to."""

    record: FoldRecord
    rollups: list[RollupRow]  # those of a bucket next to each other: they are written together
    history: list[HistoryWrite] = field(default_factory=list)
    adjustments: list[Adjustment] = field(default_factory=list)


class FoldCommit(Protocol):
    async def commit(self, fold: Fold, *, rollups_per_batch: int) -> FoldRecord:
        """Commits a fold: agrees on the record, then writes history, rollups and the watermark.

        If the answer is another record than the one given, somebody else decided first, and
        nothing was written: compute the fold of that one and commit it. A crash on the way leaves a
        prefix of the steps; committing the same fold again completes it. A store that takes rollups
        in batches gets so many at once.
        """
        ...


class CountCache(Protocol):
    """Counts with their stamps. May lose anything at any time; never raises."""

    async def get(self, keys: Sequence[CounterKey]) -> list[CachedCount | None]: ...

    async def put(
        self, items: Sequence[tuple[CounterKey, CachedCount]], *, ttl_ms: int
    ) -> None: ...


class BestEffortAdd(NamedTuple):
    key: CounterKey
    delta: int | None  # None: a clear
    dedupe_key: str | None  # None: count it whatever was counted before


# The count after an add and whether its dedupe key was there already, or why there is no answer.
BestEffortOutcome = tuple[int, bool] | TallyError


class BestEffortCounters(Protocol):
    """Counters of the best_effort strategy: cheap, and may be lost at any time.

    What is not answered with a count is not acknowledged: an add that a store could not do, or
    does not know to have done, is a StoreUnavailable, and a count that cannot be read is not 0.
    """

    async def apply(
        self, adds: Sequence[BestEffortAdd], *, dedupe_ttl_ms: int
    ) -> Sequence[BestEffortOutcome]:
        """Each add has an outcome of its own: one server of several that is away fails its part.

        A dedupe key is remembered for at least the time given.
        """
        ...

    async def read(self, keys: Sequence[CounterKey]) -> list[int]:
        """The counts in the order of `keys`, 0 where nothing was counted; all of them or none."""
        ...


class NamespaceStore(Protocol):
    """Versions of the namespace snapshot. A version is immutable."""

    async def latest(self) -> Snapshot | None: ...

    async def get(self, version: int) -> Snapshot | None: ...

    async def put(self, snapshot: Snapshot) -> bool:
        """Adds the version after the latest; False if that version is taken already."""
        ...

    async def versions(self, *, before: int | None, limit: int) -> list[VersionInfo]:
        """The latest versions, or those before `before`, newest first, at most `limit`."""
        ...


class Membership(Protocol):
    """Which members of a group are alive. It spreads work and decides nothing: overlap is safe.

    The groups are the workers, which spread the shards, and all processes of the fleet, which say
    what they run (see `counter.presence`).
    """

    async def beat(self, member: str, report: bytes, *, ttl_s: int) -> None:
        """Says that the member is alive, and how it is: a report for the others to read.

        Both are forgotten after `ttl_s` without another beat.
        """
        ...

    async def live(self) -> list[tuple[str, bytes]]:
        """The members that are alive, sorted, with what each said last; empty: nothing."""
        ...

    async def leave(self, member: str) -> None: ...
