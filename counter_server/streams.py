"""Streams of batches: many in flight, each answered as soon as its adds are durable.

A stream has one reader and one writer. The reader takes batches and starts each of them at once, so
that many share a commit. It reads no further while too much is unanswered, and HTTP/2 then holds
the caller back. The writer sends answers in the order in which they became known.

Reading ends when the caller has sent everything, when the stream is old, when the server stops, or
at a batch that cannot be answered add by add. Whatever was started before is answered first, then
the stream ends: with OK, or with what is wrong with that batch. Nothing is remembered for the next
stream. A caller sends what was not answered again, with the same tokens.

A caller that goes away ends its stream and its batches, as it would end a call. What is on its way
to the store by then is written all the same: others share the commit.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Any

import grpc
import structlog
from google.rpc import code_pb2
from grpc_status import rpc_status

from counter.errors import AnswersUnread, InvalidRequest, TallyError
from counter.metrics import ITEM_ERRORS
from counter.rpc.server import MeasuredCalls
from counter.rpc.status import status_of
from counter.settings import BATCH_ITEMS_MAX
from counter.v1 import counter_service_pb2 as pb
from counter_server import translate
from counter_server.batches import Batches
from counter_server.columns import size_of

# Of one stream: with so many adds or batches unanswered it is not read further. The last batch may
# take it over the number of adds, so that any batch passes.
ADDS_UNANSWERED_MAX = 20_000
BATCHES_UNANSWERED_MAX = 64
# No stream is read for longer, and some are for a little less, so that not all end at once. Callers
# spread anew over the servers then.
STREAM_AGE_S = 55.0
_AGE_SPREAD = 0.15
# A caller that does not take an answer for so long is cut off: it does not read any more.
UNREAD_S_MAX = 30.0

_RPC = "StreamAddCount"

log = structlog.get_logger()


class Streams:
    def __init__(
        self,
        batches: Batches,
        *,
        stopping: asyncio.Event,
        age_s: float = STREAM_AGE_S,
        unread_s_max: float = UNREAD_S_MAX,
        chance: Random | None = None,
    ) -> None:
        """`stopping` ends all streams; `chance` spreads their ages."""
        self._batches = batches
        self._stopping = stopping
        self._age_s = age_s
        self.unread_s_max = unread_s_max
        self._chance = chance or Random()
        self._measured = MeasuredCalls(_RPC)

    async def serve(self, context: Any, wait_s: Callable[[], float]) -> None:
        """Serves one stream to its end. `wait_s`: how long a batch may wait for its outcomes."""
        error = await self._serve(_Stream(self, context, wait_s))
        if error is not None:
            # A caller that does not read takes this late or never: nothing else is kept till then.
            await context.abort_with_status(rpc_status.to_status(status_of(error)))

    async def _serve(self, stream: "_Stream") -> TallyError | None:
        """Why it has ended; None: everything that was read is answered, and that was it."""
        reading = asyncio.create_task(stream.read())
        reading.add_done_callback(stream.look)
        stopping = asyncio.create_task(self._stopping.wait())
        stopping.add_done_callback(lambda _: reading.cancel())
        age_s = self._age_s * self._chance.uniform(1 - _AGE_SPREAD, 1)
        ageing = asyncio.get_running_loop().call_later(age_s, reading.cancel)
        try:
            await stream.write_until(reading)
        finally:
            ageing.cancel()
            stopping.cancel()
            reading.cancel()
            stream.give_up()
        return stream.error

    async def answer(
        self, request: pb.StreamAddCountRequest, size: int, wait_s: float
    ) -> pb.StreamAddCountResponse:
        """Adds a batch. One that is refused as a whole is answered with that, add by add.

        Each batch is measured as if it were a call.
        """
        began_s = perf_counter()
        self._measured.began()
        code = "CANCELLED"  # unless it ends otherwise
        try:
            response = pb.StreamAddCountResponse(sequence_number=request.sequence_number)
            if request.HasField("columns"):
                await self._batches.add_columns(request, response, wait_s=wait_s)
            else:
                await self._batches.add_items(request, response, wait_s=wait_s)
            code = "OK"
        except Exception as error:
            failure = _failure(error)
            code = code_pb2.Code.Name(self._measured.failed(failure).code)
            response = _refusal(request.sequence_number, failure, size)
        finally:
            self._measured.ended(code, perf_counter() - began_s)
        return response

    def failed(self, error: Exception) -> TallyError:
        """What ends a stream. Measured as a batch too: it is the answer to one."""
        failure = _failure(error)
        self._measured.began()
        self._measured.ended(code_pb2.Code.Name(self._measured.failed(failure).code), 0.0)
        return failure


class _Stream:
    def __init__(self, streams: Streams, context: Any, wait_s: Callable[[], float]) -> None:
        self._streams = streams
        self._context = context
        self._wait_s = wait_s
        self._last_number: int | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._unanswered_adds = 0
        self._unanswered_batches = 0
        # To be written, with the number of adds that each answers.
        self._answers: deque[tuple[pb.StreamAddCountResponse, int]] = deque()
        self._changed = asyncio.Event()  # there is something for the writer to do
        self._has_room = asyncio.Event()
        self.error: TallyError | None = None  # why the stream ends, unless with OK

    async def read(self) -> None:
        """Starts batch after batch until there are no more. May be cancelled at any time: a batch
        that was not started is one that was not read."""
        try:
            while True:
                while self._is_full():
                    self._has_room.clear()
                    await self._has_room.wait()
                request = await self._context.read()
                if request is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                    return
                size = self._checked(request)
                self._unanswered_adds += size
                self._unanswered_batches += 1
                batch = asyncio.create_task(self._answer(request, size))
                self._under_way.add(batch)
                batch.add_done_callback(self._under_way.discard)
        except Exception as error:
            self.error = self._streams.failed(error)

    async def write_until(self, reading: "asyncio.Task[None]") -> None:
        """Writes answers until reading has ended and everything that was started is answered, or
        until nobody takes them."""
        while True:
            self._changed.clear()
            while self._answers:
                response, size = self._answers.popleft()
                if not await self._is_taken(response):
                    self.error = self._streams.failed(
                        AnswersUnread(
                            "the answers of this stream are not read: read them while you send, "
                            "and send what was not answered again, with the same tokens"
                        )
                    )
                    return
                # Only now: a caller that does not read its answers may not send for ever either.
                self._unanswered_adds -= size
                self._unanswered_batches -= 1
                if not self._is_full():
                    self._has_room.set()
            if reading.done() and not self._unanswered_batches:
                return
            await self._changed.wait()

    def give_up(self) -> None:
        """Ends the batches that are still under way: nobody waits for their answers any more."""
        for batch in self._under_way:
            batch.cancel()

    def look(self, _: object = None) -> None:
        """Has the writer look again."""
        self._changed.set()

    async def _is_taken(self, response: pb.StreamAddCountResponse) -> bool:
        try:
            async with asyncio.timeout(self._streams.unread_s_max):
                await self._context.write(response)
        except TimeoutError:
            return False
        return True

    async def _answer(self, request: pb.StreamAddCountRequest, size: int) -> None:
        response = await self._streams.answer(request, size, self._wait_s())
        self._answers.append((response, size))
        self.look()

    def _is_full(self) -> bool:
        return (
            self._unanswered_adds >= ADDS_UNANSWERED_MAX
            or self._unanswered_batches >= BATCHES_UNANSWERED_MAX
        )

    def _checked(self, request: pb.StreamAddCountRequest) -> int:
        """How many adds a batch has; raises what is wrong if it cannot be answered add by add."""
        number, last = request.sequence_number, self._last_number
        if last is not None and number <= last:
            raise InvalidRequest(
                "SEQUENCE_NOT_RISING",
                "sequence_number",
                f"sequence_number is {number} after {last}: give each batch of a stream a larger "
                "one than the last",
            )
        self._last_number = number
        return _size(request)


def _size(request: pb.StreamAddCountRequest) -> int:
    field, size = "items", len(request.items)
    if request.HasField("columns"):
        if size:
            raise InvalidRequest(
                "BATCH_AMBIGUOUS",
                "columns",
                f"batch {request.sequence_number} has items and columns: send one or the other, "
                "in a batch of its own",
            )
        field, size = "columns", size_of(request.columns)
    if size == 0:
        raise InvalidRequest(
            "BATCH_EMPTY",
            field,
            f"batch {request.sequence_number} has no adds: send at least one, as items or columns",
        )
    if size > BATCH_ITEMS_MAX:
        raise InvalidRequest(
            "BATCH_TOO_LARGE",
            field,
            f"batch {request.sequence_number} has {size} adds: at most {BATCH_ITEMS_MAX}",
        )
    return size


def _failure(error: Exception) -> TallyError:
    """The error as a caller may see it; one that nobody expected is logged as a bug."""
    if isinstance(error, TallyError):
        return error
    log.error("a call failed unexpectedly", action="call_failed", rpc=_RPC, exc_info=error)
    return TallyError("internal error; the server's log has the details")


def _refusal(number: int, error: TallyError, size: int) -> pb.StreamAddCountResponse:
    """The same outcome for each add."""
    response = pb.StreamAddCountResponse()
    translate.add_outcomes(response, [error], {})
    response.MergeFromString(response.SerializeToString() * (size - 1))
    ITEM_ERRORS.at(reason=error.reason).add(size - 1)
    response.sequence_number = number
    return response
