"""Mistakes in what is kept of the past, and how it is read."""

from typing import Any
from unittest.mock import patch

import msgspec

import counter.history
import counter_server.count_at
import counter_server.count_history
from counter.rollups import FoldRecord
from counter.storage.ports import Fold
from counter.storage.stepwise import StepwiseFoldCommit
from counter_server.states import state_at
from rollup_worker import record_folds
from tests.simulation.planted.mistake import Mistake, Patches, reconfigured, struck


def _history_row_of_the_next_step() -> Patches:
    """A state is kept under the step after the one at whose end it held."""
    ended = counter.history._ended

    def later(*args: Any) -> Any:
        return [
            (step_ms, msgspec.structs.replace(row, step=row.step + 1))
            for step_ms, row in ended(*args)
        ]

    yield patch.object(counter.history, "_ended", later)


def _history_after_the_rollups() -> Patches:
    """A replay finds the rollups with the record in them, and no history is written any more."""

    async def commit(self: Any, fold: Fold, *, rollups_per_batch: int) -> FoldRecord:
        agreed: FoldRecord = await self._ledger.propose(fold.record)
        if agreed != fold.record:
            return agreed
        await self._rollups.write(fold.rollups)
        await self._history.write(fold.history, fold.adjustments)
        await self._ledger.advance(agreed.shard, agreed.to_window)
        return agreed

    yield patch.object(StepwiseFoldCommit, "commit", commit)


def _gap_in_the_history_not_seen() -> Patches:
    """The last state before a gap is taken for what held in it."""

    def careless(layout: Any, step_ms: int, step: int, rollup: Any, row: Any) -> Any:
        if row is not None:
            row = msgspec.structs.replace(row, until_step=step + 1)
        return state_at(layout, step_ms, step, rollup, row)

    for place in (counter_server.count_at, counter_server.count_history):
        yield patch.object(place, "state_at", careless)


def _past_by_the_asked_time() -> Patches:
    """The count of a past time is stamped with that time, whatever the history has."""
    at = counter_server.count_at.CountsAt.at

    async def stamped(self: Any, namespace: Any, counter_name: str, time_ns: int) -> Any:
        found = await at(self, namespace, counter_name, time_ns)
        value = msgspec.structs.replace(found.value, complete_through_ns=time_ns)
        return counter_server.count_at.CountAt(value=value, resolution_ms=found.resolution_ms)

    yield patch.object(counter_server.count_at.CountsAt, "at", stamped)


def _adjustment_without_its_note() -> Patches:
    """Counted, and forgotten by whom and why."""
    yield patch.object(record_folds, "_adjustments", lambda namespace_id, events: iter(()))


MISTAKES = {
    "history row of the next step": Mistake(plant=_history_row_of_the_next_step, breaks=("I3",)),
    "history after the rollups": Mistake(
        plant=_history_after_the_rollups,
        breaks=("I3",),
        focus=struck("crash at", "write_history"),
    ),
    "gap in the history not seen": Mistake(
        plant=_gap_in_the_history_not_seen, breaks=("I5", "I6"), focus=reconfigured("history")
    ),
    "past by the asked time": Mistake(plant=_past_by_the_asked_time, breaks=("I5", "I6")),
    "adjustment without its note": Mistake(plant=_adjustment_without_its_note, breaks=("I3",)),
}
