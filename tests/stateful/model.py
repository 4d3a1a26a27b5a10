"""What an installation must answer: a plain list of events, and a fold that is written anew here.

Some things a caller cannot know: whether a write that failed was written, and which of two events
with the same token comes first. So there may be several *worlds*, each a set of events that may be
what the log holds. An answer must be explained by one of them, and those that do not explain it are
out for good: two answers that only different worlds explain are a violation.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

Answer = TypeVar("Answer", bound=Hashable)

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
FOREVER_NS = 2**80


class Identity(NamedTuple):
    """Of an event, within its counter."""

    time_ns: int
    token: str


class Effect(NamedTuple):
    delta: int | None  # None: a clear
    note: tuple[str, str] | None = None


class State(NamedTuple):
    count: int = 0
    epoch: int = 0
    cleared_at_ns: int = 0
    total: int = 0


World = dict[Identity, Effect]


class CounterModel:
    """One counter of one namespace id."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.worlds: list[World] = [{}]

    def write(self, identity: Identity, effect: Effect, *, surely: bool) -> None:
        """Of two events with one identity the fold takes one: which one, no caller can tell."""
        grown: list[World] = []
        for world in self.worlds:
            present = world.get(identity)
            if present != effect:
                grown.append({**world, identity: effect})
            if present is not None or not surely:
                grown.append(world)
        self.worlds = _different(grown)

    def explain(self, what: str, answer: Answer, expected: Callable[[World], Answer]) -> None:
        """Keeps the worlds in which this is the answer; there must be one."""
        possible = [expected(world) for world in self.worlds]
        left = [world for world, each in zip(self.worlds, possible, strict=True) if each == answer]
        assert left, (
            f"{what} of {self.name!r} is {answer}, and nothing explains that: it should be "
            f"{' or '.join(sorted({str(each) for each in possible}))}. Events: {self.worlds}"
        )
        self.worlds = left

    def settle(self, identity: Identity, *, is_applied: bool) -> None:
        self.explain(f"the outcome of {identity}", is_applied, lambda world: identity in world)

    def identities(self) -> set[Identity]:
        """Of all events that there may be."""
        return {identity for world in self.worlds for identity in world}

    def surely(self, through_ns: int) -> bool:
        """Whether it has an event up to this time, whatever world it is."""
        return all(any(each.time_ns <= through_ns for each in world) for world in self.worlds)

    def possibly(self, through_ns: int) -> bool:
        return any(any(each.time_ns <= through_ns for each in world) for world in self.worlds)


def state_of(world: World, through_ns: int = FOREVER_NS) -> State:
    """In the order of time and token: adds count up, a clear sets back to 0 where it stands."""
    count = epoch = cleared_at_ns = total = 0
    for identity in sorted(world):
        if identity.time_ns > through_ns:
            break
        delta = world[identity].delta
        if delta is None:
            count, epoch, cleared_at_ns = 0, epoch + 1, identity.time_ns
        else:
            count += delta
            total += delta
    return State(count, epoch, cleared_at_ns, total)


def hits_of(world: World, from_ns: int, through_ns: int = FOREVER_NS) -> int:
    """What was added from a time on, and since the last clear."""
    hits = 0
    for identity in sorted(world):
        if identity.time_ns > through_ns:
            break
        delta = world[identity].delta
        if delta is None:
            hits = 0
        elif identity.time_ns >= from_ns:
            hits += delta
    return hits


def clamped(number: int) -> int:
    return max(INT64_MIN, min(INT64_MAX, number))


def _different(worlds: list[World]) -> list[World]:
    found: dict[frozenset[tuple[Identity, Effect]], World] = {}
    for world in worlds:
        found.setdefault(frozenset(world.items()), world)
    return list(found.values())
