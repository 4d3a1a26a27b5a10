"""What the SDK's calls on the past and on many counters give."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from clients.times import datetime_of
from clients.values import CountValue


@dataclass(frozen=True, kw_only=True, slots=True)
class CountAt:
    """A count as of a past time."""

    # Its complete_through is the time that it is exact for: the one asked for, or the nearest one
    # before it that is kept.
    value: CountValue
    resolution: timedelta | None  # the step of the history that answered. None: exact to the window


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPoint:
    """One step of a counter's history."""

    start_ns: int
    delta: int  # what was added in the step, whether or not the counter was cleared in it
    count: int  # at the end of the step
    epoch: int  # how many times the counter was cleared until then
    saturated: bool  # delta or count was clamped to 64 bits
    known: bool  # False where the history does not reach: delta and count mean nothing then

    @property
    def start(self) -> datetime:
        """`start_ns` in UTC, rounded down to microseconds."""
        moment = datetime_of(self.start_ns)
        assert moment is not None
        return moment


@dataclass(frozen=True, kw_only=True, slots=True)
class Adjustment:
    """A correction by an operator, after an audit."""

    time_ns: int
    delta: int
    author: str
    reason: str

    @property
    def time(self) -> datetime:
        """`time_ns` in UTC, rounded down to microseconds."""
        moment = datetime_of(self.time_ns)
        assert moment is not None
        return moment


@dataclass(frozen=True, kw_only=True, slots=True)
class CountHistory:
    """What was added to a counter in each step of a range, oldest first."""

    points: tuple[HistoryPoint, ...]  # also of steps in which nothing changed
    step: timedelta
    resolution: timedelta  # the kept step that the answer was made from: the same, or a finer one
    # The last step may not be over; it counts every event up to here. None: unknown.
    complete_through_ns: int | None
    adjustments: tuple[Adjustment, ...]  # within the range, oldest first

    @property
    def complete_through(self) -> datetime | None:
        """`complete_through_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.complete_through_ns)


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterEntry:
    counter: str
    value: CountValue


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterPage:
    """Some counters of a namespace, by name."""

    counters: tuple[CounterEntry, ...]
    next_page_token: str  # for the next page; empty: this was the last one
    # Every counter with an event up to here is listed, if its turn has come. None: unknown.
    complete_through_ns: int | None

    @property
    def complete_through(self) -> datetime | None:
        """`complete_through_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.complete_through_ns)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedCounter:
    counter: str
    value: CountValue
    # What was added since `growth_from`, clears left out of account. None: ranked by count.
    growth: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TopCounters:
    """A ranking: the highest first, equal ones by name."""

    counters: tuple[RankedCounter, ...]
    complete_through_ns: int | None  # the ranking counts every event up to here. None: unknown
    counters_seen: int  # how many counters were looked at
    # By growth only, else None: from when on, and the step of the history that was used.
    growth_from_ns: int | None
    resolution: timedelta | None

    @property
    def complete_through(self) -> datetime | None:
        """`complete_through_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.complete_through_ns)

    @property
    def growth_from(self) -> datetime | None:
        """`growth_from_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.growth_from_ns)
