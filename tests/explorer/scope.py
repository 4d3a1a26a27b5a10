"""How small the small world is: which events there are, who sends them, and who works on them."""

from dataclasses import dataclass, replace
from typing import NamedTuple


class Event(NamedTuple):
    """Events stand in fold order by their place in the scope's list."""

    name: str
    window: int
    delta: int | None  # None: a clear


class Call(NamedTuple):
    """One call: it sends an event to a server, which writes it as a segment of its own."""

    server: int
    event: int  # its place in the scope


@dataclass(frozen=True, kw_only=True)
class Scope:
    """One shard with one counter: others are worlds of their own."""

    name: str
    events: tuple[Event, ...]
    calls: tuple[Call, ...]
    workers: int = 2

    @property
    def windows(self) -> int:
        return 1 + max(event.window for event in self.events)


# The clear stands between x and y, so that it matters on which side of it an add is.
X, CLEAR, Y = Event("x", 0, 1), Event("clear", 0, None), Event("y", 1, 2)

# Two windows, and nobody else: is everything folded in the end?
ALONE = Scope(name="alone", events=(X, Y), calls=(Call(1, 0), Call(1, 1)), workers=1)
# Two servers, two workers: a token that is sent to both, and a clear.
SMALL = Scope(name="small", events=(X, CLEAR), calls=(Call(1, 0), Call(2, 0), Call(2, 1)))
# A third worker is also a write of one of the two that timed out, and lands when it has gone on.
THREE = replace(SMALL, name="three", workers=3)
# And a later event in another window: records follow on one another.
FULL = Scope(
    name="full",
    events=(X, CLEAR, Y),
    calls=(Call(1, 0), Call(2, 0), Call(2, 1), Call(1, 2)),
)
# The clear is what is sent twice, in the window of the event that comes after it.
LATER = Scope(
    name="later",
    events=(X, Event("clear", 1, None), Y),
    calls=(Call(1, 0), Call(1, 1), Call(2, 1), Call(2, 2)),
)
# One event more, in a third window: some minutes.
LARGE = Scope(
    name="large",
    events=(X, CLEAR, Y, Event("z", 2, 4)),
    calls=(Call(1, 0), Call(2, 0), Call(2, 1), Call(1, 2), Call(2, 3)),
)
SCOPES = {each.name: each for each in (ALONE, SMALL, THREE, FULL, LATER, LARGE)}
