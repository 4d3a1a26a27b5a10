"""What becomes of sent adds: their callers are told, or the retry policy sends them again.

An add that succeeds at once never becomes more than a tuple. One that fails becomes a `Write`,
whose history the policy decides on, exactly as for a call of its own.
"""

import asyncio
import concurrent.futures
import math
from collections.abc import Callable, Iterable, Sequence

import grpc

from clients.batch import BATCH_TOO_LARGE, BatchSizes
from clients.connection import Connection
from clients.entries import Batch, Entry, Lane
from clients.errors import CounterError
from clients.failures import Failure, failure_of_outcome
from clients.listeners import Listener
from clients.values import AddOutcome, AddResult
from clients.writes import Write
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb

# Adds that wait for their next attempt are woken together, at most this much later than asked for.
SLOT_S = 0.01

# The caller was cancelled in the meantime, and a cancelled future takes no outcome.
NOT_WAITING = (asyncio.InvalidStateError, concurrent.futures.InvalidStateError)

# A named tuple's own constructor takes twice as long, and every add needs two.
_new = tuple.__new__


class Settling:
    """Settles batches. `again` takes entries that are due for their next attempt, `released` how
    many have left."""

    def __init__(
        self,
        connection: Connection,
        sizes: BatchSizes,
        *,
        again: Callable[[Lane, list[Entry]], None],
        released: Callable[[int], None],
    ) -> None:
        self._connection = connection
        self._sizes = sizes
        self._again = again
        self._released = released
        self._slots: dict[int, tuple[asyncio.TimerHandle, list[tuple[Lane, Entry]]]] = {}

    def answered(self, batch: Batch, response: pb.StreamAddCountResponse) -> None:
        if response.all_added:
            self._all_added(batch)
            return
        outcomes = response.outcomes
        if len(outcomes) != len(batch):
            message = f"the server answered {len(outcomes)} outcomes for {len(batch)} adds"
            self.failed(batch, Failure(code=grpc.StatusCode.INTERNAL, message=message))
        elif outcomes[0].reason == BATCH_TOO_LARGE and len(outcomes) > 1:
            self._sizes.refused(batch.lane.namespace, len(outcomes))
            self._again(batch.lane, batch.entries())
        else:
            self._each_answered(batch, [failure_of_outcome(each) or each for each in outcomes])

    def failed(self, batch: Batch, failure: Failure, *, at_once: bool = False) -> None:
        """No answer for the batch. `at_once`: what may be sent again need not wait for it."""
        self._each_answered(batch, [failure] * len(batch), at_once=at_once)

    def out_of_time(self, lane: Lane, entries: Iterable[Entry]) -> None:
        """These have no next attempt: their deadline has passed, or the client is closed."""
        ended = 0
        for entry in entries:
            write = _write_of(self._connection, lane, entry)
            self._end(entry, write, write.out_of_time())
            ended += 1
        self._released(ended)

    def end(self) -> None:
        """Ends all that wait for their next attempt. The client is closed."""
        slots, self._slots = self._slots, {}
        for timer, waiting in slots.values():
            timer.cancel()
            for lane, entry in waiting:
                self.out_of_time(lane, [entry])

    def _all_added(self, batch: Batch) -> None:
        """The path of nearly all adds: everybody has his outcome in one loop."""
        self._connection.tokens.used_through(batch.last_own_ns())
        for waiter, text, time_ns, region in batch.added():
            if isinstance(waiter, Listener):
                waiter.added(text, time_ns, region, duplicate=False)
                continue
            result = _new(AddResult, (_new(Token, (text, time_ns, region)), False))
            try:
                waiter.set_result(result)
            except NOT_WAITING:
                pass
        self._released(len(batch))

    def _each_answered(
        self,
        batch: Batch,
        answers: Sequence[pb.AddCountOutcome | Failure],
        *,
        at_once: bool = False,
    ) -> None:
        now_s = asyncio.get_running_loop().time()
        ended = 0
        due_now: list[Entry] = []
        for entry, answer in zip(batch.entries(), answers, strict=True):
            waiter, end_s = entry[6], entry[5]
            if waiter.done():
                ended += 1
                continue
            write = _write_of(self._connection, batch.lane, entry)
            verdict = write.answered(answer, sent_at_ns=batch.sent_at_ns, remaining_s=end_s - now_s)
            if not isinstance(verdict, float):
                self._end(entry, write, verdict)
                ended += 1
            elif verdict <= 0 or at_once:
                due_now.append(_next_attempt(entry, write))
            else:
                self._later(batch.lane, _next_attempt(entry, write), now_s + verdict)
        self._released(ended)
        if due_now:
            self._again(batch.lane, due_now)

    def _end(self, entry: Entry, write: Write, verdict: AddResult | CounterError) -> None:
        waiter = entry[6]
        try:
            if isinstance(verdict, CounterError):
                if isinstance(waiter, Listener):
                    waiter.failed(AddOutcome(write.counter, write.token, error=verdict))
                else:
                    waiter.set_exception(verdict)
            elif isinstance(waiter, Listener):
                waiter.added(*verdict.token, duplicate=verdict.duplicate)
            else:
                waiter.set_result(verdict)
        except NOT_WAITING:
            pass

    def _later(self, lane: Lane, entry: Entry, due_s: float) -> None:
        slot = math.ceil(due_s / SLOT_S)
        if slot not in self._slots:
            timer = asyncio.get_running_loop().call_at(slot * SLOT_S, self._due, slot)
            self._slots[slot] = (timer, [])
        self._slots[slot][1].append((lane, entry))

    def _due(self, slot: int) -> None:
        by_lane: dict[Lane, list[Entry]] = {}
        for lane, entry in self._slots.pop(slot)[1]:
            by_lane.setdefault(lane, []).append(entry)
        for lane, entries in by_lane.items():
            self._again(lane, entries)


def _write_of(connection: Connection, lane: Lane, entry: Entry) -> Write:
    counter, delta, text, time_ns, region, _, _, own, write = entry
    if write is not None:
        return write
    return Write(
        connection,
        namespace=lane.namespace,
        counter=counter,
        delta=delta,
        # One that was never sent has none yet.
        token=Token(token=text, generation_time_ns=time_ns, region=region) if text else None,
        own_token=own,
    )


def _next_attempt(entry: Entry, write: Write) -> Entry:
    """The same add, with the token that its next attempt uses."""
    counter, delta, _, _, _, end_s, waiter, own, _ = entry
    token = write.token
    return (
        counter,
        delta,
        token.token,
        token.generation_time_ns,
        token.region,
        end_s,
        waiter,
        own,
        write,
    )
