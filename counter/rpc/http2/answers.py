"""The way out of a connection: answers, as far as the windows and the peer's reading allow.

An answer that went well, and fits, is one write of three frames. What does not fit waits in its
call, and goes out a frame at a time, each call in its turn.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from counter.rpc.http2 import frames
from counter.rpc.http2.call import UNSENT_BYTES_MAX, Call
from counter.rpc.http2.frames import ConnectionBroken, ErrorCode, StreamBroken
from counter.rpc.http2.header_block import NO_TABLE, TABLE_BYTES_MAX, block_of
from counter.rpc.http2.messages import prefix

if TYPE_CHECKING:
    from counter.rpc.http2.connection import Connection

_ANSWER = b"\x88" + block_of([(b"content-type", b"application/grpc")])
_ANSWER_ONLY = b"\x88" + block_of(
    [(b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"identity,deflate,gzip")]
)
_OK = block_of([(b"grpc-status", b"0")])
_END_FLAGS = frames.END_HEADERS | frames.END_STREAM
# Frames without their streams.
_ANSWER_FRAME = frames.frame(frames.HEADERS, frames.END_HEADERS, 0, _ANSWER)[:5]
_OK_FRAME = frames.frame(frames.HEADERS, _END_FLAGS, 0, _OK)[:5]
_NOT_GRPC = block_of([(b":status", b"415"), (b"content-type", b"text/plain")])
_EXPLANATION = b"This is a gRPC server. To look around: grpcurl -plaintext HOST:PORT list\n"
# Of those that we send, whatever the peer would take: others wait for their turn meanwhile.
_FRAME_BYTES_MAX = 64 * 1024


class Answers:
    def __init__(self, connection: "Connection", write: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._write = write
        self._window = frames.WINDOW_DEFAULT
        self._window_of_streams = frames.WINDOW_DEFAULT
        self._frame_bytes_max = frames.FRAME_BYTES_DEFAULT
        # The same, unless something is in the way of sending whole answers at once.
        self._at_once_bytes_max = self._frame_bytes_max
        self._is_full = False  # the peer does not take what was written
        self._table_notice = b""  # to be said before the next block
        self._has_given_up_table = False
        # With data, and room for it in their own windows: they wait for the connection's.
        self._blocked: OrderedDict[int, Call] = OrderedDict()

    # What calls say.

    def reply(self, call: Call, body: bytes) -> None:
        """A whole answer that went well: headers, one message, OK."""
        size = len(body) + 5
        if (
            size <= self._window
            and size <= self._window_of_streams + call.window_change
            and size <= self._at_once_bytes_max
        ):
            call.is_ended = True
            self._window -= size
            stream_id = call.stream_id
            stream = stream_id.to_bytes(4)
            self._write(
                b"".join(
                    (
                        _ANSWER_FRAME,
                        stream,
                        _ANSWER,
                        frames.frame_header(size, frames.DATA, 0, stream_id),
                        prefix(size - 5),
                        body,
                        _OK_FRAME,
                        stream,
                        _OK,
                    )
                )
            )
            self._connection.forget(call)
            return
        self.send_message(call, body)
        call.is_ended = True
        self.finish(call, _OK)

    def send_headers(self, call: Call, metadata: bytes) -> None:
        call.has_headers = True
        self._send_block(call.stream_id, frames.END_HEADERS, _ANSWER + metadata)

    def send_message(self, call: Call, body: bytes) -> None:
        """Raises if so much waits to be sent already that it cannot be more."""
        if not call.has_headers:
            self.send_headers(call, b"")
        self._send_data(call, prefix(len(body)) + body)

    def finish(self, call: Call, trailers: bytes) -> None:
        """After what is not sent yet of its data."""
        self._end(call, trailers if call.has_headers else _ANSWER_ONLY + trailers)

    def explain(self, call: Call) -> None:
        self._send_block(call.stream_id, frames.END_HEADERS, _NOT_GRPC)
        self._send_data(call, _EXPLANATION)
        self._end(call, b"")

    def give_back(self, stream_id: int, more: int) -> None:
        self._write(frames.window_update(stream_id, more))

    def drop(self, call: Call) -> None:
        self._blocked.pop(call.stream_id, None)

    # What the peer says.

    def settings(self, values: dict[int, int]) -> None:
        if frames.INITIAL_WINDOW_SIZE in values:
            self._resize_windows(values[frames.INITIAL_WINDOW_SIZE])
        if frames.MAX_FRAME_SIZE in values:
            size = values[frames.MAX_FRAME_SIZE]
            if not frames.FRAME_BYTES_DEFAULT <= size <= frames.FRAME_BYTES_LIMIT:
                raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, f"frames of {size} bytes")
            self._frame_bytes_max = min(size, _FRAME_BYTES_MAX)
        table_bytes_max = values.get(frames.HEADER_TABLE_SIZE, TABLE_BYTES_MAX)
        if table_bytes_max < TABLE_BYTES_MAX and not self._has_given_up_table:
            # Then the next block has to say how much of it we use (RFC 9113, section 4.3.1).
            self._has_given_up_table = True
            self._table_notice = NO_TABLE
        self._write(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))
        self._look()
        self._send_blocked()

    def _resize_windows(self, size: int) -> None:
        if size > frames.WINDOW_MAX:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {size}")
        self._window_of_streams = size
        for call in self._connection.calls.values():
            if size + call.window_change > frames.WINDOW_MAX:
                raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, "windows grow too large")
            if call.unsent:
                self._blocked[call.stream_id] = call

    def window_grows(self, more: int) -> None:
        self._window += more
        if self._window > frames.WINDOW_MAX:
            raise ConnectionBroken(ErrorCode.FLOW_CONTROL_ERROR, f"a window that grows by {more}")
        self._send_blocked()

    def window_of_call_grows(self, call: Call, more: int) -> None:
        call.window_change += more
        if self._window_of_streams + call.window_change > frames.WINDOW_MAX:
            raise StreamBroken(ErrorCode.FLOW_CONTROL_ERROR)
        if call.unsent:
            self._blocked[call.stream_id] = call
            self._send_blocked()

    def pause(self) -> None:
        """The peer does not read."""
        self._is_full = True
        self._look()

    def resume(self) -> None:
        self._is_full = False
        self._look()
        self._send_blocked()

    # Sending.

    def _look(self) -> None:
        """What can whole answers be at once?"""
        is_free = not self._is_full and not self._table_notice
        self._at_once_bytes_max = self._frame_bytes_max if is_free else 0

    def _send_data(self, call: Call, data: bytes) -> None:
        size = len(data)
        room = min(self._window, self._window_of_streams + call.window_change)
        if size <= room and size <= self._at_once_bytes_max and not call.unsent:
            self._window -= size
            call.window_change -= size
            self._write(frames.frame(frames.DATA, 0, call.stream_id, data))
            return
        call.keep(size)
        if call.unsent is None:
            call.unsent = bytearray()
        call.unsent += data
        self._blocked[call.stream_id] = call
        self._send_blocked()

    def _send_blocked(self) -> None:
        blocked = self._blocked
        while blocked and self._window > 0 and not self._is_full:
            stream_id, call = blocked.popitem(last=False)
            if self._send_frame(call):
                blocked[stream_id] = call

    def _send_frame(self, call: Call) -> bool:
        """Whether more of the call could be sent, as far as its own window goes."""
        unsent = call.unsent
        assert unsent
        room = self._window_of_streams + call.window_change
        size = min(len(unsent), self._frame_bytes_max, self._window, room)
        if size <= 0:
            return False
        self._window -= size
        call.window_change -= size
        self._write(frames.frame(frames.DATA, 0, call.stream_id, bytes(unsent[:size])))
        del unsent[:size]
        call.keep(-size)
        if len(unsent) < UNSENT_BYTES_MAX:
            call.has_room()
        if unsent:
            return size < room
        if call.ending is not None:
            self._send_ending(call)
        return False

    def _end(self, call: Call, ending: bytes) -> None:
        call.ending = ending
        if not call.unsent:
            self._send_ending(call)

    def _send_ending(self, call: Call) -> None:
        if call.ending:
            self._send_block(call.stream_id, _END_FLAGS, call.ending)
        else:
            self._write(frames.frame(frames.DATA, frames.END_STREAM, call.stream_id, b""))
        if not call.is_half_closed:
            # The caller need not send the rest.
            self._connection.cut_off(call.stream_id, ErrorCode.NO_ERROR)
        self._connection.forget(call)

    def _send_block(self, stream_id: int, flags: int, block: bytes) -> None:
        """A HEADERS frame, and as many more as the block needs."""
        if self._table_notice:
            block, self._table_notice = self._table_notice + block, b""
            self._look()
        limit = self._frame_bytes_max
        first, rest = block[:limit], block[limit:]
        if not rest:
            self._write(frames.frame(frames.HEADERS, flags, stream_id, first))
            return
        self._write(frames.frame(frames.HEADERS, flags & ~frames.END_HEADERS, stream_id, first))
        while rest:
            piece, rest = rest[:limit], rest[limit:]
            end = 0 if rest else frames.END_HEADERS
            self._write(frames.frame(frames.CONTINUATION, end, stream_id, piece))
