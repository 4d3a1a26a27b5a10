"""Mistakes in how windows are closed and folded."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

import counter.fold
from counter.rollups import FoldRecord
from counter.storage.cassandra.ledger import CassandraLedger
from counter.storage.ports import Fold
from counter.storage.stepwise import StepwiseFoldCommit
from rollup_worker.record_folds import RecordFolds
from rollup_worker.rollup import Rollup
from rollup_worker.rollup_bases import RollupBases, _Kept
from tests.simulation.planted.mistake import Mistake, Patches, beside, quietly, slowed
from tests.simulation.scenario import Scenario
from tests.simulation.session import SimulatedSession
from tests.simulation.statements import AGREEMENTS


def _fold_without_the_close() -> Patches:
    """The worker folds what is due without telling anybody that it is closed."""

    async def close(self: Any, window: int) -> None:
        return

    yield patch.object(CassandraLedger, "close", _only_the_first(CassandraLedger.close, close))


def _close_is_not_awaited() -> Patches:
    """The worker folds while its close is still on its way."""
    close = CassandraLedger.close

    async def hurried(self: Any, window: int) -> None:
        beside(quietly(close(self, window)))

    yield patch.object(CassandraLedger, "close", _only_the_first(close, hurried))


def _mark_by_arrival() -> Patches:
    """The close mark is what was written last, not what is highest."""
    yield patch.object(
        CassandraLedger, "_timestamp_us", lambda self, window: self._monotonic_ns() // 1_000
    )


def _token_deduped_per_segment() -> Patches:
    """Copies of an event in different segments count each."""
    events = RecordFolds._events

    async def tagged(self: Any, record: FoldRecord) -> Any:
        found, adjusted, digest = await events(self, record)
        for of_namespace in found.values():
            for counter_name, listed in of_namespace.items():
                of_namespace[counter_name] = [
                    msgspec.structs.replace(each, token=f"{each.token}#{at}")
                    for at, each in enumerate(listed)
                ]
        return found, adjusted, digest

    yield patch.object(RecordFolds, "_events", tagged)


def _clear_by_arrival() -> Patches:
    """Events are folded in the order in which they were written."""
    yield patch.object(counter.fold, "_time_and_token", lambda event: (0, event.token[-1:]))


def _agreement_by_plain_write() -> Patches:
    """Fold records are written over one another: the last one holds."""

    async def agree(self: Any, name: str, parameters: Sequence[Any]) -> Any:
        if name != "propose_fold":
            return await _agree(self, name, parameters)
        await self._write([AGREEMENTS[name](parameters)])
        return None

    _agree = SimulatedSession.agree
    yield patch.object(SimulatedSession, "agree", agree)


def _own_record_whatever_holds() -> Patches:
    """A worker goes on with its own proposal although another one holds."""
    propose = CassandraLedger.propose

    async def stubborn(self: Any, record: FoldRecord) -> FoldRecord:
        await propose(self, record)
        return record

    yield patch.object(CassandraLedger, "propose", stubborn)


def _record_not_looked_for() -> Patches:
    """A replay folds what is in the log, and not what the record says."""
    fold_of = RecordFolds.fold_of

    async def anew(self: Any, record: FoldRecord, counts: Any, **options: Any) -> Fold:
        refs = await self._event_log.refs(record.shard, record.from_window, record.to_window)
        wider = msgspec.structs.replace(record, segments=tuple(sorted(refs)), digest=b"")
        fold = await fold_of(self, wider, counts, **options)
        return Fold(
            record=record
            if options["is_agreed"]
            else msgspec.structs.replace(fold.record, segments=record.segments),
            rollups=fold.rollups,
            history=fold.history,
            adjustments=fold.adjustments,
        )

    yield patch.object(RecordFolds, "fold_of", anew)


def _folded_twice_on_replay() -> Patches:
    """A row that has the record in it already is folded again."""
    before = RollupBases.before

    async def from_before(self: Any, record: FoldRecord, keys: Any) -> Any:
        return [
            row and msgspec.structs.replace(row, through_window=-1)
            for row in await before(self, record, keys)
        ]

    yield patch.object(RollupBases, "before", from_before)


def _kept_whoever_folded() -> Patches:
    """A worker builds on its own last fold, although others have folded since."""

    def kept_before(self: Any, record: FoldRecord) -> Any:
        return self._kept.get(record.shard, _Kept())

    yield patch.object(RollupBases, "_kept_before", kept_before)


def _watermark_before_rollups() -> Patches:
    async def commit(self: Any, fold: Fold, *, rollups_per_batch: int) -> FoldRecord:
        agreed: FoldRecord = await self._ledger.propose(fold.record)
        if agreed != fold.record:
            return agreed
        await self._ledger.advance(agreed.shard, agreed.to_window)
        await self._history.write(fold.history, fold.adjustments)
        await self._rollups.write(fold.rollups)
        return agreed

    yield patch.object(StepwiseFoldCommit, "commit", commit)


def _clear_leaves_recent_windows() -> Patches:
    """What a rolling window knows of its windows survives a clear."""
    recent = counter.fold._recent

    def kept(rollup: Any, since_clear: Any, was_cleared: bool, window_ns: int) -> Any:
        return recent(rollup, since_clear, False, window_ns)

    yield patch.object(counter.fold, "_recent", kept)


# What the simulation found in the product, put back: each stays fixed.


def _idle_at_midnight() -> Patches:
    """A shard without events waits for more windows before it is folded, also at the end of a day,
    when no more can come."""
    proposal = Rollup._proposal

    async def patient(
        self: Any, shard: int, watermark: int, closed_through: int, events_max: int
    ) -> Any:
        last = min(closed_through, self._layout.last_window_of_day(watermark + 1))
        refs = await self._stores.event_log.refs(shard, watermark + 1, last)
        if not refs and last - watermark < self._idle_windows:
            return None
        return await proposal(self, shard, watermark, closed_through, events_max)

    yield patch.object(Rollup, "_proposal", patient)


def _version_0_from_the_store() -> Patches:
    """Records from before the first namespaces have version 0, which nobody ever stored."""

    async def snapshot(self: Any, version: int) -> Any:
        if self._last_snapshot.version != version:
            found = await self._namespace_store.get(version)
            assert found is not None, version
            self._last_snapshot = found
        return self._last_snapshot

    yield patch.object(RecordFolds, "snapshot", snapshot)


def _namespaces_late(scenario: Scenario) -> Scenario:
    after_s = 2 + scenario.seed % 16 / 10
    return replace(
        scenario, namespaces_after_s=after_s, workers=2, rivals=True, shards=3, slow_share=0.1
    )


def _only_the_first(real: Any, broken: Any) -> Callable[..., Any]:
    """The first marks are written as they should be: without them nothing starts."""
    times: defaultdict[int, int] = defaultdict(int)

    async def close(self: Any, window: int) -> None:
        times[id(self)] += 1
        await (real if times[id(self)] == 1 else broken)(self, window)

    return close


MISTAKES = {
    "fold without the close": Mistake(plant=_fold_without_the_close, breaks=("I1",)),
    "close is not awaited": Mistake(
        plant=_close_is_not_awaited, breaks=("I1",), focus=slowed("close")
    ),
    "mark by arrival": Mistake(plant=_mark_by_arrival, breaks=("I4",)),
    "token deduped per segment": Mistake(plant=_token_deduped_per_segment, breaks=("I3",)),
    "clear by arrival": Mistake(plant=_clear_by_arrival, breaks=("I3",)),
    "agreement by plain write": Mistake(plant=_agreement_by_plain_write, breaks=("I3",)),
    "own record whatever holds": Mistake(plant=_own_record_whatever_holds, breaks=("I3",)),
    "record not looked for": Mistake(plant=_record_not_looked_for, breaks=("I3",)),
    "folded twice on replay": Mistake(plant=_folded_twice_on_replay, breaks=("I3",)),
    "kept whoever folded": Mistake(plant=_kept_whoever_folded, breaks=("I3",)),
    "watermark before rollups": Mistake(plant=_watermark_before_rollups, breaks=("I5", "I6")),
    "clear leaves recent windows": Mistake(plant=_clear_leaves_recent_windows, breaks=("I3",)),
    "idle at midnight": Mistake(plant=_idle_at_midnight, breaks=("I2",)),
    "version 0 from the store": Mistake(
        plant=_version_0_from_the_store, breaks=("unexpected",), focus=_namespaces_late
    ),
}
