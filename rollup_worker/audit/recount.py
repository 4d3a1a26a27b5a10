"""A recount: what a counter's events say, compared with what its folds left behind.

Pure: whoever reads the stores hands in events record by record, and states of the history as they
are stored. `rollup_worker.audit.audit` does.

An adjustment counts in the rollup, and not in what the events say: it undoes an error, so that the
rollup is again what the events add up to. A recount therefore folds adjustments as adds of 0: they
end steps as they did in the fold, and add nothing. There is one exception. A base from the history
may itself hold the error that a later adjustment undid, and then it is base, events *and*
adjustments that make the right count. Nobody can tell any more, so on such a base either is equal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from counter.events import Event
from counter.fold import FoldCounts, adjustments
from counter.history import HistoryRow, fold_with_history
from counter.rollups import ZERO, Recent, Rollup
from counter.windows import Layout
from rollup_worker.audit.values import Base, BaseKind, Difference, DifferenceKind

DIFFERENCES_MAX = 100  # those beyond are counted, and not described
ADJUSTMENTS_MAX = 100

StepKey = tuple[int, int]  # length of the step in ms, step


@dataclass(slots=True)
class _Apart:
    """States one after the other that are off by the same amount have one cause."""

    by: tuple[int, ...]
    from_window: int
    to_window: int


@dataclass(slots=True)
class _Chains:
    """The counter's state by its events alone, and with its adjustments too."""

    plain: Rollup
    adjusted: Rollup


@dataclass(slots=True)
class Recount:
    """Of one counter, from a base on."""

    layout: Layout
    base: Base
    # The newest state that is stored; None: there is none.
    row: Rollup | None
    through_window: int  # only records up to here are in the row
    events: int = 0
    adjustments: list[Event] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    differences_left_out: int = 0
    # States that the events put an end to, and that the history should have: not compared yet.
    pending: list[tuple[int, HistoryRow, HistoryRow]] = field(default_factory=list)
    # By length of step: the ends of the states that were found missing.
    missing: set[StepKey] = field(default_factory=set)
    _wrong_ends: set[StepKey] = field(default_factory=set)
    _chains: _Chains = field(init=False)
    _equal_through: int = field(init=False)
    _apart: _Apart | None = None

    def __post_init__(self) -> None:
        state = msgspec.structs.replace(self.base.state, recent=None)
        if self.base.kind is not BaseKind.START:
            state = msgspec.structs.replace(state, through_window=self.base.through_window)
        self._chains = _Chains(state, state)
        self._equal_through = self.base.through_window

    @property
    def expected(self) -> Rollup:
        return self._chains.plain

    @property
    def is_different(self) -> bool:
        """Whether something is wrong that no adjustment has made up for."""
        return self.differences_left_out > 0 or any(
            not each.is_repaired for each in self.differences
        )

    def take(self, events: Sequence[Event], to_window: int, steps_ms: Sequence[int]) -> None:
        """The events of the next record that are after the base, gathered as `gather` does."""
        counts, chains = FoldCounts(), self._chains
        has_adjustments = any(event.note is not None for event in events)
        if has_adjustments:
            room = ADJUSTMENTS_MAX - len(self.adjustments)
            self.adjustments += adjustments(events)[: max(0, room)]
        same = chains.adjusted is chains.plain and not has_adjustments
        plain_events = [_plain(event) for event in events] if has_adjustments else list(events)
        chains.plain, past = self._fold(chains.plain, plain_events, to_window, steps_ms, counts)
        self.events += len(events) - counts.duplicates
        if same:
            chains.adjusted, adjusted_past = chains.plain, past
        else:
            chains.adjusted, adjusted_past = self._fold(
                chains.adjusted, list(events), to_window, steps_ms, FoldCounts()
            )
        for (step_ms, plain), (_, adjusted) in zip(past, adjusted_past, strict=True):
            self.pending.append((step_ms, plain, adjusted))

    def compare_pending(
        self, stored: Mapping[StepKey, HistoryRow], due_from: Mapping[int, int]
    ) -> None:
        """Compares the states since the last call with those of the history.

        `stored` has all that there are from the first to the last of them. `due_from`: by length of
        step, which states must be there: those that ended in a later step than this one.
        """
        expected = {(step_ms, row.step) for step_ms, row, _ in self.pending}
        for step_ms, plain, adjusted in self.pending:
            key = step_ms, plain.step
            found = stored.get(key)
            if found is not None:
                self._compare_row(step_ms, plain, adjusted, found)
            elif step_ms in due_from and plain.until_step > due_from[step_ms]:
                self.missing.add((step_ms, plain.until_step))
                self._add_missing(step_ms, plain.step, plain.until_step, plain.state.count)
        for (step_ms, step), found in sorted(stored.items()):
            if (step_ms, step) not in expected:
                self._add(
                    DifferenceKind.HISTORY,
                    self.layout.last_window_of_step(step - 1, step_ms) + 1,
                    self.layout.last_window_of_step(step, step_ms),
                    0,
                    found.state.count,
                    f"the history has a state at the end of a step of {step_ms} ms in which no "
                    "event changed the counter",
                )
        self.pending.clear()

    def check_chain(
        self, step_ms: int, before: HistoryRow | None, after: HistoryRow | None, due_from: int
    ) -> None:
        """Two states of the history that follow each other. `before` None: `after` is the first
        that is kept; `after` None: `before` is the last one, and the rollup follows."""
        newest = self.row or self.expected
        if before is not None:
            ended_in = before.until_step
        elif newest.first_window >= 0:
            ended_in = self.layout.step_of(newest.first_window, step_ms)
        else:
            return  # it is not known how far back the chain should go
        step = after.step if after else self.layout.step_of(newest.changed_window, step_ms)
        if ended_in > step:
            self._add_overlap(step_ms, step, ended_in, before)
        elif ended_in < step and step > due_from and (step_ms, step) not in self.missing:
            self._add_missing(step_ms, ended_in, step, 0)

    def finish(self) -> None:
        """Compares the rollup. Nothing can be pending by now."""
        assert not self.pending
        row, chains = self.row or ZERO, self._chains
        if self.base.kind is BaseKind.ROLLUP and not self.events:
            return
        to_window = max(row.through_window, chains.plain.through_window)
        self._compare(
            DifferenceKind.ROLLUP, to_window, chains.plain, chains.adjusted, row, "the rollup"
        )
        self._compare_recent(row)
        rollup_differs = any(each.kind is DifferenceKind.ROLLUP for each in self.differences)
        if self.adjustments and not rollup_differs:
            self._mark_repaired()

    # How states are compared.

    def _compare_row(
        self, step_ms: int, plain: HistoryRow, adjusted: HistoryRow, found: HistoryRow
    ) -> None:
        what = f"the state at the end of a step of {step_ms} ms in the history"
        if found.until_step != plain.until_step:
            self._wrong_ends.add((step_ms, plain.step))
            self._add(
                DifferenceKind.HISTORY,
                self.layout.last_window_of_step(plain.step, step_ms) + 1,
                self.layout.last_window_of_step(max(found.until_step, plain.until_step), step_ms),
                plain.until_step,
                found.until_step,
                f"{what} held until step {found.until_step} by itself, and until step "
                f"{plain.until_step} by the events",
            )
        self._compare(
            DifferenceKind.HISTORY,
            plain.state.through_window,
            plain.state,
            adjusted.state,
            found.state,
            what,
        )

    def _compare(
        self,
        kind: DifferenceKind,
        to_window: int,
        plain: Rollup,
        adjusted: Rollup,
        actual: Rollup,
        what: str,
    ) -> None:
        # Before any adjustment totals are equal too; after one, what it did to them depends on
        # what was wrong.
        has_total = plain.total == adjusted.total
        off_by = _off_by(plain, actual, has_total=has_total)
        is_equal = not any(off_by)
        if not is_equal and self.base.kind is BaseKind.HISTORY:
            is_equal = not any(_off_by(adjusted, actual, has_total=has_total))
        if is_equal:
            self._equal_through, self._apart = max(self._equal_through, to_window), None
            if kind is DifferenceKind.ROLLUP and plain.count != actual.count:
                self._chains.plain = adjusted  # the base holds the error: they are right together
            return
        apart = self._apart
        if apart is None or apart.by != off_by:
            from_window = self._equal_through + 1
            apart = self._apart = _Apart(off_by, from_window, max(from_window, to_window))
        elif kind is not DifferenceKind.ROLLUP:
            return  # a consequence of the one before
        expected, value = plain.count, actual.count
        if expected == value and not off_by[1] and off_by[3]:
            expected, value = plain.total, actual.total
        self._add(
            kind, apart.from_window, apart.to_window, expected, value,
            f"{what} {_in_words(plain, actual, has_total=has_total)}",
        )  # fmt: skip

    def _compare_recent(self, row: Rollup) -> None:
        """The ring of a rolling window, where both know it. Adjustments are in it."""
        actual, expected = row.recent, self._chains.adjusted.recent
        if actual is None or expected is None:
            return
        from_window = max(actual.from_window, expected.from_window)
        mine, theirs = _by_window(expected, from_window), _by_window(actual, from_window)
        wrong = sorted(each for each in mine | theirs if mine.get(each) != theirs.get(each))
        if wrong:
            self._add(
                DifferenceKind.ROLLUP,
                wrong[0],
                wrong[-1],
                expected.since(from_window),
                actual.since(from_window),
                "the rolling window in the rollup is not what the events of these windows add up "
                "to",
            )

    def _mark_repaired(self) -> None:
        window_of = self.layout.window_of
        last_window = max(window_of(event.time_ns) for event in self.adjustments)
        self.differences = [
            replace(
                each,
                is_repaired=True,
                message=f"{each.message}; an adjustment since then made up for it",
            )
            if each.kind is DifferenceKind.HISTORY and each.to_window < last_window
            else each
            for each in self.differences
        ]

    def _add_overlap(
        self, step_ms: int, step: int, ended_in: int, before: HistoryRow | None
    ) -> None:
        if before is None:
            message = "before the counter's first event, as the rollup has it"
        elif (step_ms, before.step) in self._wrong_ends:
            return
        else:
            message = f"of step {step}, although the one before it held until step {ended_in}"
        self._add(
            DifferenceKind.HISTORY,
            self.layout.last_window_of_step(step - 1, step_ms) + 1,
            self.layout.last_window_of_step(ended_in, step_ms),
            ended_in,
            step,
            f"the history has a state at the end of a step of {step_ms} ms {message}",
        )

    def _add_missing(self, step_ms: int, step: int, until_step: int, expected: int) -> None:
        self._add(
            DifferenceKind.HISTORY_MISSING,
            self.layout.last_window_of_step(step - 1, step_ms) + 1,
            self.layout.last_window_of_step(until_step - 1, step_ms),
            expected,
            0,
            f"the history lacks what the counter was at the end of a step of {step_ms} ms "
            "in which it changed",
        )

    def _add(
        self,
        kind: DifferenceKind,
        from_window: int,
        to_window: int,
        expected: int,
        actual: int,
        message: str,
    ) -> None:
        if len(self.differences) >= DIFFERENCES_MAX and kind is not DifferenceKind.ROLLUP:
            self.differences_left_out += 1
            return
        self.differences.append(
            Difference(
                kind=kind,
                from_window=from_window,
                to_window=to_window,
                expected=expected,
                actual=actual,
                message=message,
            )
        )

    def _fold(
        self,
        rollup: Rollup,
        events: list[Event],
        to_window: int,
        steps_ms: Sequence[int],
        counts: FoldCounts,
    ) -> tuple[Rollup, list[tuple[int, HistoryRow]]]:
        ring = self.row.recent if self.row else None
        recent_windows = 0
        if ring is not None and self.row is not None:
            recent_windows = max(0, self.row.through_window - ring.from_window + 1)
        return fold_with_history(
            rollup,
            events,
            to_window,
            counts,
            layout=self.layout,
            steps_ms=steps_ms,
            recent_windows=recent_windows,
        )


def _plain(event: Event) -> Event:
    return event if event.note is None else msgspec.structs.replace(event, delta=0)


def _off_by(expected: Rollup, actual: Rollup, *, has_total: bool) -> tuple[int, ...]:
    return (
        actual.count - expected.count,
        actual.epoch - expected.epoch,
        actual.cleared_at_ns - expected.cleared_at_ns,
        actual.total - expected.total if has_total else 0,
        actual.changed_window - expected.changed_window,
    )


def _in_words(expected: Rollup, actual: Rollup, *, has_total: bool) -> str:
    named = (
        ("count", expected.count, actual.count),
        ("epoch", expected.epoch, actual.epoch),
        ("time of its last clear in ns", expected.cleared_at_ns, actual.cleared_at_ns),
        ("total", expected.total, actual.total if has_total else expected.total),
        ("last window with an event", expected.changed_window, actual.changed_window),
    )
    said = [
        f"has {name} {theirs}, and the events say {ours}"
        for name, ours, theirs in named
        if ours != theirs
    ]
    return "; it ".join(said)


def _by_window(recent: Recent, from_window: int) -> dict[int, int]:
    return {window: delta for window, delta in recent.deltas if window >= from_window and delta}
