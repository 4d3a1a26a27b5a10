"""Those who only look: accurate and eventual reads, and late look-ups.

They change nothing, so nobody is disturbed by them, and each can be tried alone. What they see is
written down step by step; the answer is judged where it is given, by what is decided by then.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.explorer.steps import Program, Step
from tests.explorer.store import Mask, Record, Row, Segments, Store


class Seen(NamedTuple):
    at: int = 0
    # When the read began: the segments whose events were known to count, and not to count.
    must: Mask = 0
    never: Mask = 0
    watermark: int = -1
    row: Row = Row()
    records: tuple[Record, ...] = ()
    listed: Mask = 0
    # The complete_through of the read before: a reader goes on reading.
    answered: int = -1


START = Seen()


class Dishonest(Exception):
    """The answer is not true. The message says which promise is broken."""

    def __init__(self, told: str, why: str) -> None:
        super().__init__(why)
        self.told = told


class Reader:
    """Takes the steps of its program one by one, and answers after the last one."""

    name = ""

    def __init__(self, segments: Segments, program: Program) -> None:
        self._segments = segments
        # Segments do not change, so it is all the same when their events are read.
        self._program = tuple(each for each in program if each is not Step.BODIES)

    def next(self, store: Store, seen: Seen) -> Iterator[tuple[str, Seen]]:
        step = self._program[seen.at]
        if seen.at == 0:
            seen = self._begun(store, seen)
        match step:
            case Step.WATERMARK:
                seen = seen._replace(watermark=store.watermark)
            case Step.ROW:
                seen = seen._replace(row=store.row)
            case Step.RECORDS:
                seen = seen._replace(records=store.records)
            case _:
                assert step is Step.LIST
                seen = seen._replace(listed=store.landed)
        seen = seen._replace(at=seen.at + 1)
        if seen.at < len(self._program):
            yield f"{self.name}: {step.value}", seen
        else:
            answer, after = self._answer(store, seen)
            yield f"{self.name}: {step.value}, {answer}", after

    def _begun(self, store: Store, seen: Seen) -> Seen:
        return seen

    def _answer(self, store: Store, seen: Seen) -> tuple[str, Seen]:
        raise NotImplementedError

    def _dishonest(self, answer: str, why: str) -> Dishonest:
        return Dishonest(f"{self.name}: {answer}", why)


class EventualRead(Reader):
    name = "an eventual read"

    def _answer(self, store: Store, seen: Seen) -> tuple[str, Seen]:
        through = max(seen.watermark, seen.row.through)
        value = seen.row._replace(through=through)
        if value != (truth := self._truth(store, value)):
            raise self._dishonest(_told(value), f"I5: it should be {_told(truth)}")
        return _told(value), START

    def _truth(self, store: Store, value: Row) -> Row:
        return self._segments.fold(Row(), self._settled(store, value), value.through)

    def _settled(self, store: Store, value: Row) -> Mask:
        """What counts by the records, up to where the answer says that it is complete."""
        settled = 0
        for window in range(value.through + 1):
            record = store.record_of(window)
            if record is None:
                raise self._dishonest(_told(value), f"I5: window {window} is not decided yet")
            settled |= self._segments.of_windows(record.segments, window, window)
        return settled


class AccurateRead(EventualRead):
    name = "an accurate read"

    def _begun(self, store: Store, seen: Seen) -> Seen:
        counted, never = self._segments.decided(store)
        return seen._replace(must=self._segments.copies(store.acknowledged) | counted, never=never)

    def _answer(self, store: Store, seen: Seen) -> tuple[str, Seen]:
        row_through = max(seen.watermark, seen.row.through)
        after = [each for each in seen.records if each.last > row_through]
        through = max([row_through, *(each.last for each in after)])
        tail = self._segments.of_windows(seen.listed, row_through + 1, self._segments.windows)
        for record in after:
            of_record = self._segments.of_windows(tail, record.first, record.last)
            tail &= ~(of_record & ~record.segments)
        value = self._segments.fold(seen.row, tail, through)
        if through < seen.answered:
            raise self._dishonest(_told(value), f"I4: the one before was through {seen.answered}")
        possible = self._possible(store, seen, value)
        if value not in possible:
            told = " or ".join(_told(each) for each in sorted(possible))
            raise self._dishonest(_told(value), f"I5: it should be {told}")
        return _told(value), Seen(answered=through)

    def _possible(self, store: Store, seen: Seen, value: Row) -> set[Row]:
        """With all that was sure to count before it began, and any of what was written since."""
        settled = self._settled(store, value)
        behind = value.through + 1, self._segments.windows
        must = self._segments.of_windows(seen.must, *behind)
        may = self._segments.of_windows(store.landed & ~seen.never, *behind) & ~must
        possible, subset = set(), may
        while True:
            possible.add(self._segments.fold(Row(), settled | must | subset, value.through))
            if not subset:
                return possible
            subset = (subset - 1) & may


class LateLookup(Reader):
    """Of one call, which was not acknowledged, after its window was closed."""

    def __init__(
        self, segments: Segments, program: Program, call: int, *, looks_at_all: bool
    ) -> None:
        super().__init__(segments, program)
        self.name = f"server {segments.scope.calls[call].server}, late look-up"
        self.name += f" of {segments.name_of(call)}"
        self._call = call
        self._window = segments.window_of(call)
        self._looks_at_all = looks_at_all

    def next(self, store: Store, seen: Seen) -> Iterator[tuple[str, Seen]]:
        if self._window <= store.closed_through:
            yield from super().next(store, seen)

    def _answer(self, store: Store, seen: Seen) -> tuple[str, Seen]:
        segment = 1 << self._call
        found = [each for each in seen.records if each.first <= self._window <= each.last]
        if not found:
            if self._window <= seen.watermark:
                raise self._dishonest("too old", "I7: nothing was forgotten")
            return "not folded yet", START
        named = self._segments.of_windows(found[0].segments, self._window, self._window)
        if not self._looks_at_all:
            named &= -named  # the first one only
        is_applied = bool(self._segments.copies(named) & segment)
        counted, never = self._segments.decided(store)
        if is_applied and not counted & segment:
            raise self._dishonest("applied", "I7: by the records it is not")
        if not is_applied and not never & segment:
            raise self._dishonest("expired", "I7: by the records it is applied")
        if not is_applied and self._segments.copies(store.acknowledged) & segment:
            raise self._dishonest("expired", "I1, I7: it was acknowledged")
        return "applied" if is_applied else "expired", START


def _told(row: Row) -> str:
    return f"{row.count} in epoch {row.epoch}, complete through {row.through}"
