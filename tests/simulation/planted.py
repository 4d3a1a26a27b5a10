"""Mistakes that somebody could make, put into the product while a simulation runs.

A checker is believed when it finds what is known to be wrong. Each of these breaks one step of the
protocol, in the product's own code, and names the promise that it breaks.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

import counter.fold
import counter_server.late
from counter.rollups import FoldRecord
from counter.storage.cassandra.event_log import CassandraEventLog
from counter.storage.cassandra.ledger import CassandraLedger
from counter.storage.ports import Closed, Fold
from counter.storage.stepwise import StepwiseFoldCommit
from counter_server.commit import GroupCommit
from counter_server.late import LateTokens
from counter_server.reads import Reads, Row
from counter_server.registry import Registry
from counter_server.strategies.logged import Logged
from counter_server.strategies.strategy import Freshness
from counter_server.tail import Tail, TailView
from rollup_worker.record_folds import RecordFolds
from rollup_worker.rollup import Rollup
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.session import SimulatedSession
from tests.simulation.statements import AGREEMENTS

Patches = Iterator[Any]


@contextmanager
def planted(bug: str | None) -> Iterator[None]:
    with ExitStack() as stack:
        for each in PLANTED[bug]() if bug is not None else ():
            stack.enter_context(each)
        yield


def _ack_before_the_write() -> Patches:
    """The server answers when events are on their way, not when they are durable."""

    async def append(self: Any, segments: Any) -> Closed:
        for each in segments:
            _beside(_quietly(self._append([each])))
        return await self._ledger.closed()

    yield patch.object(CassandraEventLog, "append", append)


def _no_close_check() -> Patches:
    """The server answers as if its window were open whenever the write returned."""
    commit = GroupCommit._commit

    async def unchecked(self: Any, buffers: Any) -> None:
        append = self._log.append

        async def forgets_the_mark(segments: Any) -> Closed:
            closed = await append(segments)
            return closed._replace(through=-1)

        with patch.object(self._log, "append", forgets_the_mark):
            await commit(self, buffers)

    yield patch.object(GroupCommit, "_commit", unchecked)


def _close_check_before_the_write() -> Patches:
    """The mark is read before the segments are durable, and not after."""

    async def append(self: Any, segments: Any) -> Closed:
        closed: Closed = await self._ledger.closed()
        await asyncio.gather(*(self._append([each]) for each in segments))
        return closed

    yield patch.object(CassandraEventLog, "append", append)


def _fold_without_the_close() -> Patches:
    """The worker folds what is due without telling anybody that it is closed."""

    async def close(self: Any, window: int) -> None:
        return

    yield patch.object(CassandraLedger, "close", _only_the_first(CassandraLedger.close, close))


def _close_is_not_awaited() -> Patches:
    """The worker folds while its close is still on its way."""
    close = CassandraLedger.close

    async def hurried(self: Any, window: int) -> None:
        _beside(_quietly(close(self, window)))

    yield patch.object(CassandraLedger, "close", _only_the_first(close, hurried))


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


def _watermark_read_after_the_row() -> Patches:
    """A row is stamped with a watermark that was read after it."""
    rows = Reads.rows

    async def swapped(self: Any, namespace: Any, counters: Sequence[str]) -> list[Row]:
        found = await rows(self, namespace, counters)
        watermarks = await self._ledger.watermarks()
        return [row._replace(through=max(row.through, watermarks[row.shard])) for row in found]

    yield patch.object(Reads, "rows", swapped)


def _cache_stamped_too_new() -> Patches:
    """What enters the cache gets the stamp of now, not of when it was read."""
    refresh = Rollup._refresh_cache

    async def fresh(self: Any, record: FoldRecord, rows: Any) -> None:
        later = msgspec.structs.replace(record, to_window=record.to_window + 2)
        await refresh(self, later, rows)

    yield patch.object(Rollup, "_refresh_cache", fresh)


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

    async def add_namespace(self: Any, fold: Fold, namespace: Any, events: Any, *rest: Any) -> None:
        read = self._rollup_store.read

        async def from_before(keys: Any) -> Any:
            return [
                row and msgspec.structs.replace(row, through_window=-1) for row in await read(keys)
            ]

        with patch.object(self._rollup_store, "read", from_before):
            await _add_namespace(self, fold, namespace, events, *rest)

    _add_namespace = RecordFolds._add_namespace
    yield patch.object(RecordFolds, "_add_namespace", add_namespace)


def _late_look_up_in_the_log() -> Patches:
    """What became of a late token is read from all segments, not from those that count."""
    read = LateTokens._read

    async def anywhere(self: Any, partition: Any) -> Any:
        found = await read(self, partition)
        if found is None:
            return None
        namespace_id, window, shard = partition
        refs = await self._log.refs(shard, window, window)
        own = [ref for ref in refs if ref.namespace_id == namespace_id]
        bodies = await self._log.bodies(own)
        return found | {
            counter_server.late.identity(event)
            for body in bodies
            if body is not None
            for event in counter_server.late.decode(body)
        }

    yield patch.object(LateTokens, "_read", anywhere)


def _expired_before_the_fold() -> Patches:
    """A token whose window is closed and not folded yet is called expired."""
    read = LateTokens._read

    async def hasty(self: Any, partition: Any) -> Any:
        return await read(self, partition) or frozenset()

    yield patch.object(LateTokens, "_read", hasty)


def _tail_counts_everything() -> Patches:
    """An accurate read counts late segments of recorded windows too."""
    yield patch.object(TailView, "counts", lambda self, ref: True)
    yield patch.object(TailView, "_counted", lambda self, window, found: list(found))


def _tail_shared_with_the_past() -> Patches:
    """An accurate read takes the answer of a tail read that began before it."""
    read = Tail.read

    async def shared(self: Any, shard: int, after_window: int, keys: Any) -> TailView:
        now_s = asyncio.get_running_loop().time()
        kept = self.__dict__.setdefault("planted", {})
        key = (shard, frozenset(keys))
        if key in kept and now_s - kept[key][0] < 0.5 and kept[key][2] == after_window:
            view: TailView = kept[key][1]
            return view
        view = await read(self, shard, after_window, keys)
        kept[key] = (now_s, view, after_window)
        return view

    yield patch.object(Tail, "read", shared)


def _at_least_forgotten() -> Patches:
    yield patch.object(Freshness, "oldest_ns", lambda self, now_ns: -(2**62))
    yield patch.object(Logged, "_check_freshness", lambda self, through_ns, freshness: None)


def _mark_by_arrival() -> Patches:
    """The close mark is what was written last, not what is highest."""
    yield patch.object(
        CassandraLedger, "_timestamp_us", lambda self, window: self._monotonic_ns() // 1_000
    )


def _unlimited_queue() -> Patches:
    """Nobody counts how many events wait."""

    async def quiet(self: Any, buffers: Any) -> None:
        size = sum(len(buffer.events) for buffer in buffers)
        await _commit(self, buffers)
        self._events -= size

    _commit = GroupCommit._commit
    yield patch.object(GroupCommit, "_commit", quiet)


def _namespaces_switched_by_halves() -> Patches:
    """A new version replaces what is new in it, and leaves the rest as it was."""
    switch = Registry.switch

    def half(self: Any, snapshot: Any) -> None:
        before = dict(self.strategies)
        switch(self, snapshot)
        self.strategies = {**self.strategies, **before}

    yield patch.object(Registry, "switch", half)


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


def _only_the_first(real: Any, broken: Any) -> Callable[..., Any]:
    """The first marks are written as they should be: without them nothing starts."""
    times: defaultdict[int, int] = defaultdict(int)

    async def close(self: Any, window: int) -> None:
        times[id(self)] += 1
        await (real if times[id(self)] == 1 else broken)(self, window)

    return close


def _beside(work: Any) -> None:
    asyncio.get_running_loop().create_task(work)


async def _quietly(work: Any) -> None:
    with suppress(Exception):
        await work


PLANTED: dict[str, Callable[[], Patches]] = {
    "ack before the write": _ack_before_the_write,
    "no close check": _no_close_check,
    "close check before the write": _close_check_before_the_write,
    "fold without the close": _fold_without_the_close,
    "close is not awaited": _close_is_not_awaited,
    "token deduped per segment": _token_deduped_per_segment,
    "watermark before rollups": _watermark_before_rollups,
    "watermark read after the row": _watermark_read_after_the_row,
    "cache stamped too new": _cache_stamped_too_new,
    "clear by arrival": _clear_by_arrival,
    "agreement by plain write": _agreement_by_plain_write,
    "own record whatever holds": _own_record_whatever_holds,
    "record not looked for": _record_not_looked_for,
    "folded twice on replay": _folded_twice_on_replay,
    "late look-up in the log": _late_look_up_in_the_log,
    "expired before the fold": _expired_before_the_fold,
    "tail counts everything": _tail_counts_everything,
    "tail shared with the past": _tail_shared_with_the_past,
    "at_least forgotten": _at_least_forgotten,
    "mark by arrival": _mark_by_arrival,
    "unlimited queue": _unlimited_queue,
    "namespaces switched by halves": _namespaces_switched_by_halves,
    "idle at midnight": _idle_at_midnight,
    "version 0 from the store": _version_0_from_the_store,
}


def focused(bug: str, scenario: Scenario) -> Scenario:
    """Some mistakes need a request that is slow at just the wrong moment, which seldom comes by
    itself. For these it comes more often, as the scenario's one fault."""
    if bug == "version 0 from the store":
        after_s = 2 + scenario.seed % 16 / 10
        return replace(
            scenario, namespaces_after_s=after_s, workers=2, rivals=True, shards=3, slow_share=0.1
        )
    slow = _SLOW.get(bug)
    if slow is None:
        return scenario
    fault = Fault(
        kind="slow statements", at_s=0, for_s=60, target="worker-0", amount=1.0, statements=slow
    )
    return replace(
        scenario, faults=(fault,), workers=1, clients=5, steps=40, think_s=0.05, odd_share=0.7
    )


_SLOW = {
    "close is not awaited": ("close",),
    "close check before the write": ("append_segment",),
}
