"""One call: what a handler gets as its context, and what becomes of its answer.

It has the methods of `grpc.aio.ServicerContext` that handlers of ours, and the libraries for health
and reflection, use. A call ends once: by its handler's answer, by `abort`, at its deadline, or
because its caller went away. A handler that still runs then is cancelled; if it goes on all the
same, what it reads and writes raises that it was.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from inspect import CORO_CREATED, getcoroutinestate
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import structlog

from counter.rpc.http2.frames import ErrorCode, StreamBroken
from counter.rpc.http2.header_block import Field, block_of
from counter.rpc.http2.messages import PREFIX_BYTES, CallRefused, MessageReader
from counter.rpc.http2.metadata import Metadata, fields_of, metadata_of, percent_encoded

if TYPE_CHECKING:
    from counter.rpc.http2.connection import Connection

# Of one call: what a handler that streams may have written before the caller takes some of it.
UNSENT_BYTES_MAX = 256 * 1024
# What a message that waits for its handler takes beside its bytes.
MESSAGE_OVERHEAD_BYTES = 128

_OK = grpc.StatusCode.OK
_END = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Method:
    """A handler as it was registered."""

    behaviour: Callable[[Any, Any], Any]
    deserialize: Callable[[bytes], Any]
    serialize: Callable[[Any], bytes]
    takes_stream: bool
    answers_stream: bool
    is_unary: bool  # neither of them
    is_generator: bool


class Call:
    # What most calls never touch is kept here, once for all of them.
    encoding = b"identity"
    deadline_s = inf
    is_half_closed = False  # the caller has sent everything
    is_ended = False  # nothing more is sent after what is on its way
    is_forgotten = False  # by its connection
    has_headers = False  # ours were sent
    ending: bytes | None = None  # the trailers, while data before them waits for room
    content_bytes: int | None = None  # that are still to come, if the caller said how many
    window_change = 0  # of what we may send: how it differs from that of a new stream
    used_bytes = 0  # of what we let the caller send
    owed_bytes = 0  # of those: may be given back to it
    kept_bytes = 0  # received and not yet taken by the handler, or answered and not yet sent
    unsent: bytearray | None = None
    _reader: MessageReader | None = None
    _messages: "deque[tuple[bytes, int]] | None" = None  # each with what it took on the wire
    _arrival: "asyncio.Future[None] | None" = None
    _room: "asyncio.Future[None] | None" = None
    _task: "asyncio.Task[None] | None" = None
    _code: grpc.StatusCode | None = None
    _details = ""
    _trailing: Sequence[Field] = ()
    _stuck_bytes, _stuck_since_s = 0, inf

    def __init__(
        self, connection: "Connection", stream_id: int, method: Method, fields: Sequence[Field]
    ) -> None:
        self._connection = connection
        self.stream_id = stream_id
        self._method = method
        self._fields = fields

    # What the connection tells.

    def begin(self) -> None:
        """The headers are there. A handler that takes a stream starts now, others with their one
        message."""
        if self._method.takes_stream:
            self._start(self._run(None))

    def received(self, data: bytes, *, ends: bool) -> None:
        if self.is_half_closed:
            raise StreamBroken(ErrorCode.STREAM_CLOSED)
        if ends and self._reader is None and self._method.is_unary:
            # Nearly all calls: their one message in one frame, which is also the last.
            size = len(data) - PREFIX_BYTES
            # The flag of a message that is not compressed is 0: a part of its length.
            if int.from_bytes(data[:PREFIX_BYTES]) == size <= self._connection.message_bytes_max:
                self.is_half_closed = True
                self._start(self._answer(data[PREFIX_BYTES:]))
                return
        self._read(data, ends=ends)

    def _read(self, data: bytes, *, ends: bool) -> None:
        self.is_half_closed = ends
        if self._messages is None or self._reader is None:
            self._messages = deque()
            self._reader = MessageReader(self.encoding, self._connection.message_bytes_max)
        reader, messages = self._reader, self._messages
        grown, due = -reader.kept_bytes, len(data)
        for message, size in reader.feed(data):
            messages.append((message, size))
            grown += len(message) + MESSAGE_OVERHEAD_BYTES
            due -= size
        self.keep(grown + reader.kept_bytes)
        # What is part of a message is given back at once, or one larger than the window would
        # never be complete. What is complete is given back when the handler takes it.
        self.give_back(due)
        if self._method.takes_stream:
            if ends and reader.kept_bytes:
                raise CallRefused(grpc.StatusCode.INTERNAL, "the last message is not complete")
        elif len(messages) > 1 or (ends and (not messages or reader.kept_bytes)):
            raise CallRefused(
                grpc.StatusCode.INTERNAL, "a call of this method has one message, and this has not"
            )
        elif ends:
            # It counts as kept until the call is forgotten: there may be many large ones.
            message, _ = messages.popleft()
            self._start(self._answer(message) if self._method.is_unary else self._run(message))
        _wake(self._arrival)

    def expire(self) -> None:
        self.refuse(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed")

    def refuse(self, code: grpc.StatusCode, why: str) -> None:
        self.end(code, why)
        self._cancel()

    def gone(self) -> None:
        """The caller does not wait any more, or cannot be reached."""
        self.is_ended = True
        self._cancel()
        self._wake_all()

    def forgotten(self) -> None:
        """By its connection: what is said about it from now on reaches nobody."""
        self.is_forgotten = True
        if self.kept_bytes:
            self._connection.answers.drop(self)
            self.keep(-self.kept_bytes)
            self.unsent = None
        if self._task is None:
            self._connection.server.calls -= 1

    def has_room(self) -> None:
        _wake(self._room)

    def is_stuck(self, now_s: float, stuck_s_max: float) -> bool:
        """Whether for so long nothing was taken of an answer that is complete."""
        left = len(self.unsent or b"")
        if left != self._stuck_bytes:
            self._stuck_bytes, self._stuck_since_s = left, now_s
        return now_s > self._stuck_since_s + stuck_s_max

    # Running the handler.

    def _start(self, running: Any) -> None:
        self._task = self._connection.loop.create_task(running)

    async def _answer(self, body: bytes) -> None:
        method = self._method
        try:
            response = await method.behaviour(self._parsed(body), self)
            body = method.serialize(response)
            if self._code is None and not self.has_headers and not self._trailing:
                if not self.is_ended:
                    self._connection.answers.reply(self, body)
            else:
                if self._code in (None, _OK):
                    await self._write(body)
                self._conclude()
        except (Exception, asyncio.CancelledError) as error:
            self._failed(error)
        finally:
            self._task = None
            if self.is_forgotten:
                self._connection.server.calls -= 1

    async def _run(self, body: bytes | None) -> None:
        """Handlers that take or answer a stream: a coroutine that reads and writes by itself, or
        gives one answer, or a generator of answers. `body`: the one message of the caller, unless
        they are a stream."""
        method = self._method
        try:
            answering = method.behaviour(self if body is None else self._parsed(body), self)
            if method.is_generator:
                async with aclosing(answering):
                    async for response in answering:
                        await self.write(response)
            else:
                response = await answering
                if not method.answers_stream and self._code in (None, _OK):
                    await self.write(response)
            self._conclude()
        except (Exception, asyncio.CancelledError) as error:
            self._failed(error)
        finally:
            self._has_run()

    def _has_run(self) -> None:
        self._task = None
        if self.is_forgotten:
            self._connection.server.calls -= 1

    def _cancel(self) -> None:
        task = self._task
        if task is None or task.cancelling():
            return
        if getcoroutinestate(task.get_coro()) == CORO_CREATED:  # type: ignore[arg-type]
            self._has_run()  # it never will, and would not say so
        task.cancel()

    def _parsed(self, body: bytes) -> Any:
        try:
            return self._method.deserialize(body)
        except Exception:
            raise CallRefused(
                grpc.StatusCode.INTERNAL, "the request is not a message of this method"
            ) from None

    def _conclude(self) -> None:
        self.end(self._code or _OK, self._details, self._trailing)

    def _failed(self, error: BaseException) -> None:
        if self.is_ended:
            return
        if isinstance(error, CallRefused):
            self.end(error.code, error.why)
        elif isinstance(error, asyncio.CancelledError):
            self.end(grpc.StatusCode.UNAVAILABLE, "the server is stopping: call again")
        elif self._code not in (None, _OK):
            self._conclude()
        else:
            log.error("a handler failed unexpectedly", action="call_failed", exc_info=error)
            self.end(grpc.StatusCode.UNKNOWN, "internal error; the server's log has the details")

    # What a handler calls. One reads at a time, and one writes.

    async def read(self) -> Any:
        """The next message of the caller, or `grpc.aio.EOF` after the last. Nothing is lost if it
        is cancelled."""
        while True:
            if self.is_ended:
                raise asyncio.CancelledError
            if self._messages:
                message, size = self._messages.popleft()
                self.keep(-len(message) - MESSAGE_OVERHEAD_BYTES)
                self.give_back(size)
                return self._parsed(message)
            if self.is_half_closed:
                return _END
            self._arrival = self._connection.loop.create_future()
            await self._arrival

    def __aiter__(self) -> "Call":
        """The messages of the caller, for handlers that iterate over them."""
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is _END:
            raise StopAsyncIteration
        return message

    async def write(self, message: Any) -> None:
        """Waits while the caller does not take what was written before."""
        await self._write(self._method.serialize(message))

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        block = block_of(fields_of(metadata))
        if not self.is_ended and not self.has_headers:
            self._connection.answers.send_headers(self, block)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        """Ends the call with this status, and its handler by an exception."""
        if code is _OK:
            code = grpc.StatusCode.UNKNOWN
        self.end(code, details, fields_of(trailing_metadata))
        raise grpc.aio.AbortError

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    def set_code(self, code: grpc.StatusCode) -> None:
        if not isinstance(code, grpc.StatusCode):
            raise TypeError(f"{code!r} is no grpc.StatusCode")
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing = fields_of(metadata)

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return metadata_of(self._fields)

    def peer(self) -> str:
        return self._connection.peer

    def time_remaining(self) -> float | None:
        if self.deadline_s is inf:
            return None
        return max(0.0, self.deadline_s - self._connection.loop.time())

    def cancelled(self) -> bool:
        return self.is_ended

    # Sending.

    def end(self, code: grpc.StatusCode, details: str = "", metadata: Sequence[Field] = ()) -> None:
        """Ends the call, unless it is ended."""
        fields = [(b"grpc-status", b"%d" % code.value[0])]
        if details:
            fields.append((b"grpc-message", percent_encoded(details)))
        block = block_of([*fields, *metadata])
        if not self.is_ended:
            self.is_ended = True
            self._connection.answers.finish(self, block)
            self._wake_all()

    async def _write(self, body: bytes) -> None:
        while self.unsent is not None and len(self.unsent) >= UNSENT_BYTES_MAX:
            if self.is_ended:
                break
            self._room = self._connection.loop.create_future()
            await self._room
        if self.is_ended:
            raise asyncio.CancelledError
        self._connection.answers.send_message(self, body)

    def _wake_all(self) -> None:
        _wake(self._arrival)
        _wake(self._room)

    # Counting.

    def keep(self, more: int) -> None:
        """Raises if so much is kept already for all calls that it cannot be more."""
        self._connection.server.keep(more)
        self.kept_bytes += more

    def give_back(self, size: int) -> None:
        """So much of what the caller sent may be sent once more."""
        self.owed_bytes += size
        if self.owed_bytes * 2 >= self._connection.server.limits.stream_window_bytes:
            if not self.is_half_closed:
                self.used_bytes -= self.owed_bytes
                self._connection.answers.give_back(self.stream_id, self.owed_bytes)
            self.owed_bytes = 0


class StrayRequest(Call):
    """HTTP/2 that is not gRPC, from a browser or curl. Whoever sends it is told what this is."""

    def begin(self) -> None:
        """There is no handler."""

    def received(self, data: bytes, *, ends: bool) -> None:
        if self.is_half_closed:
            raise StreamBroken(ErrorCode.STREAM_CLOSED)
        self.is_half_closed = ends
        self.give_back(len(data))
        if ends:
            self._connection.answers.explain(self)
            self.is_ended = True


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
