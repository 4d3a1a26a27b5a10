"""The coalescing of adds: those of one turn of the event loop go out as one batch.

    add, add_soon -> lane (one per namespace) -> batch -> stream -> settling -> the callers

- Who adds puts an entry into the lane of its namespace. At the end of the turn the stream takes
  what is there. FREE_BATCHES may be in flight however small they are, so a lone add never waits;
  more, up to IN_FLIGHT_MAX, only when they are full, so batches grow under load.
- At most `unsettled_max` adds wait or are in flight. Others stand in line for room, in order, until
  their deadline; `add_soon` is refused instead.
- A stream that breaks is opened again. Until the first answer on it only one batch is in flight,
  and after each failure there is a growing pause: a platform that is away is asked, not hammered.
- One timer looks for deadlines that have passed, so that an add costs no timer of its own.

Everything happens on one event loop; only `check_room` is called by other threads.
"""

import asyncio
import math
from collections import deque
from contextvars import Context

import grpc

from clients.batch import ITEMS_PER_CALL, BatchSizes
from clients.connection import Connection, check_timeout
from clients.entries import (
    INT64_MAX,
    INT64_MIN,
    NAME_CHARACTERS_MAX,
    Batch,
    Entry,
    Lane,
    SoonAdd,
    Waiter,
    check_add,
    check_token,
)
from clients.errors import ClientClosed, CounterError, Overloaded
from clients.failures import Failure
from clients.listeners import Listener
from clients.retry import ATTEMPT_MIN_S, Proof, delay_before, proof_of
from clients.settling import NOT_WAITING, Settling
from clients.soon import OnAddFailed, SoonAdds
from clients.stream import AddStream
from clients.values import AddOutcome, AddResult
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb

UNSETTLED_MAX_DEFAULT = 100_000
FREE_BATCHES = 2
IN_FLIGHT_MAX = 8
# Deadlines are looked at no more often than this, and met about as exactly.
SWEEP_EVERY_S = 0.01
PAUSE_STEP_S = 0.02
# With less time left nothing is sent a second time.
AGAIN_LEAST_S = 0.01

# An add that found no room: its lane, counter, delta, token, deadline, and who is told.
_InLine = tuple[Lane, str, int, Token | None, float, Waiter]


class Adds:
    """All adds of one connection, in whichever namespace."""

    def __init__(
        self,
        connection: Connection,
        sizes: BatchSizes,
        *,
        unsettled_max: int = UNSETTLED_MAX_DEFAULT,
        on_failed: OnAddFailed | None = None,
    ) -> None:
        if unsettled_max < 1:
            raise ValueError(f"unsettled_max must be at least 1, not {unsettled_max!r}")
        self.unsettled_max = unsettled_max
        self.unsettled = 0
        self.soon = SoonAdds(on_failed)
        self._connection = connection
        self._sizes = sizes
        self._settling = Settling(
            connection, sizes, again=self._enter_again, released=self._released
        )
        self._lanes: dict[str, Lane] = {}
        self._busy: dict[Lane, None] = {}  # the lanes with something in them, in order of turn
        self._line: deque[_InLine] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn_due = False  # `_turn` will run at the end of this turn of the loop
        self._driver: asyncio.Task[None] | None = None
        self._stream: AddStream | None = None
        self._failures = 0  # streams in a row that ended without an answer
        self._resume_s = 0.0  # no stream is opened before this time
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_s = math.inf
        self._closed = False

    def lane(self, namespace: str) -> Lane:
        return self._lanes.setdefault(namespace, Lane(namespace))

    # Where adds come in.

    def add(
        self, lane: Lane, counter: str, delta: int, token: Token | None, timeout_s: float
    ) -> asyncio.Future[AddResult]:
        waiter = (self._loop or self._bind()).create_future()
        self.submit(lane, counter, delta, token, timeout_s, waiter)
        return waiter

    def submit(
        self,
        lane: Lane,
        counter: str,
        delta: int,
        token: Token | None,
        timeout_s: float,
        waiter: Waiter,
    ) -> None:
        """Sends soon; the waiter gets the outcome. Without room it stands in line first."""
        # All in one place and without a call where nothing is unusual: every add passes here.
        if (
            delta.__class__ is not int
            or not INT64_MIN <= delta <= INT64_MAX
            or not counter.isascii()
            or len(counter) > NAME_CHARACTERS_MAX
        ):
            delta = check_add(counter, delta)
        if not timeout_s > 0:
            check_timeout(timeout_s)
        if self._closed:
            raise ClientClosed
        loop = self._loop or self._bind()
        end_s = loop.time() + timeout_s
        if end_s < self._sweep_s:
            self._sweep_at(end_s)
        if self.unsettled >= self.unsettled_max:
            self._line.append((lane, counter, delta, token and check_token(token), end_s, waiter))
            return
        if token is None:
            entry: Entry = (counter, delta, "", 0, "", end_s, waiter, True, None)
        else:
            text, time_ns, region = check_token(token)
            entry = (counter, delta, text, time_ns, region, end_s, waiter, False, None)
        self.unsettled += 1
        if not lane.waiting:
            self._busy[lane] = None
        lane.waiting.append(entry)
        if not self._turn_due:
            self._turn_due = True
            loop.call_soon(self._turn)

    def submit_soon(self, add: SoonAdd) -> None:
        """An add that nobody waits for. The caller has seen that there is room."""
        if self._closed:
            raise ClientClosed
        end_s = (self._loop or self._bind()).time() + add.timeout_s
        self.unsettled += 1
        entry: Entry = (
            *(add.counter, add.delta, *add.token, end_s),
            *(self.soon.one_more(), add.own_token, None),
        )
        self._enter(add.lane, [entry])

    def check_room(self, more: int = 0) -> None:
        """Raises Overloaded without room for one add after so many that are on their way here."""
        if self._closed:
            raise ClientClosed
        if self.unsettled + more >= self.unsettled_max:
            raise self._full()

    def _full(self) -> Overloaded:
        return Overloaded(
            f"{self.unsettled_max} adds of this client are not settled yet, which is as many as it "
            "keeps (unsettled_max). Nothing was sent: add less at once, or try again later.",
            reason="CLIENT_FULL",
            code=grpc.StatusCode.RESOURCE_EXHAUSTED,
        )

    def _refuse(self, add: _InLine, error: CounterError) -> None:
        """One that stood in line, and was never sent."""
        _, counter, _, token, _, waiter = add
        if isinstance(waiter, Listener):
            token = token or self._connection.tokens.next()
            waiter.failed(AddOutcome(counter, token, error=error))
            return
        try:
            waiter.set_exception(error)
        except NOT_WAITING:
            pass

    def abandoned(self, lane: Lane) -> None:
        """A caller no longer waits: what was not sent for it need not be."""
        lane.abandoned = True
        self._wake()

    def _bind(self) -> asyncio.AbstractEventLoop:
        """The event loop is the one that is running at the first add."""
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _enter(self, lane: Lane, entries: list[Entry]) -> None:
        if not lane.waiting:
            self._busy[lane] = None
        lane.waiting.extend(entries)
        earliest_s = min(entry[5] for entry in entries)
        if earliest_s < self._sweep_s:
            self._sweep_at(earliest_s)
        self._wake()

    def _enter_again(self, lane: Lane, entries: list[Entry]) -> None:
        if self._connection.closed:
            self._settling.out_of_time(lane, entries)
        else:
            self._enter(lane, entries)

    def _released(self, number: int) -> None:
        self.unsettled -= number
        while self._line and self.unsettled < self.unsettled_max:
            lane, counter, delta, token, end_s, waiter = self._line.popleft()
            if waiter.done():
                continue
            own = token is None
            text, time_ns, region = token or ("", 0, "")
            self.unsettled += 1
            self._enter(lane, [(counter, delta, text, time_ns, region, end_s, waiter, own, None)])

    # Where they go out.

    def _wake(self) -> None:
        if not self._turn_due and self._loop is not None:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """At the end of a turn of the loop in which something came in."""
        self._turn_due = False
        for lane in [lane for lane in self._busy if lane.abandoned]:
            self._released(lane.drop_abandoned())
            if not lane.waiting:
                self._busy.pop(lane, None)
        if self._stream is not None:
            self._stream.wake()
        elif self._driver is None and self._busy and self._loop is not None:
            # In a context of its own: it outlives the call that happened to start it.
            self._driver = self._loop.create_task(self._drive(), context=Context())

    def _take(self, in_flight: int) -> Batch | None:
        """The next batch, if one may be in flight now."""
        if in_flight >= (1 if self._failures else IN_FLIGHT_MAX):
            return None
        now_s = asyncio.get_running_loop().time()
        for lane in list(self._busy):
            size = min(self._sizes.of(lane.namespace), ITEMS_PER_CALL)
            if in_flight >= FREE_BATCHES and len(lane.waiting) < size:
                continue
            entries = lane.take(size)
            del self._busy[lane]
            if lane.waiting:
                self._busy[lane] = None  # at the end: the other namespaces come first
            if min(entry[5] for entry in entries) <= now_s + AGAIN_LEAST_S:
                expired = [entry for entry in entries if _is_too_late(entry, now_s)]
                entries = [entry for entry in entries if not _is_too_late(entry, now_s)]
                self._settling.out_of_time(lane, expired)
            if entries:
                batch = Batch(lane, entries, now_s=now_s, tokens=self._connection.tokens)
                self._sweep_at(batch.attempt_end_s)
                return batch
        return None

    async def _drive(self) -> None:
        """Keeps a stream open while there is something to send, and until the server ends it."""
        try:
            while self._busy and await self._may_open():
                self._stream = AddStream(self._connection, take=self._take, answered=self._answered)
                failure = await self._stream.run()
                stream, self._stream = self._stream, None
                self._stream_ended(stream, failure)
        finally:
            self._driver = self._stream = None

    def _answered(self, batch: Batch, response: pb.StreamAddCountResponse) -> None:
        self._failures = 0
        self._settling.answered(batch, response)

    async def _may_open(self) -> bool:
        """After failures waits until it is time, but not beyond what an add needs for an attempt.
        False: the client is closed."""
        loop = asyncio.get_running_loop()
        while not self._connection.closed:
            now_s = loop.time()
            if now_s >= min(self._resume_s, self._sweep_s - ATTEMPT_MIN_S):
                return True
            await self._connection.pause(min(PAUSE_STEP_S, self._resume_s - now_s))
        return False

    def _stream_ended(self, stream: AddStream, failure: Failure | None) -> None:
        unanswered = list(stream.in_flight.values())
        at_once = failure is None and stream.answers > 0
        if failure is None:
            failure = Failure(
                code=grpc.StatusCode.UNAVAILABLE,
                message="the server ended the stream before it answered",
            )
        if stream.answers or not unanswered or proof_of(failure) is Proof.REFUSED:
            self._failures = 0
        else:
            self._failures += 1
            delay_s = delay_before(self._failures, None, math.inf, self._connection.random)
            self._resume_s = asyncio.get_running_loop().time() + (delay_s or 0.0)
        for batch in unanswered:
            self._settling.failed(batch, failure, at_once=at_once)

    # Deadlines.

    def _sweep_at(self, at_s: float) -> None:
        if at_s < self._sweep_s:
            if self._sweep_timer is not None:
                self._sweep_timer.cancel()
            loop = self._loop or self._bind()
            self._sweep_s = at_s
            self._sweep_timer = loop.call_at(at_s, self._sweep)

    def _sweep(self) -> None:
        """Ends what waits beyond its deadline, and attempts that take too long."""
        now_s = asyncio.get_running_loop().time()
        self._sweep_timer, self._sweep_s = None, math.inf
        for lane in list(self._busy):
            self._settling.out_of_time(lane, lane.take_expired(now_s))
            if not lane.waiting:
                self._busy.pop(lane, None)
        line, self._line = self._line, deque()
        for each in line:
            if each[4] > now_s:
                self._line.append(each)
            else:
                self._refuse(each, self._full())
        if self._stream is not None:
            self._sweep_stream(self._stream, now_s)
        ends_s = [entry[5] for lane in self._busy for entry in lane.waiting]
        ends_s += [each[4] for each in self._line]
        if self._stream is not None:
            ends_s += [batch.attempt_end_s for batch in self._stream.in_flight.values()]
        if ends_s:
            self._sweep_at(max(min(ends_s), now_s + SWEEP_EVERY_S))

    def _sweep_stream(self, stream: AddStream, now_s: float) -> None:
        for batch in stream.take_overdue(now_s):
            took_s = now_s - batch.sent_at_s
            message = f"no answer within {took_s:.2f} s"
            overdue = Failure(code=grpc.StatusCode.DEADLINE_EXCEEDED, message=message)
            if stream.last_answer_s < batch.sent_at_s:
                # Not slow, but silent: what is sent on it now would wait in vain.
                stream.give_up(overdue)
            self._settling.failed(batch, overdue)
        stream.wake()

    # The end.

    async def flush_and_refuse(self) -> None:
        """The first step of closing: no more adds, and those that nobody waits for are settled."""
        self._closed = True
        await self.soon.flush(None)

    async def end(self) -> None:
        """The last step, when the connection is closed: everybody learns what is known."""
        self._closed = True
        line, self._line = self._line, deque()
        for each in line:
            self._refuse(each, ClientClosed())
        busy, self._busy = list(self._busy), {}
        for lane in busy:
            self._settling.out_of_time(lane, lane.take(len(lane.waiting)))
        if self._driver is not None:
            await asyncio.gather(self._driver, return_exceptions=True)
        self._settling.end()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.soon.end()


def _is_too_late(entry: Entry, now_s: float) -> bool:
    """An attempt that nobody can wait for would only make an outcome unknown that is known."""
    left_s, has_failed = entry[5] - now_s, entry[8] is not None
    return left_s <= (AGAIN_LEAST_S if has_failed else 0.0)
