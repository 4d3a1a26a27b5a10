"""What the SDK's audits give."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from clients.history_values import Adjustment
from clients.times import datetime_of


class AuditResult(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"


class AuditBaseKind(StrEnum):
    """What an audit begins with."""

    START = "start"  # the counter's first event is among those that are kept: it began at 0
    HISTORY = "history"  # a state in the history


class DifferenceKind(StrEnum):
    """What an audit found not to fit."""

    ROLLUP = "rollup"  # the rollup is not what the events add up to
    HISTORY = "history"  # a state in the history is not what the events add up to
    HISTORY_MISSING = "history_missing"  # a state is missing from the history
    SEGMENTS = "segments"  # the segments of a fold are not what its record says


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditBase:
    kind: AuditBaseKind | None  # None: one that this version of the SDK does not know
    time_ns: int | None  # the base holds every event up to here
    count: int

    @property
    def time(self) -> datetime | None:
        """`time_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.time_ns)


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditDifference:
    kind: DifferenceKind | None  # None: one that this version of the SDK does not know
    # The windows that it comes from: first and last instant.
    from_ns: int | None
    to_ns: int | None
    expected: int
    actual: int
    message: str  # for people


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterAudit:
    """A counter computed again from what is kept, and compared with its rollup."""

    result: AuditResult
    base: AuditBase
    audited_through_ns: int | None  # compared up to here
    expected_count: int  # what the events say; clamped to 64 bits, as is the next one
    actual_count: int  # what the rollup says
    events: int  # counted again
    differences: tuple[AuditDifference, ...]  # oldest first; at most 100
    # Since the base. They count in the rollup, and not in what the events say.
    adjustments: tuple[Adjustment, ...]
    # With a difference: sent, and not folded yet. They may be what repairs it.
    pending_adjustments: tuple[Adjustment, ...]

    @property
    def audited_through(self) -> datetime | None:
        """`audited_through_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.audited_through_ns)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetAsideSegment:
    """A segment that an operator set aside: its events will never count."""

    segment_id: str  # hexadecimal
    events: int
    author: str
    reason: str
    time_ns: int | None

    @property
    def time(self) -> datetime | None:
        """`time_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.time_ns)


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowAudit:
    """A partition of the event log read again, and compared with what its fold recorded."""

    result: AuditResult
    # The fold that the window belongs to: its first and last instant.
    from_ns: int | None
    to_ns: int | None
    segments: int
    events: int
    # Hexadecimal: what the record says, and what the segments add up to.
    recorded_digest: str
    computed_digest: str
    late_segments: int  # came after the window had closed: they do not count
    set_aside: tuple[SetAsideSegment, ...]
    # Of the counters in the window, at most 1,000.
    counters_equal: int
    counters_different: int
    counters_without_base: int  # too little is kept to audit them
    differences: tuple[AuditDifference, ...]  # at most 100


@dataclass(frozen=True, kw_only=True, slots=True)
class QuarantinedSegment:
    shard: int
    window_ns: int | None  # the first instant of its window
    events: int  # how many it held: they will never count

    @property
    def window(self) -> datetime | None:
        """`window_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.window_ns)
