"""One client's connection: frames come in and are acted on, and answers go out.

Whatever a peer may do without end has a limit: streams at once, the size of frames, headers and
messages, what is kept of data, frames that cost and bring nothing, and how long answers may lie
unread. RFC 9113 says what breaks a connection and what a stream; the tests run `h2spec` against it.

The hot way is short on purpose. A unary call is a HEADERS and a DATA frame; its answer is one write
of three frames. The event loop sends what was written in one turn with one system call.
"""

import asyncio
import socket
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, cast

import grpc
import structlog

from counter.rpc.http2 import frames
from counter.rpc.http2.call import Call, StrayRequest
from counter.rpc.http2.frames import ConnectionBroken, ErrorCode, StreamBroken
from counter.rpc.http2.header_block import Field, HeaderDecoder, block_of, check_trailers
from counter.rpc.http2.messages import ENCODINGS, CallRefused, prefix

if TYPE_CHECKING:
    from counter.rpc.http2.server import Http2Server

log = structlog.get_logger()

_ANSWER = b"\x88" + block_of([(b"content-type", b"application/grpc")])
_ANSWER_ONLY = b"\x88" + block_of(
    [(b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"identity,deflate,gzip")]
)
_OK = block_of([(b"grpc-status", b"0")])
_ANSWER_FRAME = frames.frame(frames.HEADERS, frames.END_HEADERS, 0, _ANSWER)
_OK_FRAME = frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 0, _OK)
_NOT_GRPC = block_of([(b":status", b"415"), (b"content-type", b"text/plain")])
_EXPLANATION = b"This is a gRPC server. To look around: grpcurl -plaintext HOST:PORT list\n"
# Of grpc-timeout.
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT_DIGITS_MAX = 8
_LENGTH_DIGITS_MAX = 18
# A peer that vanished without a word: after so long without a sign of life the kernel lets go.
_SILENT_S_MAX, _PROBE_EVERY_S, _PROBES = 60, 10, 6
# Of those that we send, whatever the peer would take: others wait for their turn meanwhile.
_FRAME_BYTES_MAX = 64 * 1024
_DRAIN_PING = b"draining"
_PING_ANSWERED_S = 1.0


class Connection(asyncio.Protocol):
    def __init__(self, server: "Http2Server") -> None:
        limits = server.limits
        self.server = server
        self.loop = server.loop
        self.calls: dict[int, Call] = {}
        self.peer = ""
        self.is_full = False  # the peer does not take what is written
        self.full_since_s = 0.0
        self.made_s = 0.0
        self.ends_s = inf  # when it has reached its age
        self.draining_since_s: float | None = None  # set: it ends
        self.drained_by_s = inf  # at the latest
        self.is_open = False  # the peer said that it speaks HTTP/2
        self.receive_window_of_streams = limits.stream_window_bytes
        self.send_window_of_streams = frames.WINDOW_DEFAULT
        self._send_window = frames.WINDOW_DEFAULT
        self._receive_window = limits.connection_window_bytes
        self._frame_bytes_max = frames.FRAME_BYTES_DEFAULT
        self._headers = HeaderDecoder(limits.header_bytes_max)
        self._rest = b""  # of a frame that is not complete yet
        self._last_id = 0
        # Streams that we ended while the peer was still sending: what is under way is ignored.
        self._cut_short: set[int] = set()
        # Headers that go on in the next frame: stream, flags of the first frame, blocks.
        self._unfinished: tuple[int, int, bytearray] | None = None
        self._blocked: dict[int, Call] = {}  # with data that waits for room
        self._idle_frames = 0  # that brought nothing, and calls given up, since the last look
        self._resets = 0
        self._last_taken_id: int | None = None  # set: later streams are not ours any more
        self._is_closed = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._write = self._transport.write
        limits = self.server.limits
        if not self.server.joined(self):
            self._transport.abort()
            return
        self.made_s = self.loop.time()
        self._transport.set_write_buffer_limits(high=limits.unread_bytes_max)
        self.peer = _prepared(self._transport)
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
        for call in list(self.calls.values()):
            call.gone()
            call.forget()
        self.calls.clear()
        self._blocked.clear()
        self.server.left(self)

    def pause_writing(self) -> None:
        """The peer reads too slowly: it gets no new calls in, until it has caught up."""
        self.is_full = True
        self.full_since_s = self.loop.time()
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_full = False
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        for call in list(self.calls.values()):
            call.has_room()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        try:
            self._take(self._rest + data if self._rest else data)
        except ConnectionBroken as broken:
            self._break(broken)

    def _take(self, data: bytes) -> None:
        position = 0
        if not self.is_open:
            if not frames.PREFACE.startswith(data[: len(frames.PREFACE)]):
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
            if len(data) < len(frames.PREFACE) + frames.HEADER_BYTES:
                self._rest = data
                return
            position = len(frames.PREFACE)
            if data[position + 3] != frames.SETTINGS:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "settings come first")
            self.is_open = True
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
        if self._unfinished is not None:
            self._continuation(kind, flags, stream_id, payload)
            return
        try:
            if kind == frames.DATA:
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
        block += payload
        if len(block) > self.server.limits.header_bytes_max:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "headers are too large")
        if not payload:
            self._idle()
        if flags & frames.END_HEADERS:
            self._unfinished = None
            try:
                self._headers_complete(stream_id, first_flags, bytes(block))
            except StreamBroken as broken:
                self._reset(stream_id, broken.code)

    def _headers_complete(self, stream_id: int, flags: int, block: bytes) -> None:
        fields = self._headers.decode(block)  # always: the next block builds on it
        if self._last_taken_id is not None and stream_id > self._last_taken_id:
            return  # the peer knows that nothing was done with it
        if stream_id <= self._last_id:
            self._trailers(stream_id, flags, fields)
            return
        self._last_id = stream_id
        if fields is None:
            self._refuse_at_once(
                stream_id, flags, grpc.StatusCode.RESOURCE_EXHAUSTED, "the metadata is too large"
            )
            return
        self._headers.check_request(fields)
        server = self.server
        if len(self.calls) >= server.limits.streams_max:
            self._reset(stream_id, ErrorCode.REFUSED_STREAM)
            return
        call = self._call(stream_id, flags, fields, dict(fields))
        if call is not None:
            self.calls[stream_id] = call
            call.begin()
            if flags & frames.END_STREAM:
                self._received(call, b"", ends=True)

    def _call(
        self, stream_id: int, flags: int, fields: list[Field], headers: dict[bytes, bytes]
    ) -> Call | None:
        """None if it is refused already."""
        server = self.server
        path = headers[b":path"]
        if headers[b":method"] != b"POST" or not headers.get(b"content-type", b"").startswith(
            b"application/grpc"
        ):
            if not path:
                raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
            call: Call = StrayRequest(self, stream_id, server.nothing, fields, b"")
            call.content_bytes = _content_bytes(headers)
            return call
        method = server.method(path)
        encoding = headers.get(b"grpc-encoding", b"identity")
        if method is None or encoding not in ENCODINGS:
            what = path if method is None else b"grpc-encoding " + encoding
            why = f"{what.decode(errors='replace')} is not known here"
            self._refuse_at_once(stream_id, flags, grpc.StatusCode.UNIMPLEMENTED, why)
            return None
        if server.calls >= server.limits.calls_max:
            why = f"{server.calls} calls are under way, which is the limit: call again later"
            self._refuse_at_once(stream_id, flags, grpc.StatusCode.RESOURCE_EXHAUSTED, why)
            return None
        call = Call(self, stream_id, method, fields, encoding)
        if b"grpc-timeout" in headers:
            call.deadline_s = self.loop.time() + _seconds(headers[b"grpc-timeout"])
        if b"content-length" in headers:
            call.content_bytes = _content_bytes(headers)
        return call

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
        self._received(call, b"", ends=True)

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "more data than allowed")
        if self._receive_window * 2 < self.server.limits.connection_window_bytes:
            more = self.server.limits.connection_window_bytes - self._receive_window
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
        if call.is_ended:
            return
        call.receive_window -= size
        if call.receive_window < 0:
            raise StreamBroken(ErrorCode.FLOW_CONTROL_ERROR)
        if not data and not flags & frames.END_STREAM:
            self._idle()
            return
        call.owed_bytes += size - len(data)
        ends = bool(flags & frames.END_STREAM)
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

    def _received(self, call: Call, data: bytes, *, ends: bool) -> None:
        try:
            call.received(data, ends=ends)
        except CallRefused as refused:
            call.refuse(refused.code, refused.why)

    # Everything else that comes in.

    def _idle(self) -> None:
        self._idle_frames += 1
        if self._idle_frames > self.server.limits.idle_frames_max:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "too many frames without a call")

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
        for setting, value in frames.settings_of(payload):
            if setting == frames.INITIAL_WINDOW_SIZE:
                self._resize_windows(value)
            elif setting == frames.MAX_FRAME_SIZE:
                if not frames.FRAME_BYTES_DEFAULT <= value <= frames.FRAME_BYTES_LIMIT:
                    raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
                self._frame_bytes_max = min(value, _FRAME_BYTES_MAX)
            elif setting == frames.ENABLE_PUSH and value > 1:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH of {value}")
        self._write(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))
        self._send_blocked()

    def _resize_windows(self, size: int) -> None:
        if size > frames.WINDOW_MAX:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {size}")
        more = size - self.send_window_of_streams
        self.send_window_of_streams = size
        for call in self.calls.values():
            try:
                call.window_grows(more)
            except StreamBroken as broken:
                raise ConnectionBroken(broken.code, "windows grow too large") from None

    def _ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "a ping of an odd size")
        if not flags & frames.ACK:
            self._write(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif payload == _DRAIN_PING and self.draining_since_s is not None:
            self._take_no_more()

    def _window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "a window update of an odd size")
        more = frames.number_of(payload)
        if stream_id == 0:
            self._send_window += more
            if not more or self._send_window > frames.WINDOW_MAX:
                code = ErrorCode.FLOW_CONTROL_ERROR if more else ErrorCode.PROTOCOL_ERROR
                raise ConnectionBroken(code, f"a window that grows by {more}")
        elif (call := self.calls.get(stream_id)) is not None:
            if not more:
                raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
            call.window_grows(more)
        else:
            if stream_id > self._last_id:
                self._check_taken(stream_id)
            return
        if self._blocked:
            self._send_blocked()

    def _rst_stream(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(ErrorCode.FRAME_SIZE_ERROR, "a reset of an odd size")
        if stream_id == 0 or stream_id > self._last_id:
            self._check_taken(stream_id)
        call = self.calls.get(stream_id)
        if call is not None:
            # Callers give up calls, but not thousands within a moment.
            self._resets += 1
            if self._resets > self.server.limits.resets_max:
                raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "too many calls are given up")
            call.gone()
            self._forget(call)

    def _priority(self, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a priority of no stream")
        if len(payload) != 5:
            raise StreamBroken(ErrorCode.FRAME_SIZE_ERROR)
        if frames.number_of(payload) == stream_id:
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)

    # Answers go out.

    def reply(self, call: Call, body: bytes) -> None:
        """A whole answer that went well: headers, one message, OK."""
        size = len(body) + 5
        stream_id = call.stream_id
        if size <= self._send_window and size <= call.send_window and size <= self._frame_bytes_max:
            self._send_window -= size
            stream = stream_id.to_bytes(4)
            self._write(
                b"".join(
                    (
                        _ANSWER_FRAME[:5],
                        stream,
                        _ANSWER,
                        frames.frame_header(size, frames.DATA, 0, stream_id),
                        prefix(size - 5),
                        body,
                        _OK_FRAME[:5],
                        stream,
                        _OK,
                    )
                )
            )
            self._forget(call)
            return
        self.send_headers(call, b"")
        self.send_data(call, prefix(len(body)) + body)
        call.has_headers = True
        self.finish(call, _OK)

    def send_headers(self, call: Call, metadata: bytes) -> None:
        if not self._is_closed:
            self._write(
                frames.frame(frames.HEADERS, frames.END_HEADERS, call.stream_id, _ANSWER + metadata)
            )

    def send_data(self, call: Call, data: bytes) -> None:
        if self._is_closed:
            return
        if call.unsent is None:
            call.unsent = bytearray()
        call.unsent += data
        self._blocked[call.stream_id] = call
        self._send_blocked()

    def finish(self, call: Call, trailers: bytes) -> None:
        """After what is not sent yet of its data."""
        if self._is_closed:
            return
        if not call.has_headers:
            trailers = _ANSWER_ONLY + trailers
        call.ending = trailers
        if not call.unsent:
            self._send_ending(call)

    def _send_ending(self, call: Call) -> None:
        assert call.ending is not None
        flags = frames.END_HEADERS | frames.END_STREAM
        if call.ending:
            block = _frames_of_block(call.stream_id, flags, call.ending, self._frame_bytes_max)
            self._write(block)
        else:
            self._write(frames.frame(frames.DATA, frames.END_STREAM, call.stream_id, b""))
        if not call.is_half_closed:
            # The caller need not send the rest.
            self._cut_off(call.stream_id, ErrorCode.NO_ERROR)
        self._forget(call)

    def _send_blocked(self) -> None:
        """Sends what waits, as far as windows allow: a frame of each call in turn."""
        while self._blocked and self._send_window > 0:
            moved = False
            for stream_id, call in list(self._blocked.items()):
                unsent = call.unsent
                if unsent:
                    size = min(
                        len(unsent), self._frame_bytes_max, self._send_window, call.send_window
                    )
                    if size <= 0:
                        continue
                    moved = True
                    self._send_window -= size
                    call.send_window -= size
                    self._write(frames.frame(frames.DATA, 0, stream_id, bytes(unsent[:size])))
                    del unsent[:size]
                if not unsent:
                    self._blocked.pop(stream_id, None)
                    call.has_room()
                    if call.ending is not None:
                        self._send_ending(call)
            if not moved:
                return

    def give_back(self, call: Call, more: int) -> None:
        if not self._is_closed:
            self._write(frames.window_update(call.stream_id, more))

    def _refuse_at_once(self, stream_id: int, flags: int, code: grpc.StatusCode, why: str) -> None:
        """Ends a call that has no handler."""
        call = Call(self, stream_id, self.server.nothing, (), b"identity")
        call.is_half_closed = bool(flags & frames.END_STREAM)
        self.calls[stream_id] = call
        call.end(code, why)

    def explain(self, call: Call) -> None:
        self._write(frames.frame(frames.HEADERS, frames.END_HEADERS, call.stream_id, _NOT_GRPC))
        call.ending = b""
        self.send_data(call, _EXPLANATION)

    def _reset(self, stream_id: int, code: ErrorCode) -> None:
        call = self.calls.get(stream_id)
        if call is not None:
            call.gone()
            self._forget(call)
        self._cut_off(stream_id, code)

    def _cut_off(self, stream_id: int, code: ErrorCode) -> None:
        self._write(frames.rst_stream(stream_id, code))
        if len(self._cut_short) >= self.server.limits.streams_max:
            self._cut_short.clear()  # long ago: what was under way has arrived
        self._cut_short.add(stream_id)

    def _forget(self, call: Call) -> None:
        del self.calls[call.stream_id]
        self._blocked.pop(call.stream_id, None)
        if call.received_bytes:
            call.forget()
        if self._last_taken_id is not None and not self.calls:
            self.close()

    # The end.

    def drain(self, by_s: float) -> None:
        """Asks the peer to go elsewhere with new calls; ends when those under way have, or then."""
        if self._is_closed or self.draining_since_s is not None:
            return
        self.draining_since_s, self.drained_by_s = self.loop.time(), by_s
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
        """What was written is still sent."""
        if not self._is_closed:
            self._is_closed = True
            self._transport.close()

    def abort(self) -> None:
        self._is_closed = True
        self._transport.abort()

    def look(self, now_s: float) -> None:
        """Every now and then: what is overdue?"""
        self._resets = self._idle_frames = 0
        for call in list(self.calls.values()):
            if call.deadline_s <= now_s and not call.is_ended:
                call.expire()
        limits = self.server.limits
        is_silent = not self.is_open and now_s > self.made_s + limits.handshake_s_max
        is_unread = self.is_full and now_s > self.full_since_s + limits.unread_s_max
        if is_silent or is_unread or now_s > self.drained_by_s:
            self.abort()
        elif self.draining_since_s is None:
            if now_s > self.ends_s:
                self.drain(now_s + limits.grace_s)
        elif now_s > self.draining_since_s + _PING_ANSWERED_S:
            self._take_no_more()

    def _break(self, broken: ConnectionBroken) -> None:
        log.info("a connection broke the protocol", action="connection_broken", why=broken.why)
        if self.is_open:
            self._write(frames.goaway(self._last_id, broken.code, broken.why))
        for call in list(self.calls.values()):
            call.gone()
        self.close()


def _frames_of_block(stream_id: int, flags: int, block: bytes, frame_bytes_max: int) -> bytes:
    """A HEADERS frame, and as many more as the block needs."""
    if len(block) <= frame_bytes_max:
        return frames.frame(frames.HEADERS, flags, stream_id, block)
    pieces = [
        block[start : start + frame_bytes_max] for start in range(0, len(block), frame_bytes_max)
    ]
    first, *middle, last = pieces
    return b"".join(
        (
            frames.frame(frames.HEADERS, flags & ~frames.END_HEADERS, stream_id, first),
            *(frames.frame(frames.CONTINUATION, 0, stream_id, each) for each in middle),
            frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream_id, last),
        )
    )


def _seconds(timeout: bytes) -> float:
    """Of grpc-timeout: up to eight digits and a unit. What cannot be read is no time at all."""
    digits, unit = timeout[:-1], timeout[-1:]
    if not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS_MAX or unit not in _UNITS_S:
        return 0.0
    return int(digits) * _UNITS_S[unit]


def _content_bytes(headers: dict[bytes, bytes]) -> int | None:
    said = headers.get(b"content-length", b"")
    return int(said) if said.isdigit() and len(said) <= _LENGTH_DIGITS_MAX else None


def _prepared(transport: asyncio.Transport) -> str:
    """Sets the socket up; the peer's name, as gRPC has it."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _SILENT_S_MAX),
        ("TCP_KEEPINTVL", _PROBE_EVERY_S),
        ("TCP_KEEPCNT", _PROBES),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    address = transport.get_extra_info("peername")
    if not address:
        return "unknown"
    host, port = address[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
