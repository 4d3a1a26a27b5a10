"""What the SDK's calls on counters take and give."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from clients.errors import CounterError
from clients.times import datetime_of
from counter.tokens import Token


# The words are the contract's. They are not the platform's own classes, because the SDK imports
# nothing that needs the server's dependencies.
class Strategy(StrEnum):
    """How a namespace counts."""

    BEST_EFFORT = "best_effort"
    EVENTUAL = "eventual"
    ACCURATE = "accurate"
    ROLLING_WINDOW = "rolling_window"


class Cardinality(StrEnum):
    """How many counters a namespace expects."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Source(StrEnum):
    """Where a count came from."""

    LOCAL_CACHE = "local_cache"
    SHARED_CACHE = "shared_cache"
    ROLLUP = "rollup"
    ROLLUP_AND_TAIL = "rollup_and_tail"
    HISTORY = "history"


class TokenStatus(StrEnum):
    """What became of a token."""

    PENDING = "pending"  # its window is not folded yet: it may still be applied
    APPLIED = "applied"  # counted, once, for ever
    NOT_APPLIED = "not_applied"  # not counted, and it never will be: a new token is safe


@dataclass(frozen=True, kw_only=True, slots=True)
class CountValue:
    """A count and how fresh it is."""

    count: int  # clamped to 64 bits, see `saturated`
    # Every event with a time up to here is in the count. None: the freshness is unknown.
    complete_through_ns: int | None
    epoch: int  # how many times the counter was cleared
    cleared_at_ns: int | None  # None: never cleared
    strategy: Strategy | None  # None: one that this version of the SDK does not know
    source: Source | None  # likewise
    saturated: bool  # the exact sum does not fit in 64 bits; the platform keeps it
    # rolling_window only, else None: the count holds the events from here on, and its rate.
    window_start_ns: int | None = None
    rate_per_s: float | None = None

    @property
    def complete_through(self) -> datetime | None:
        """`complete_through_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.complete_through_ns)

    @property
    def cleared_at(self) -> datetime | None:
        """`cleared_at_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.cleared_at_ns)

    @property
    def window_start(self) -> datetime | None:
        """`window_start_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.window_start_ns)


class AddResult(NamedTuple):  # made for every add, and five times cheaper than a frozen dataclass
    """An add or a clear that is durable and counts exactly once."""

    token: Token
    # True: this token was applied before. False proves nothing while its window is open.
    duplicate: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class AddAndGetResult:
    token: Token
    duplicate: bool
    value: CountValue  # includes this add


@dataclass(frozen=True, slots=True)
class Add:
    """One item of `batch_add`: `Add("title-42")`, `Add("title-42", -3)`."""

    counter: str
    delta: int = 1
    token: Token | None = None  # None: the client makes one

    def __post_init__(self) -> None:
        # Found here, before a part of the batch is sent.
        if not isinstance(self.counter, str) or not isinstance(self.delta, int):
            raise TypeError(f"an Add has a counter (str) and a delta (int), not {self!r}")


class AddOutcome(NamedTuple):  # made for every add of a batch, and cheaper than a dataclass
    """What became of one item of `batch_add`: durable and counted once if `error` is None."""

    counter: str
    token: Token
    duplicate: bool = False
    error: CounterError | None = None
