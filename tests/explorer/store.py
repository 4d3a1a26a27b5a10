"""The stores, as plainly as the proof sees them.

A write that a quorum takes is one moment here, and so is a read. A write that timed out and landed
all the same, or lands much later, needs nothing of its own: it is a process that was paused before
the step, went on, and was then paused for ever. A retry is another call, and a process that goes on
after its time-out is another process.
"""

from functools import lru_cache
from typing import NamedTuple

from tests.explorer.scope import Scope

Mask = int  # a set of segments: bit n is the segment of the scope's n-th call


class Record(NamedTuple):
    first: int
    last: int
    segments: Mask


class Row(NamedTuple):
    count: int = 0
    epoch: int = 0
    through: int = -1


class Store(NamedTuple):
    closed_through: int = -1
    watermark: int = -1
    records: tuple[Record, ...] = ()  # by their first window
    row: Row = Row()
    landed: Mask = 0
    # In no store, but everybody could know: the calls that were acknowledged, and those for which
    # the window was seen to be open.
    acknowledged: Mask = 0
    checked: Mask = 0

    def record_from(self, window: int) -> Record | None:
        return next((each for each in self.records if each.first == window), None)

    def record_of(self, window: int) -> Record | None:
        return next((each for each in self.records if each.first <= window <= each.last), None)


class Segments:
    """Which events segments hold, and what they fold to."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.windows = scope.windows
        self.all = (1 << len(scope.calls)) - 1
        self._windows = [scope.events[call.event].window for call in scope.calls]
        self.fold = lru_cache(maxsize=None)(self._fold)
        self.of_windows = lru_cache(maxsize=None)(self._of_windows)
        self.copies = lru_cache(maxsize=None)(self._copies)

    def window_of(self, call: int) -> int:
        return self._windows[call]

    def name_of(self, call: int) -> str:
        return self.scope.events[self.scope.calls[call].event].name

    def _of_windows(self, segments: Mask, first: int, last: int) -> Mask:
        return sum(
            1 << call
            for call, window in enumerate(self._windows)
            if segments >> call & 1 and first <= window <= last
        )

    def events(self, segments: Mask) -> frozenset[int]:
        """Each once, however many segments hold it."""
        calls = self.scope.calls
        return frozenset(call.event for at, call in enumerate(calls) if segments >> at & 1)

    def _copies(self, segments: Mask) -> Mask:
        """All segments, there or not, with the events of these."""
        events = self.events(segments)
        calls = self.scope.calls
        return sum(1 << at for at, call in enumerate(calls) if call.event in events)

    def decided(self, store: Store) -> tuple[Mask, Mask]:
        """The segments whose events count by the records, and those whose events never will."""
        counted = never = 0
        for record in store.records:
            of_record = self.of_windows(self.all, record.first, record.last)
            counts = self.copies(record.segments) & of_record
            counted |= counts
            never |= of_record & ~counts
        return counted, never

    def _fold(self, base: Row, segments: Mask, through: int, drops_copies: bool = True) -> Row:
        calls = self.scope.calls
        events = [call.event for at, call in enumerate(calls) if segments >> at & 1]
        count, epoch = base.count, base.epoch
        for event in sorted(set(events) if drops_copies else events):
            delta = self.scope.events[event].delta
            count, epoch = (0, epoch + 1) if delta is None else (count + delta, epoch)
        return Row(count, epoch, through)
