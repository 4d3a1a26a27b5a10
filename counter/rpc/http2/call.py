"""One call: what a handler gets as its context, and what becomes of its answer.

It has the methods of `grpc.aio.ServicerContext` that handlers of ours, and the libraries for health
and reflection, use. A call ends once: by its handler's answer, by `abort`, at its deadline, or
because its caller went away. Whatever comes after that is dropped, and a handler that still runs is
cancelled.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import structlog

from counter.rpc.http2.frames import WINDOW_MAX, ErrorCode, StreamBroken
from counter.rpc.http2.header_block import Field, block_of, metadata_fields, metadata_of
from counter.rpc.http2.messages import PREFIX_BYTES, CallRefused, MessageReader, prefix

if TYPE_CHECKING:
    from counter.rpc.http2.connection import Connection

# Of one call: what a handler that streams may have written before the caller takes some of it.
UNSENT_BYTES_MAX = 256 * 1024

_OK = grpc.StatusCode.OK
_END = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
# What may stay as it is in grpc-message; everything else is percent-encoded.
_PLAIN = frozenset(range(0x20, 0x7F)) - {0x25}

Metadata = Iterable[tuple[str, str | bytes]]
_Message = tuple[bytes, int]  # and what it took of the window

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Method:
    """A handler as it was registered."""

    behaviour: Callable[[Any, Any], Any]
    deserialize: Callable[[bytes], Any]
    serialize: Callable[[Any], bytes]
    takes_stream: bool
    answers_stream: bool
    is_generator: bool

    @property
    def is_unary(self) -> bool:
        return not self.takes_stream and not self.answers_stream


class Call:
    # What most calls never touch is kept here, once for all of them.
    deadline_s = inf
    is_half_closed = False  # the caller has sent everything
    is_ended = False  # nothing more is sent after what is on its way
    has_headers = False  # ours were sent
    ending: bytes | None = None  # the trailers, while data before them waits for room
    content_bytes: int | None = None  # that are still to come, if the caller said how many
    received_bytes = 0  # given to the reader and not yet taken by the handler
    owed_bytes = 0  # taken, and not yet given back to the caller's window
    unsent: bytearray | None = None
    _reader: MessageReader | None = None
    _messages: "deque[_Message] | None" = None
    _arrival: "asyncio.Future[None] | None" = None
    _room: "asyncio.Future[None] | None" = None
    _task: "asyncio.Task[None] | None" = None
    _code: grpc.StatusCode | None = None
    _details = ""
    _trailing: Metadata = ()

    def __init__(
        self,
        connection: "Connection",
        stream_id: int,
        method: Method,
        fields: Sequence[Field],
        encoding: bytes,
    ) -> None:
        self._connection = connection
        self.stream_id = stream_id
        self._method = method
        self._fields = fields
        self._encoding = encoding
        self.send_window = connection.send_window_of_streams
        self.receive_window = connection.receive_window_of_streams

    # What the connection tells.

    def begin(self) -> None:
        """The headers are there. A handler that takes a stream starts now, others with their one
        message."""
        if self._method.takes_stream:
            self._start(self._run(self._requests()))

    def received(self, data: bytes, *, ends: bool) -> None:
        if self.is_half_closed:
            raise StreamBroken(ErrorCode.STREAM_CLOSED)
        if ends and self._reader is None and self._method.is_unary:
            # Nearly all calls: their one message in one frame, which is also the last.
            size = len(data) - PREFIX_BYTES
            if size >= 0 and data[0] == 0 and int.from_bytes(data[1:PREFIX_BYTES]) == size:
                self.is_half_closed = True
                self._start(self._answer(data[PREFIX_BYTES:]))
                return
        self._read(data, ends=ends)

    def _read(self, data: bytes, *, ends: bool) -> None:
        if self._messages is None or self._reader is None:
            message_bytes_max = self._connection.server.limits.message_bytes_max
            self._messages = deque()
            self._reader = MessageReader(self._encoding, message_bytes_max)
        reader, messages = self._reader, self._messages
        grown, due = -reader.kept_bytes, len(data)
        for message, size in reader.feed(data):
            messages.append((message, size))
            grown += len(message)
            due -= size
        self._keep(grown + reader.kept_bytes)
        # What is part of a message is given back at once, or one larger than the window would
        # never be complete. What is complete is given back when the handler takes it.
        self._give_back(due)
        self.is_half_closed = ends
        if self._method.takes_stream:
            if ends and not reader.is_between_messages:
                raise CallRefused(grpc.StatusCode.INTERNAL, "the last message is not complete")
        elif len(messages) > 1 or (ends and (not messages or not reader.is_between_messages)):
            raise CallRefused(
                grpc.StatusCode.INTERNAL, "a call of this method has one message, and this has not"
            )
        elif ends:
            message = self._take(messages)
            self._start(self._answer(message) if self._method.is_unary else self._run_one(message))
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def expire(self) -> None:
        self.end(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed")
        self._cancel()

    def refuse(self, code: grpc.StatusCode, why: str) -> None:
        self.end(code, why)
        self._cancel()

    def gone(self) -> None:
        """The caller does not wait any more, or cannot be reached."""
        self.is_ended = True
        self.unsent = None
        self._cancel()

    def forget(self) -> None:
        """The connection does not know it any more."""
        self._keep(-self.received_bytes)

    def has_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    @property
    def task(self) -> "asyncio.Task[None] | None":
        return self._task

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # Running the handler.

    def _start(self, running: Any) -> None:
        connection = self._connection
        connection.server.calls += 1
        self._task = connection.loop.create_task(running)

    async def _answer(self, body: bytes) -> None:
        method = self._method
        try:
            request = self._parsed(body)
            response = await method.behaviour(request, self)
            body = method.serialize(response)
        except (Exception, asyncio.CancelledError) as error:
            self._failed(error)
        else:
            if self.is_ended:
                return
            if self._code is None and not self._trailing and not self.has_headers:
                self.is_ended = True
                self._connection.reply(self, body)
                return
            if self._code in (None, _OK):
                self._write(body)
            self.end(self._code or _OK, self._details, self._trailing)
        finally:
            self._connection.server.calls -= 1

    async def _run_one(self, body: bytes) -> None:
        try:
            request = self._parsed(body)
        except CallRefused as refused:
            self._connection.server.calls -= 1
            self._failed(refused)
            return
        await self._run(request)

    async def _run(self, request: Any) -> None:
        """Handlers that take or answer a stream: a coroutine that reads and writes by itself, or
        gives one answer, or a generator of answers."""
        try:
            answering = self._method.behaviour(request, self)
            if self._method.is_generator:
                async for response in answering:
                    await self.write(response)
            else:
                response = await answering
                if not self._method.answers_stream:
                    await self.write(response)
        except (Exception, asyncio.CancelledError) as error:
            self._failed(error)
        else:
            self.end(self._code or _OK, self._details, self._trailing)
        finally:
            self._connection.server.calls -= 1

    def _parsed(self, body: bytes) -> Any:
        try:
            return self._method.deserialize(body)
        except Exception:
            raise CallRefused(
                grpc.StatusCode.INTERNAL, "the request is not a message of this method"
            ) from None

    def _failed(self, error: BaseException) -> None:
        if self.is_ended or isinstance(error, grpc.aio.AbortError):
            return
        if isinstance(error, CallRefused):
            self.end(error.code, error.why)
        elif isinstance(error, asyncio.CancelledError):
            self.end(grpc.StatusCode.UNAVAILABLE, "the server is stopping: call again")
        elif self._code is not None:
            self.end(self._code, self._details, self._trailing)
        else:
            log.error("a handler failed unexpectedly", action="call_failed", exc_info=error)
            self.end(grpc.StatusCode.UNKNOWN, "internal error; the server's log has the details")

    # What a handler calls.

    async def read(self) -> Any:
        """The next message of the caller, or `grpc.aio.EOF` after the last."""
        while not self._messages:
            if self.is_half_closed:
                return _END
            self._arrival = self._connection.loop.create_future()
            await self._arrival
        return self._parsed(self._take(self._messages))

    async def write(self, message: Any) -> None:
        """Waits while the caller does not take what was written before."""
        body = self._method.serialize(message)
        while not self.is_ended and self._is_full():
            self._room = self._connection.loop.create_future()
            await self._room
        if not self.is_ended:
            self._write(body)

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        if not self.is_ended and not self.has_headers:
            self.has_headers = True
            self._connection.send_headers(self, block_of(metadata_fields(metadata)))

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        """Ends the call with this status, and its handler by an exception."""
        self.end(code, details, trailing_metadata)
        raise grpc.aio.AbortError

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing = tuple(metadata)

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

    def end(self, code: grpc.StatusCode, details: str = "", metadata: Metadata = ()) -> None:
        """Ends the call, unless it is ended."""
        if self.is_ended:
            return
        self.is_ended = True
        fields = [(b"grpc-status", b"%d" % code.value[0])]
        if details:
            fields.append((b"grpc-message", _percent_encoded(details)))
        fields += metadata_fields(metadata)
        self._connection.finish(self, block_of(fields))
        self.has_room()

    def _write(self, body: bytes) -> None:
        if not self.has_headers:
            self.has_headers = True
            self._connection.send_headers(self, b"")
        self._connection.send_data(self, prefix(len(body)) + body)

    def _is_full(self) -> bool:
        waiting = self.unsent is not None and len(self.unsent) >= UNSENT_BYTES_MAX
        return waiting or self._connection.is_full

    def window_grows(self, more: int) -> None:
        self.send_window += more
        if self.send_window > WINDOW_MAX:
            raise StreamBroken(ErrorCode.FLOW_CONTROL_ERROR)

    # Receiving.

    async def _requests(self) -> AsyncIterator[Any]:
        while (request := await self.read()) is not _END:
            yield request

    def _take(self, messages: "deque[_Message]") -> bytes:
        message, size = messages.popleft()
        self._keep(-len(message))
        self._give_back(size)
        return message

    def _keep(self, more: int) -> None:
        """Raises if the server keeps too much already of what handlers did not take yet."""
        self.received_bytes += more
        self._connection.server.keep(more)

    def _give_back(self, size: int) -> None:
        self.owed_bytes += size
        if self.owed_bytes * 2 >= self._connection.receive_window_of_streams:
            if not self.is_half_closed:
                self.receive_window += self.owed_bytes
                self._connection.give_back(self, self.owed_bytes)
            self.owed_bytes = 0


class StrayRequest(Call):
    """HTTP/2 that is not gRPC, from a browser or curl. Whoever sends it is told what this is."""

    def begin(self) -> None:
        """There is no handler."""

    def received(self, data: bytes, *, ends: bool) -> None:
        if self.is_half_closed:
            raise StreamBroken(ErrorCode.STREAM_CLOSED)
        self._give_back(len(data))
        self.is_half_closed = ends
        if ends:
            self.is_ended = True
            self._connection.explain(self)


def _percent_encoded(text: str) -> bytes:
    encoded = text.encode()
    if _PLAIN.issuperset(encoded):
        return encoded
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in encoded)
