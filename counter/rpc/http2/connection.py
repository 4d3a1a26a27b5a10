"""One client's connection: frames come in and are acted on. `answers` is the way out.

Whatever a peer may do without end has a limit: streams at once, the size of frames, headers and
messages, what is kept of data, frames that cost and bring nothing, and how long answers may lie
unread. RFC 9113 says what breaks a connection and what a stream; the tests run `h2spec` against it.

The hot way is short on purpose. A unary call is a HEADERS and a DATA frame; its answer is one write
of three frames. The event loop sends what was written in one turn with one system call.
"""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, cast

import structlog

from counter.rpc.http2 import frames
from counter.rpc.http2.answers import Answers
from counter.rpc.http2.call import Call
from counter.rpc.http2.frames import ConnectionBroken, ErrorCode, StreamBroken
from counter.rpc.http2.header_block import Field, HeaderDecoder, check_trailers
from counter.rpc.http2.messages import CallRefused
from counter.rpc.http2.requests import call_of
from counter.rpc.http2.sockets import prepared

if TYPE_CHECKING:
    from counter.rpc.http2.server import Http2Server

log = structlog.get_logger()

LOOK_EVERY_S = 0.1
# Of a block, for one byte that its fields may have: so that those who send somewhat too much lose a
# call, and not all that are on the connection.
_BLOCK_TO_FIELDS_MAX = 16
# With so many streams, a change of all windows costs as much as a frame.
_STREAMS_PER_IDLE_FRAME = 100
_DRAIN_PING = b"draining"
_PING_ANSWERED_S = 1.0
# For the peer to hang up after us. If we did so while it sends, it might not hear our last words.
_LINGER_S = 1.0


class Connection(asyncio.Protocol):
    answers: Answers

    def __init__(self, server: "Http2Server") -> None:
        limits = server.limits
        self.server = server
        self.loop = server.loop
        self.message_bytes_max = limits.message_bytes_max
        self.calls: dict[int, Call] = {}
        self.peer = ""
        self.ends_s = inf  # when it has reached its age
        self._made_s = self.loop.time()
        self._full_since_s = inf  # the peer does not take what is written
        self._draining_since_s: float | None = None  # set: it ends
        self._drained_by_s = inf  # at the latest
        self._is_open = False  # the peer said that it speaks HTTP/2
        self._is_closed = False  # and has no calls; what the peer still says is ignored
        self._closed_s = inf
        self._receive_window = limits.connection_window_bytes
        self._headers = HeaderDecoder(limits.header_bytes_max)
        self._rest = b""  # of a frame that is not complete yet
        self._last_id = 0
        # Streams that we ended while the peer was still sending: what is under way is ignored.
        self._cut_short: set[int] = set()
        # Headers that go on in the next frame: stream, flags of the first frame, blocks.
        self._unfinished: tuple[int, int, bytearray] | None = None
        # Since the last look: frames that brought nothing, and calls that came and were given up.
        self._looked_s, self._looked_id = self._made_s, 0
        self._idle_frames = self._resets = 0
        self._last_taken_id: int | None = None  # set: later streams are not ours any more

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._write = self._transport.write
        self.answers = Answers(self, self._write)
        limits = self.server.limits
        if not self.server.joined(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=limits.unread_bytes_max)
        self.peer = prepared(self._transport)
        self._write(
            frames.settings(
                {
                    frames.MAX_CONCURRENT_STREAMS: limits.streams_max,
                    frames.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
                    frames.MAX_HEADER_LIST_SIZE: limits.header_bytes_max,
                }
            )
            + frames.window_update(0, limits.connection_window_bytes - frames.WINDOW_DEFAULT)
        )

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._drop_calls()
        self.server.left(self)

    def pause_writing(self) -> None:
        """The peer reads too slowly: it gets no new calls in, until it has caught up."""
        self._full_since_s = self.loop.time()
        self.answers.pause()
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full_since_s = inf
        self.answers.resume()
        if self._full_since_s is inf and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        try:
            self._take(self._rest + data if self._rest else data)
        except ConnectionBroken as broken:
            self._break(broken)

    def _take(self, data: bytes) -> None:
        position = 0
        if not self._is_open:
            if not frames.PREFACE.startswith(data[: len(frames.PREFACE)]):
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
            if len(data) < len(frames.PREFACE) + frames.HEADER_BYTES:
                self._rest = data
                return
            position = len(frames.PREFACE)
            if data[position + 3] != frames.SETTINGS or data[position + 4] & frames.ACK:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "settings come first")
            self._is_open = True
        end = len(data)
        frame_bytes_max = frames.FRAME_BYTES_DEFAULT
        while end - position >= 9:
            high, low, kind, flags, stream_id = frames.unpack_header(data, position)
            size = high << 8 | low
            if size > frame_bytes_max:
                raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            begin = position + 9
            if end - begin < size:
                break
            position = begin + size
            self._frame(kind, flags, stream_id & 0x7FFF_FFFF, data[begin:position])
            if self._is_closed:
                return
        self._rest = data[position:]

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        try:
            if self._unfinished is not None:
                self._continuation(kind, flags, stream_id, payload)
            elif kind == frames.DATA:
                self._data(flags, stream_id, payload)
            elif kind == frames.HEADERS:
                self._headers_frame(flags, stream_id, payload)
            else:
                self._idle_frame(kind, flags, stream_id, payload)
        except StreamBroken as broken:
            self._reset(stream_id, broken.code)
        except CallRefused as refused:
            self.calls[stream_id].refuse(refused.code, refused.why)

    # Calls come in.

    def _headers_frame(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"headers on stream {stream_id}")
        block = frames.unpadded(payload, flags)
        depends_on_itself = False
        if flags & frames.HAS_PRIORITY:
            if len(block) < 5:
                raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "headers without a priority")
            depends_on_itself = frames.number_of(block) == stream_id
            block = block[5:]
        if not flags & frames.END_HEADERS:
            self._unfinished = (stream_id, flags, bytearray(block))
            return
        self._headers_complete(stream_id, flags, block)
        if depends_on_itself:
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)

    def _continuation(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        assert self._unfinished is not None
        of_stream, first_flags, block = self._unfinished
        if kind != frames.CONTINUATION or stream_id != of_stream:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "headers are interrupted")
        self._idle()
        block += payload
        if len(block) > self.server.limits.header_bytes_max * _BLOCK_TO_FIELDS_MAX:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "headers are too large")
        if flags & frames.END_HEADERS:
            self._unfinished = None
            self._headers_complete(stream_id, first_flags, bytes(block))

    def _headers_complete(self, stream_id: int, flags: int, block: bytes) -> None:
        # Whatever becomes of it, it must be decoded: the next block builds on it.
        if self._last_taken_id is not None and stream_id > self._last_taken_id:
            self._headers.decode(block)
            return  # the peer knows that nothing was done with it
        if stream_id <= self._last_id:
            self._trailers(stream_id, flags, self._headers.decode(block))
            return
        self._last_id = stream_id
        request = self._headers.request(block)
        server = self.server
        if len(self.calls) >= server.limits.streams_max:
            raise StreamBroken(ErrorCode.REFUSED_STREAM)
        try:
            call = call_of(self, stream_id, request)
        except CallRefused as refused:
            call = Call(self, stream_id, server.nothing, ())
            self._open(call)
            call.is_half_closed = bool(flags & frames.END_STREAM)
            call.refuse(refused.code, refused.why)
            return
        self._open(call)
        call.begin()
        if flags & frames.END_STREAM:
            self._received(call, b"", ends=True)

    def _open(self, call: Call) -> None:
        self.calls[call.stream_id] = call
        self.server.calls += 1

    def _trailers(self, stream_id: int, flags: int, fields: Sequence[Field] | None) -> None:
        call = self.calls.get(stream_id)
        if call is None:
            if stream_id in self._cut_short:
                return
            raise ConnectionBroken(ErrorCode.STREAM_CLOSED, f"stream {stream_id} has ended")
        if call.is_half_closed:
            raise StreamBroken(ErrorCode.STREAM_CLOSED)
        if not flags & frames.END_STREAM:
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
        check_trailers(fields or ())
        if not call.is_ended:
            self._received(call, b"", ends=True)

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "more data than allowed")
        limits = self.server.limits
        if self._receive_window * 2 < limits.connection_window_bytes:
            more = limits.connection_window_bytes - self._receive_window
            self._receive_window += more
            self._write(frames.window_update(0, more))
        data = frames.unpadded(payload, flags) if flags & frames.PADDED else payload
        call = self.calls.get(stream_id)
        if call is None:
            if stream_id == 0 or stream_id > self._last_id:
                self._check_taken(stream_id)
            elif stream_id not in self._cut_short:
                raise StreamBroken(ErrorCode.STREAM_CLOSED)
            return
        ends = bool(flags & frames.END_STREAM)
        if call.is_ended:
            call.is_half_closed |= ends
            return
        call.used_bytes += size
        if call.used_bytes > limits.stream_window_bytes:
            raise StreamBroken(ErrorCode.FLOW_CONTROL_ERROR)
        if size != len(data):
            call.give_back(size - len(data))
        if not data and not ends:
            self._idle()
        else:
            self._received(call, data, ends=ends)

    def _received(self, call: Call, data: bytes, *, ends: bool) -> None:
        if call.content_bytes is not None:
            call.content_bytes -= len(data)
            if call.content_bytes < 0 or (ends and call.content_bytes):
                raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
        call.received(data, ends=ends)

    def _check_taken(self, stream_id: int) -> None:
        """Frames of streams that came too late are ignored; of those that never came they break
        the connection."""
        if stream_id == 0 or self._last_taken_id is None:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} is not open")

    # Everything else that comes in.

    def _idle_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        self._idle()
        if kind == frames.WINDOW_UPDATE:
            self._window_update(stream_id, payload)
        elif kind == frames.RST_STREAM:
            self._rst_stream(stream_id, payload)
        elif kind == frames.PRIORITY:
            self._priority(stream_id, payload)
        elif kind in (frames.SETTINGS, frames.PING, frames.GOAWAY):
            if stream_id != 0:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"kind {kind} on a stream")
            if kind == frames.SETTINGS:
                self._settings(flags, payload)
            elif kind == frames.PING:
                self._ping(flags, payload)
        elif kind in (frames.CONTINUATION, frames.PUSH_PROMISE):
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"kind {kind} is not for servers")

    def _settings(self, flags: int, payload: bytes) -> None:
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "settings of an odd size")
        if flags & frames.ACK:
            return
        values = frames.settings_of(payload)
        if values.get(frames.ENABLE_PUSH, 0) > 1:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")
        self._idle(len(self.calls) // _STREAMS_PER_IDLE_FRAME)
        self.answers.settings(values)

    def _ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "a ping of an odd size")
        if not flags & frames.ACK:
            self._write(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif payload == _DRAIN_PING and self._draining_since_s is not None:
            self._take_no_more()

    def _window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "a window update of an odd size")
        more = frames.number_of(payload)
        call = self.calls.get(stream_id)
        if stream_id == 0:
            if not more:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a window that does not grow")
            self.answers.window_grows(more)
        elif call is not None:
            if not more:
                raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
            self.answers.window_of_call_grows(call, more)
        elif stream_id > self._last_id:
            self._check_taken(stream_id)

    def _rst_stream(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "a reset of an odd size")
        if stream_id == 0 or stream_id > self._last_id:
            self._check_taken(stream_id)
        self._drop(stream_id)

    def _priority(self, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a priority of no stream")
        if len(payload) != 5:
            raise StreamBroken(ErrorCode.FRAME_SIZE_ERROR)
        if frames.number_of(payload) == stream_id:
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)

    def _idle(self, cost: int = 1) -> None:
        self._idle_frames += cost
        if self._is_flood(self._idle_frames, self.server.limits.idle_frames_max):
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "too many frames without a call")

    def _is_flood(self, seen: int, limit: int) -> bool:
        """Whether that is too much since the last look, even if we were late with it."""
        if seen <= limit:
            return False
        return seen > limit * (self.loop.time() - self._looked_s) / LOOK_EVERY_S

    # Calls end.

    def forget(self, call: Call) -> None:
        del self.calls[call.stream_id]
        call.forgotten()
        if self._last_taken_id is not None and not self.calls:
            self.close()

    def cut_off(self, stream_id: int, code: ErrorCode) -> None:
        """The peer need not send the rest of it."""
        self._write(frames.rst_stream(stream_id, code))
        if len(self._cut_short) >= self.server.limits.streams_max:
            self._cut_short.clear()  # long ago: what was under way has arrived
        self._cut_short.add(stream_id)

    def _reset(self, stream_id: int, code: ErrorCode) -> None:
        self.cut_off(stream_id, code)
        self._drop(stream_id)

    def _drop(self, stream_id: int) -> None:
        call = self.calls.get(stream_id)
        if call is None:
            return
        call.gone()
        self.forget(call)
        # Callers give up calls, but not thousands that they have made only just now.
        self._resets += stream_id > self._looked_id
        if self._is_flood(self._resets, self.server.limits.resets_max):
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "too many calls are given up")

    def _drop_calls(self) -> None:
        for call in list(self.calls.values()):
            call.gone()
            self.forget(call)

    # The end.

    def drain(self, by_s: float) -> None:
        """Asks the peer to go elsewhere with new calls; ends when those under way have, or then."""
        self._drained_by_s = min(self._drained_by_s, by_s)
        if self._is_closed or self._draining_since_s is not None:
            return
        self._draining_since_s = self.loop.time()
        # In two steps, so that calls which are on their way here are still taken.
        self._write(frames.goaway(frames.STREAM_ID_MAX, ErrorCode.NO_ERROR))
        self._write(frames.frame(frames.PING, 0, 0, _DRAIN_PING))

    def _take_no_more(self) -> None:
        if self._is_closed or self._last_taken_id is not None:
            return
        self._last_taken_id = self._last_id
        self._write(frames.goaway(self._last_id, ErrorCode.NO_ERROR))
        if not self.calls:
            self.close()

    def close(self) -> None:
        """What was written is still sent, if the peer takes it in time."""
        if not self._is_closed:
            self._is_closed = True
            self._closed_s = self.loop.time()
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:  # not with TLS
                self._transport.close()

    def abort(self) -> None:
        self._is_closed = True
        self._drop_calls()
        self._transport.abort()

    def look(self, now_s: float) -> None:
        """Every now and then: what is overdue?"""
        self._looked_s, self._looked_id = now_s, self._last_id
        self._resets = self._idle_frames = 0
        limits = self.server.limits
        is_silent = not self._is_open and now_s > self._made_s + limits.handshake_s_max
        is_unread = now_s > min(self._full_since_s, self._closed_s) + limits.unread_s_max
        if is_silent or is_unread or now_s > self._drained_by_s:
            why = "silent" if is_silent else "does not read" if is_unread else "did not end in time"
            log.info("a connection is cut", action="connection_cut", peer=self.peer, why=why)
            self.abort()
            return
        if now_s > self._closed_s + _LINGER_S:
            self._transport.close()
        for call in list(self.calls.values()):
            if call.is_ended:
                if call.is_stuck(now_s, limits.unread_s_max):
                    self._reset(call.stream_id, ErrorCode.CANCEL)
            elif call.deadline_s <= now_s:
                call.expire()
        if self._draining_since_s is None:
            if now_s > self.ends_s:
                self.drain(now_s + limits.grace_s)
        elif now_s > self._draining_since_s + _PING_ANSWERED_S:
            self._take_no_more()

    def _break(self, broken: ConnectionBroken) -> None:
        log.info(
            "a connection broke the protocol",
            action="connection_broken",
            peer=self.peer,
            why=broken.why,
        )
        if self._is_open:
            self._write(frames.goaway(self._last_id, broken.code, broken.why))
        self._drop_calls()
        self.close()
