"""What the fold records say, counter by counter.

The fold here is written anew, as plainly as it can be: it shares nothing with counter/fold.py.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from counter.rollups import FoldRecord, Rollup
from tests.simulation.witness import Witness

CounterKey = tuple[int, str]


class Folded(NamedTuple):
    count: int
    epoch: int
    cleared_at_ns: int
    total: int
    changed_window: int
    first_window: int

    @classmethod
    def of(cls, rollup: Rollup) -> "Folded":
        return cls(*(getattr(rollup, name) for name in cls._fields))


class Entry(NamedTuple):
    """An event in fold order."""

    time_ns: int
    token: str
    segment_id: bytes
    index: int
    delta: int | None
    window: int
    note: tuple[str, str] | None


class RecordedEvents:
    def __init__(self, records: Mapping[int, Sequence[FoldRecord]], witness: Witness) -> None:
        self._events: defaultdict[CounterKey, list[Entry]] = defaultdict(list)
        self.identities: set[tuple[int, str, int, str]] = set()
        for of_shard in records.values():
            for record in of_shard:
                for ref in record.segments:
                    found = witness.segments.get(ref.segment_id)
                    if found is None:
                        witness.violate("I3", f"{record} names a segment that nobody wrote")
                        continue
                    namespace_id, window, _, events = found
                    for index, event in enumerate(events):
                        self._events[namespace_id, event.counter].append(
                            Entry(
                                event.time_ns,
                                event.token,
                                ref.segment_id,
                                index,
                                event.delta,
                                window,
                                event.note,
                            )
                        )
                        self.identities.add(
                            (namespace_id, event.counter, event.time_ns, event.token)
                        )
        for key, entries in self._events.items():
            self._events[key] = _each_once(entries)

    def counters(self) -> list[CounterKey]:
        return sorted(self._events)

    def through(self, key: CounterKey, window: int) -> list[Entry]:
        """Each event that counts once, in fold order."""
        return [entry for entry in self._events[key] if entry.window <= window]

    def fold(self, key: CounterKey, through_window: int) -> Folded:
        count = epoch = cleared_at_ns = total = 0
        entries = self.through(key, through_window)
        for entry in entries:
            if entry.delta is None:
                count, epoch, cleared_at_ns = 0, epoch + 1, entry.time_ns
            else:
                count += entry.delta
                total += entry.delta
        windows = [entry.window for entry in entries] or [-1]
        return Folded(count, epoch, cleared_at_ns, total, max(windows), min(windows))

    def by_window(self, key: CounterKey, through_window: int, from_window: int) -> dict[int, int]:
        """What each window added since the last clear; without those that added nothing."""
        added: defaultdict[int, int] = defaultdict(int)
        for entry in self.through(key, through_window):
            if entry.delta is None:
                added.clear()
            else:
                added[entry.window] += entry.delta
        return {window: delta for window, delta in added.items() if window >= from_window and delta}

    def windows(self, key: CounterKey) -> list[int]:
        """In which the counter changed, in order."""
        return sorted({entry.window for entry in self._events[key]})


def _each_once(entries: list[Entry]) -> list[Entry]:
    once: dict[tuple[int, str], Entry] = {}
    for entry in sorted(entries, key=lambda each: each[:4]):
        once.setdefault((entry.time_ns, entry.token), entry)
    return list(once.values())
