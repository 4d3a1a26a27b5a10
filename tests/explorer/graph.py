"""The graph of all that can change: servers that write, workers that close and fold.

A world is a store and what each worker is about to do. Two that differ only in which worker is
which are one. Stores and states of workers are numbered, a world is these numbers in one, and what
can follow on a store and a state is computed once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.explorer.faults import Protocol
from tests.explorer.invariants import broken, gone_back
from tests.explorer.store import Segments, Store
from tests.explorer.workers import A_WORKER, IDLE, Workers, WorkerState
from tests.explorer.writers import Writers

_BITS = 20  # of the number of a store, or of a state

Steps = list[tuple[str, int]]  # what happens, and the world or the store that follows


class Violated(Exception):
    """A promise does not hold. `trace` is how it came to that."""

    def __init__(self, why: str, trace: list[str]) -> None:
        super().__init__(why)
        self.trace = trace


class Graph:
    def __init__(self, segments: Segments, protocol: Protocol) -> None:
        self._segments = segments
        self._writers = Writers(segments, protocol)
        self._workers = Workers(segments, protocol)
        self.stores: list[Store] = []
        self._store_numbers: dict[Store, int] = {}
        self._states: list[WorkerState] = []
        self._state_numbers: dict[WorkerState, int] = {}
        self._problems: dict[int, str] = {}  # by store
        self._went_back: dict[tuple[int, int], str] = {}  # by the stores before and after
        self._converging: set[int] = set()  # stores from which everything can be folded
        self._written: dict[int, Steps] = {}
        self._worked: dict[int, list[tuple[str, int, int]]] = {}
        # By store: where steps lead, and one step that leads there.
        self._changes: dict[int, dict[int, str]] = {}
        self.steps: set[str] = set()
        workers = (self._number_of_state(IDLE),) * segments.scope.workers
        self.start = _joined(self._number_of_store(Store()), workers)

    def run(self) -> int:
        """Goes through all worlds; answers how many there are."""
        parents = {self.start: -1}
        frontier = [self.start]
        while frontier:
            following = []
            for world in frontier:
                for told, new in self.next(world):
                    change = self.store_of(world), self.store_of(new)
                    why = self._why(change)
                    if why is not None:
                        raise Violated(why, self._trace(parents, world, told, new))
                    if new not in parents:
                        parents[new] = world
                        following.append(new)
            frontier = following
        return len(parents)

    def _why(self, change: tuple[int, int]) -> str | None:
        """The promise that does not hold after a step, if there is one."""
        after = change[1]
        why = self._problems.get(after) or self._went_back.get(change)
        if why is None and after not in self._converging:
            self._converging.add(after)
            if not self._workers.folds_to_the_end(self.stores[after]):
                why = "I2: from here on a worker never folds everything"
        return why

    def next(self, world: int) -> Iterator[tuple[str, int]]:
        store, workers = self._parts(world)
        for told, new_store in self._written_from(store):
            yield told, _joined(new_store, workers)
        for at, worker in enumerate(workers):
            for told, new_store, new_worker in self._worked_from(store, worker):
                others = sorted((*workers[:at], new_worker, *workers[at + 1 :]))
                yield told, _joined(new_store, others)

    def changes(self, store: int) -> Iterator[tuple[str, int]]:
        """Every change of a store that somebody makes in some world."""
        for after, told in self._changes.get(store, {}).items():
            yield told, after

    def store_of(self, world: int) -> int:
        return world >> _BITS * self._segments.scope.workers

    def named(self, steps: Sequence[str], worlds: Sequence[int]) -> list[str]:
        """Says which worker took each step; `worlds` has the one before the first step too."""
        states = list(self._parts(worlds[0])[1])
        told = []
        for step, before, after in zip(steps, worlds[:-1], worlds[1:], strict=True):
            old, new = (Counter(self._parts(each)[1]) for each in (before, after))
            if step.startswith(A_WORKER) and old != new:
                [was], [is_now] = old - new, new - old
                at = states.index(was)
                states[at] = is_now
                step = f"worker {at + 1}{step.removeprefix(A_WORKER)}"
            told.append(step)
        return told

    def _written_from(self, store: int) -> Steps:
        if store not in self._written:
            self._written[store] = [
                (told, self._change(store, after, told))
                for told, after in self._writers.next(self.stores[store])
            ]
        return self._written[store]

    def _worked_from(self, store: int, worker: int) -> list[tuple[str, int, int]]:
        key = store << _BITS | worker
        if key not in self._worked:
            steps = self._workers.next(self.stores[store], self._states[worker])
            self._worked[key] = [
                (told, self._change(store, after, told), self._number_of_state(state))
                for told, after, state in steps
            ]
        return self._worked[key]

    def _change(self, before: int, store: Store, told: str) -> int:
        after = self._number_of_store(store)
        self.steps.add(told)
        changes = self._changes.setdefault(before, {})
        if after != before and after not in changes:
            changes[after] = told
            if (why := gone_back(self.stores[before], store)) is not None:
                self._went_back[before, after] = why
        return after

    def _number_of_store(self, store: Store) -> int:
        number = self._store_numbers.setdefault(store, len(self.stores))
        if number == len(self.stores):
            assert number < 1 << _BITS
            self.stores.append(store)
            if (why := broken(self._segments, store)) is not None:
                self._problems[number] = why
        return number

    def _number_of_state(self, state: WorkerState) -> int:
        number = self._state_numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            assert number < 1 << _BITS
            self._states.append(state)
        return number

    def _parts(self, world: int) -> tuple[int, tuple[int, ...]]:
        count = self._segments.scope.workers
        mask = (1 << _BITS) - 1
        workers = tuple(world >> _BITS * at & mask for at in reversed(range(count)))
        return world >> _BITS * count, workers

    def _trace(self, parents: dict[int, int], world: int, last: str, reached: int) -> list[str]:
        """How a world came to be, and the step that was taken in it."""
        worlds, steps = [reached, world], [last]
        while (before := parents[world]) >= 0:
            steps.append(next(told for told, new in self.next(before) if new == world))
            worlds.append(before)
            world = before
        return self.named(steps[::-1], worlds[::-1])


def _joined(store: int, workers: Sequence[int]) -> int:
    world = store
    for worker in workers:
        world = world << _BITS | worker
    return world
