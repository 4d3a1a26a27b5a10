"""What a strategy is: how a namespace's counters are added to and read."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

from msgspec import Struct

from counter.errors import TallyError
from counter.events import Event
from counter.namespaces import Namespace
from counter_server.late import TokenStatus

# Of one add: whether its token was applied before, or why it was not taken.
Outcome = bool | TallyError


class Source(Enum):
    """Where an answer came from."""

    LOCAL_CACHE = "local_cache"
    SHARED_CACHE = "shared_cache"
    ROLLUP = "rollup"
    ROLLUP_AND_TAIL = "rollup_and_tail"
    HISTORY = "history"


_EVER_NS = -(2**63)


class Value(Struct, frozen=True, gc=False):
    count: int
    complete_through_ns: int | None  # None: freshness is unknown
    epoch: int
    cleared_at_ns: int  # 0: never
    source: Source
    # With strategy rolling_window: the count holds the events from here on.
    window_start_ns: int | None = None
    rate_per_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Freshness:
    """What a reader asks for. An answer that is too old makes way for a fresher, dearer one."""

    max_staleness_ns: int | None = None
    at_least_ns: int | None = None  # complete_through must not be before this

    def oldest_ns(self, now_ns: int) -> int:
        """The earliest complete_through that an answer may have."""
        oldest_ns = _EVER_NS if self.at_least_ns is None else self.at_least_ns
        if self.max_staleness_ns is None:
            return oldest_ns
        return max(oldest_ns, now_ns - self.max_staleness_ns)


ANY_FRESHNESS = Freshness()


class Strategy(Protocol):
    """Bound to one namespace. Everything works on batches; a unary call is a batch of one.

    `wait_s` is how long the caller is willing to wait for an outcome that is not decided yet.
    """

    # The ports that it cannot do without. A namespace whose strategy needs one that the server
    # does not have is refused when it is loaded.
    needs: ClassVar[frozenset[str]]
    namespace: Namespace

    async def add(self, events: Sequence[Event], *, wait_s: float) -> list[Outcome]:
        """Adds and clears. Raises if nothing of it could be taken."""
        ...

    async def read(self, counters: Sequence[str], freshness: Freshness) -> list[Value]: ...

    async def add_and_read(self, event: Event, *, wait_s: float) -> tuple[bool, Value]:
        """Whether the token was applied before, and a value that includes the add."""
        ...

    async def token_status(self, event: Event) -> TokenStatus: ...
