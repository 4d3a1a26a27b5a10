"""Mistakes in how adds are taken."""

import asyncio
from typing import Any
from unittest.mock import patch

from counter.storage.cassandra.event_log import CassandraEventLog
from counter.storage.cassandra.shared_read import SharedRead
from counter.storage.ports import Closed
from counter_server.admission import Admission
from counter_server.batches import Batches
from counter_server.commit import GroupCommit
from counter_server.strategies.logged import Logged
from tests.simulation.planted.mistake import Mistake, Patches, beside, quietly, slowed
from tests.simulation.scenario import far_behind


def _ack_before_the_write() -> Patches:
    """The server answers when events are on their way, not when they are durable."""

    async def append(self: Any, segments: Any) -> Closed:
        for each in segments:
            beside(quietly(self._append([each])))
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


def _close_check_shared_with_the_past() -> Patches:
    """Whoever asks for the mark while it is being read gets the answer of that read."""

    async def shared(self: Any) -> Any:
        under_way = self.__dict__.get("planted")
        if under_way is None or under_way.done():
            under_way = self.__dict__["planted"] = asyncio.ensure_future(self._read())
        return await asyncio.shield(under_way)

    yield patch.object(SharedRead, "__call__", shared)


def _stream_answered_before_the_write() -> Patches:
    """A batch of a stream is answered when its adds are admitted."""
    add_columns = Batches.add_columns

    async def hasty(self: Any, request: Any, into: Any, *, wait_s: float) -> None:
        async def add(
            strategy: Any, events: Any, errors: Any, wait_s: float
        ) -> tuple[list[Any], Any]:
            beside(quietly(strategy.add(events, wait_s=wait_s)))
            size = len(events) + len(errors)
            return [errors.get(at, False) for at in range(size)], events

        with patch.object(self, "_add", add):
            await add_columns(self, request, into, wait_s=wait_s)

    yield patch.object(Batches, "add_columns", hasty)


def _batch_answered_by_its_first_outcome() -> Patches:
    add = Batches._add

    async def alike(self: Any, *args: Any) -> Any:
        outcomes, events = await add(self, *args)
        return [outcomes[0]] * len(outcomes), events

    yield patch.object(Batches, "_add", alike)


def _count_without_its_own_add() -> Patches:
    """AddAndGetCount reads while it writes."""

    async def at_once(self: Any, event: Any, *, wait_s: float) -> Any:
        [outcome], [value] = await asyncio.gather(
            self.add([event], wait_s=wait_s), self.read_accurately([event.counter])
        )
        if isinstance(outcome, Exception):
            raise outcome
        return outcome, value

    yield patch.object(Logged, "add_and_read", at_once)


def _unlimited_queue() -> Patches:
    """Nobody counts how many events wait."""

    async def quiet(self: Any, buffers: Any) -> None:
        size = sum(len(buffer.events) for buffer in buffers)
        await _commit(self, buffers)
        self._events -= size

    _commit = GroupCommit._commit
    yield patch.object(GroupCommit, "_commit", quiet)


def _writes_taken_however_late_folds_are() -> Patches:
    """Some are refused from a quarter of log_retention on, and never all."""
    observe = Admission.observe_fold_lag

    def lenient(self: Any, lag_ns: int) -> None:
        observe(self, lag_ns)
        self._refused_share = min(0.5, self._refused_share)

    yield patch.object(Admission, "observe_fold_lag", lenient)


def _segments_expire_early() -> Patches:
    """After a quarter of log_retention, when no write is refused yet."""
    make = CassandraEventLog.__init__

    def short_lived(self: Any, *args: Any) -> None:
        make(self, *args)
        self._ttl_s //= 4

    yield patch.object(CassandraEventLog, "__init__", short_lived)


MISTAKES = {
    "ack before the write": Mistake(plant=_ack_before_the_write, breaks=("I1",)),
    "no close check": Mistake(plant=_no_close_check, breaks=("I1",)),
    "close check before the write": Mistake(
        plant=_close_check_before_the_write, breaks=("I1",), focus=slowed("append_segment")
    ),
    "close check shared with the past": Mistake(
        plant=_close_check_shared_with_the_past,
        breaks=("I1",),
        focus=slowed("closed", kind="slow answers"),
    ),
    "stream answered before the write": Mistake(
        plant=_stream_answered_before_the_write, breaks=("I1",)
    ),
    "batch answered by its first outcome": Mistake(
        plant=_batch_answered_by_its_first_outcome, breaks=("I1",)
    ),
    "count without its own add": Mistake(plant=_count_without_its_own_add, breaks=("I5", "I6")),
    "unlimited queue": Mistake(plant=_unlimited_queue, breaks=("I9",)),
    "writes taken however late folds are": Mistake(
        plant=_writes_taken_however_late_folds_are, breaks=("I8",), focus=far_behind
    ),
    "segments expire early": Mistake(
        plant=_segments_expire_early, breaks=("I8",), focus=far_behind
    ),
}
