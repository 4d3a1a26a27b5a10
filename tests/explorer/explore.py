"""Goes through every interleaving, breadth first, and stops at the first state that is wrong.

In two parts. First come all that change something (see `graph`). Then each of those that only look,
alone, since they disturb nobody. What it meets depends on the stores only, so it is taken along
every change of a store that was made in some world, whoever was about to do what there: these are
all ways that there are, and some more. An answer that is wrong there is looked for once more among
the worlds as they are, so that what is reported is real, and every step of its trace is shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.explorer.faults import CORRECT, Protocol
from tests.explorer.graph import Graph, Violated
from tests.explorer.readers import (
    START,
    AccurateRead,
    Dishonest,
    EventualRead,
    LateLookup,
    Reader,
    Seen,
)
from tests.explorer.scope import Scope
from tests.explorer.store import Segments


@dataclass(kw_only=True)
class Exploration:
    scope: Scope
    worlds: int = 0
    stores: int = 0
    views: int = 0  # of those who look: what they have seen so far, and a store
    violation: str | None = None
    trace: list[str] = field(default_factory=list)
    # What was done: a world in which nothing happens proves nothing.
    steps: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        told = (
            f"{self.scope.name}: {self.worlds:,} worlds on {self.stores:,} stores, "
            f"{self.views:,} views of those who look"
        )
        if self.violation is None:
            return f"{told}: every promise holds"
        lines = [f"  {number}. {step}" for number, step in enumerate(self.trace, start=1)]
        return "\n".join([told, self.violation, *lines])


def explore(scope: Scope, protocol: Protocol = CORRECT) -> Exploration:
    found = Exploration(scope=scope)
    segments = Segments(scope)
    graph = Graph(segments, protocol)
    try:
        found.worlds = graph.run()
        for reader in _readers(segments, protocol):
            try:
                found.views += _look(reader, graph, found.steps, in_worlds=False)
            except Violated:
                # Raises once more, with what happened in worlds that there are.
                _look(reader, graph, found.steps, in_worlds=True)
    except Violated as violated:
        found.violation, found.trace = str(violated), violated.trace
    found.stores = len(graph.stores)
    found.steps |= graph.steps
    return found


def _readers(segments: Segments, protocol: Protocol) -> Iterator[Reader]:
    yield EventualRead(segments, protocol.eventual_read)
    yield AccurateRead(segments, protocol.accurate_read)
    for call in range(len(segments.scope.calls)):
        yield LateLookup(segments, protocol.late, call, looks_at_all=protocol.looks_up_all_segments)


View = tuple[int, Seen]


def _look(reader: Reader, graph: Graph, steps: set[str], *, in_worlds: bool) -> int:
    """Every way in which things move between the steps of one who looks; answers how many views
    there are. Things are worlds, or stores alone."""
    start, moves, store_of = graph.start, graph.next, graph.store_of
    if not in_worlds:
        start, moves, store_of = graph.store_of(start), graph.changes, int
    parents: dict[View, tuple[View | None, str]] = {(start, START): (None, "")}
    frontier: list[View] = list(parents)
    while frontier:
        following = []
        for view in frontier:
            at, seen = view
            try:
                looked = list(reader.next(graph.stores[store_of(at)], seen))
            except Dishonest as dishonest:
                told, worlds = _way(parents, view)
                if in_worlds:
                    told = graph.named(told, worlds)
                raise Violated(str(dishonest), [*told, dishonest.told]) from dishonest
            steps.update(told for told, _ in looked)
            reached = [(told, (at, new)) for told, new in looked]
            reached += [(told, (new, seen)) for told, new in moves(at)]
            for told, new_view in reached:
                if new_view not in parents:
                    parents[new_view] = (view, told)
                    following.append(new_view)
        frontier = following
    return len(parents)


def _way(
    parents: dict[View, tuple[View | None, str]], view: View | None
) -> tuple[list[str], list[int]]:
    told, things = [], []
    while view is not None:
        things.append(view[0])
        view, step = parents[view]
        told.append(step)
    return told[-2::-1], things[::-1]
