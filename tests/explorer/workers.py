"""A worker: it closes windows and folds them, pass after pass, and may crash before any step."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.explorer.faults import Protocol
from tests.explorer.steps import Step
from tests.explorer.store import Mask, Record, Row, Segments, Store


class WorkerState(NamedTuple):
    at: int = 0  # the next step
    closed_through: int | None = None  # what it knows to be closed
    watermark: int | None = None
    listed: Mask | None = None
    record: Record | None = None  # its proposal, or what others agreed on
    row: Row | None = None  # what it will write; None: nothing


IDLE = WorkerState()
_BY_RECORD = (Step.ROW, Step.PROPOSE, Step.WRITE_ROW, Step.ADVANCE)
A_WORKER = "a worker"

Next = tuple[str, Store, WorkerState]


class Workers:
    def __init__(self, segments: Segments, protocol: Protocol) -> None:
        self._segments = segments
        self._protocol = protocol
        self._program = tuple(each for each in protocol.fold if each is not Step.BODIES)
        # From here on it goes by a record, its own proposal or what others agreed on.
        self._by_record = next(at for at, step in enumerate(self._program) if step in _BY_RECORD)
        self._last_window = segments.windows - 1

    def next(self, store: Store, state: WorkerState) -> Iterator[Next]:
        if state != IDLE:
            yield f"{A_WORKER}: crashes", store, IDLE
        for begun in self._begun(state):
            after = begun._replace(at=begun.at + 1)
            for told, new_store, known in self._step(self.step_of(begun), store, after):
                for new_state in self._proposals(known):
                    yield f"{A_WORKER}: {told}", new_store, self._skipped(new_state)

    def folds_to_the_end(self, store: Store) -> bool:
        """Whether a worker that nobody disturbs folds everything (I2)."""
        state = IDLE
        for _ in range(2 * (self._last_window + 2) * (len(self._program) + 1)):
            if store.watermark == self._last_window:
                return True
            *_, (_, store, state) = self.next(store, state)  # as far as it can go
        return False

    def _begun(self, state: WorkerState) -> Iterator[WorkerState]:
        """A pass begins. What it finds out in none of its steps it takes for granted: that windows
        are closed, that nothing was folded, that nothing is there."""
        if state != IDLE:
            yield state
            return
        if Step.WATERMARK not in self._program:
            state = state._replace(watermark=-1)
        if Step.CLOSE in self._program:
            yield state
            return
        for window in range(self._last_window + 1):
            yield state._replace(closed_through=window)

    def step_of(self, state: WorkerState) -> Step:
        return self._program[state.at]

    def _step(self, step: Step, store: Store, state: WorkerState) -> Iterator[Next]:
        match step:
            case Step.CLOSE:
                yield from self._close(store, state)
            case Step.WATERMARK:
                yield "watermark", store, state._replace(watermark=store.watermark)
            case Step.RECORDS:
                assert state.watermark is not None
                found = store.record_from(state.watermark + 1)
                assert found == store.record_of(state.watermark + 1), "records form a chain"
                yield "records", store, state if found is None else self._with_record(found)
            case Step.LIST:
                assert state.watermark is not None
                last = self._last_window if state.closed_through is None else state.closed_through
                listed = self._segments.of_windows(store.landed, state.watermark + 1, last)
                yield "list", store, state._replace(listed=listed)
            case Step.ROW:
                yield "row", store, state._replace(row=self._folded(store.row, state.record))
            case Step.PROPOSE:
                yield self._propose(store, state)
            case Step.WRITE_ROW:
                yield "write row", self._with_row(store, state.row), state._replace(row=None)
            case _:
                assert step is Step.ADVANCE
                assert state.record is not None
                last = self._forward(store.watermark, state.record.last)
                yield "advance", store._replace(watermark=last), state

    def _close(self, store: Store, state: WorkerState) -> Iterator[Next]:
        """Clocks are not in this world: any window may be closed at any time."""
        known = store.closed_through
        if known >= 0:
            yield f"sees {known} closed", store, state._replace(closed_through=known)
        for window in range(known + 1, self._last_window + 1):
            closed = store._replace(closed_through=window)
            yield f"close {window}", closed, state._replace(closed_through=window)

    def _propose(self, store: Store, state: WorkerState) -> Next:
        assert state.record is not None
        held = store.record_from(state.record.first)
        if held is None or not self._protocol.inserts_if_absent:
            others = [each for each in store.records if each is not held]
            records = tuple(sorted([*others, state.record]))
            return f"propose {_told(state.record)}", store._replace(records=records), state
        if held != state.record:
            # Another one holds: everything is computed again, from that one.
            return "propose, and another record holds", store, self._with_record(held)
        return "propose what holds already", store, state

    def _folded(self, base: Row, record: Record | None) -> Row | None:
        assert record is not None
        if base.through >= record.first and self._protocol.skips_folded_rows:
            return None
        drops_copies = self._protocol.drops_copies
        return self._segments.fold(base, record.segments, record.last, drops_copies)

    def _with_row(self, store: Store, row: Row | None) -> Store:
        if row is None or self._forward(store.row.through, row.through) != row.through:
            return store
        return store._replace(row=row)

    def _forward(self, now: int, new: int) -> int:
        return max(now, new) if self._protocol.marks_only_grow else new

    def _with_record(self, record: Record) -> WorkerState:
        """An agreed record is taken as it is, and nothing that was known before matters."""
        return WorkerState(at=self._by_record, record=record)

    def _proposals(self, state: WorkerState) -> Iterator[WorkerState]:
        """What it may propose once it knows what is closed and what is there: a pass takes as many
        windows as it likes."""
        closed, watermark = state.closed_through, state.watermark
        if state.record is None and closed is not None and watermark is not None:
            if closed <= watermark:
                yield IDLE
                return
            if state.at == self._by_record:
                for last in range(watermark + 1, closed + 1):
                    listed = self._segments.of_windows(state.listed or 0, watermark + 1, last)
                    yield WorkerState(at=state.at, record=Record(watermark + 1, last, listed))
                return
        yield state

    def _skipped(self, state: WorkerState) -> WorkerState:
        """Past the steps that have nothing to do: a record without events changes no row."""
        at = state.at
        while at < len(self._program) and (
            (self._program[at] is Step.WRITE_ROW and state.row is None)
            or (self._program[at] is Step.ROW and state.record and not state.record.segments)
        ):
            at += 1
        return IDLE if at == len(self._program) else state._replace(at=at)


def _told(record: Record) -> str:
    return f"{record.first} to {record.last} with segments {record.segments:b}"
