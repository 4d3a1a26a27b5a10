"""A connection, whatever comes in, and in whatever pieces: what goes out is HTTP/2, what it counts
comes back to nothing, and nothing is raised where nobody would take it."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import hpack
from hypothesis import given, settings
from hypothesis import strategies as st

from counter.rpc.http2 import frames
from counter.rpc.http2.connection import Connection
from counter.rpc.http2.server import Http2Server, Limits
from tests.unit.counter.http2.frame_client import message, request_fields
from tests.unit.counter.http2.frame_client import settings as settings_frame
from tests.unit.counter.http2.services import Handlers

HELLO = frames.PREFACE + settings_frame()
STREAMS = range(1, 12, 2)
METHODS = ("Echo", "Wait", "Repeat", "Sum", "Chat", "Talk", "Nothing")
LIMITS = Limits(
    message_bytes_max=300,
    header_bytes_max=500,
    stream_window_bytes=1_000,
    connection_window_bytes=100_000,
    calls_max=8,
    streams_max=4,
    kept_bytes_max=2_000,
    idle_frames_max=50,
    resets_max=10,
    unread_s_max=5.0,
    grace_s=5.0,
)


class Wire(asyncio.Transport):
    """Stands for the socket: nothing is lost, and the peer reads at once."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.has_ended = False

    def write(self, data: Any) -> None:
        assert not self.has_ended
        self.said += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.has_ended = True

    abort = close

    def is_closing(self) -> bool:
        return self.has_ended

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else None

    def setsockopt(self, *_: Any) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Peer:
    """A connection without a network, and what was said on it."""

    def __init__(self, limits: Limits) -> None:
        self.server = Http2Server(limits)
        self.handlers = Handlers()
        self.server.add_generic_rpc_handlers((self.handlers.generic(),))
        self.wire = Wire()
        self.connection = Connection(self.server)
        self.connection.connection_made(self.wire)
        self.encoder = hpack.Encoder()
        # What it may send at the most, in all and by stream.
        self.room_of_new = frames.WINDOW_DEFAULT
        self.room: dict[int, int] = defaultdict(int, {0: frames.WINDOW_DEFAULT})

    def say_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == frames.WINDOW_UPDATE and len(payload) == 4:
            self.room[stream_id] += frames.number_of(payload)
        elif kind == frames.SETTINGS and len(payload) % 6 == 0:
            size = frames.settings_of(payload).get(frames.INITIAL_WINDOW_SIZE, 0)
            self.room_of_new = max(self.room_of_new, size)
        self.say(frames.frame(kind, flags, stream_id, payload))

    def say(self, data: bytes) -> None:
        if not self.wire.has_ended:
            self.connection.data_received(data)

    def lose(self) -> None:
        self.wire.has_ended = True
        self.connection.connection_lost(None)

    def heard(self) -> list[tuple[int, int, int, bytes]]:
        found, rest = [], self.wire.said
        while rest:
            high, low, kind, flags, stream_id = frames.unpack_header(rest)
            end = 9 + (high << 8 | low)
            assert len(rest) >= end
            found.append((kind, flags, stream_id, rest[9:end]))
            rest = rest[end:]
        return found


async def settle() -> None:
    """Lets handlers take all steps that they can."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


# Pieces.


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Whole calls, mixed with each other."""
    encoder, frames_of_calls = hpack.Encoder(), []
    for stream_id in STREAMS[: draw(st.integers(1, 4))]:
        method = draw(st.sampled_from(["Echo", "Repeat", "Sum", "Talk"]))
        bodies = [draw(st.binary(max_size=40))] if method == "Echo" else [b"3,40"]
        if method in ("Sum", "Talk"):
            bodies = draw(st.lists(st.binary(max_size=40), max_size=4))
        rest = b"".join(message(body) for body in bodies)
        sent = []
        while rest:
            size = draw(st.integers(1, len(rest)))
            flags, piece = 0, rest[:size]
            if draw(st.booleans()):
                padding = draw(st.integers(0, 9))
                flags, piece = frames.PADDED, bytes((padding,)) + piece + bytes(padding)
            sent.append(frames.frame(frames.DATA, flags, stream_id, piece))
            rest = rest[size:]
        sent.append(frames.frame(frames.DATA, frames.END_STREAM, stream_id, b""))
        block = encoder.encode(request_fields(f"/test.Test/{method}"))
        cut = draw(st.integers(0, len(block)))
        head = frames.frame(frames.HEADERS, 0, stream_id, block[:cut])
        head += frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream_id, block[cut:])
        frames_of_calls.append([head, *sent])
    said = b""
    # Streams begin in order. Otherwise their frames come in any.
    begun = 0
    while any(frames_of_calls):
        ready = [at for at in range(begun + 1) if at < len(frames_of_calls) and frames_of_calls[at]]
        at = draw(st.sampled_from(ready or [begun + 1]))
        begun = max(begun, at + 1)
        said += frames_of_calls[at].pop(0)
    return HELLO + said


def answers_of(peer: Peer) -> dict[int, list[tuple[int, bytes]]]:
    """By stream: kinds of frames, and what is in them, as one where data was cut."""
    answers: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for kind, _, stream_id, payload in peer.heard():
        if stream_id and kind != frames.WINDOW_UPDATE:
            frames_before = answers[stream_id]
            if kind == frames.DATA and frames_before and frames_before[-1][0] == kind:
                payload = frames_before.pop()[1] + payload
            frames_before.append((kind, payload))
    return answers


@settings(deadline=None)
@given(conversations(), st.data())
def test_in_whatever_pieces_it_comes(said: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(said)), max_size=20))
    borders = [0, *sorted(cuts), len(said)]
    pieces = [said[begin:end] for begin, end in pairwise(borders)]

    async def compare() -> None:
        whole, in_pieces = Peer(Limits()), Peer(Limits())
        whole.say(said)
        await settle()
        for piece in pieces:
            in_pieces.say(piece)
            await settle()
        expected = answers_of(whole)
        assert answers_of(in_pieces) == expected
        assert all(
            frames_of[-1][1].endswith(b"grpc-status\x010") for frames_of in expected.values()
        )
        for peer in (whole, in_pieces):
            assert (peer.server.calls, peer.server.kept_bytes) == (0, 0)
            assert not peer.wire.has_ended

    run(compare)


# Anything.

stream_ids = st.sampled_from([*STREAMS, *STREAMS, 0, 2, 99])
sizes = (st.integers(0, 300) | st.just(2**31 - 1)).map(lambda size: size.to_bytes(4))
Step = Callable[[Peer], Awaitable[None]]


def _headers(stream_id: int, method: str, more: list[tuple[str, str]], flags: int) -> Step:
    async def step(peer: Peer) -> None:
        block = peer.encoder.encode(request_fields(f"/test.Test/{method}", more))
        peer.say_frame(frames.HEADERS, flags, stream_id, block)

    return step


def _frame(kind: int, flags: int, stream_id: int, payload: bytes) -> Step:
    async def step(peer: Peer) -> None:
        peer.say_frame(kind, flags, stream_id, payload)

    return step


def _garbage(data: bytes) -> Step:
    async def step(peer: Peer) -> None:
        peer.say(data)

    return step


async def _go_on(peer: Peer) -> None:
    peer.handlers.may_go_on.set()


async def _rest(peer: Peer) -> None:
    await settle()


def _look(later_s: int) -> Step:
    async def step(peer: Peer) -> None:
        peer.connection.look(peer.server.loop.time() + later_s)

    return step


async def _pause(peer: Peer) -> None:
    if not peer.wire.has_ended:
        peer.connection.pause_writing()


async def _resume(peer: Peer) -> None:
    if not peer.wire.has_ended:
        peer.connection.resume_writing()


async def _drain(peer: Peer) -> None:
    peer.connection.drain(peer.server.loop.time() + 5)


more_fields = st.lists(
    st.sampled_from(
        [
            ("grpc-timeout", "5S"),
            ("grpc-timeout", "x"),
            ("grpc-encoding", "gzip"),
            ("content-length", "7"),
            ("long", "x" * 600),
            ("kept", "in the table"),
        ]
    ),
    max_size=2,
)
header_flags = st.sampled_from([4, 4, 4, 5, 0])
payloads = st.one_of(
    st.binary(max_size=50).map(message),
    st.lists(st.just(message(b"")), max_size=40).map(b"".join),
    st.sampled_from([b"3,40", b"9,100"]).map(message),
    st.binary(max_size=400),
    st.just(message(bytes(200))[:150]),
)
steps = st.one_of(
    st.builds(
        _headers, st.sampled_from(STREAMS), st.sampled_from(METHODS), more_fields, header_flags
    ),
    st.builds(_frame, st.just(frames.DATA), st.sampled_from([0, 0, 1, 8]), stream_ids, payloads),
    st.builds(_frame, st.just(frames.WINDOW_UPDATE), st.just(0), stream_ids, sizes),
    st.builds(_frame, st.just(frames.RST_STREAM), st.just(0), stream_ids, st.just(bytes(4))),
    st.builds(
        lambda size: _frame(frames.SETTINGS, 0, 0, b"\0\4" + size), sizes
    ),  # INITIAL_WINDOW_SIZE
    st.builds(_frame, st.integers(0, 11), st.integers(0, 63), stream_ids, st.binary(max_size=30)),
    st.builds(_garbage, st.binary(max_size=30)),
    st.builds(_look, st.integers(0, 7)),
    st.sampled_from([_go_on, _rest, _rest, _pause, _resume, _drain]),
)


def check_answers(peer: Peer) -> None:
    """Every stream: headers, data, an end, and then nothing but that the rest need not be sent. And
    no more data than there is room for."""
    ended: dict[int, int] = {}
    begun: set[int] = set()
    sent: dict[int, int] = defaultdict(int)
    continued = 0
    for kind, flags, stream_id, payload in peer.heard():
        assert len(payload) <= frames.FRAME_BYTES_DEFAULT
        assert continued in (0, stream_id), "a block was interrupted"
        if stream_id in ended:
            assert (ended[stream_id], kind) == (frames.HEADERS, frames.RST_STREAM) or kind == ended[
                stream_id
            ] == frames.RST_STREAM, f"kind {kind} after the end of {stream_id}"
        if kind == frames.DATA:
            assert stream_id in begun
            assert not continued
            sent[0] += len(payload)
            sent[stream_id] += len(payload)
        if kind in (frames.HEADERS, frames.CONTINUATION):
            begun.add(stream_id)
            continued = 0 if flags & frames.END_HEADERS else stream_id
        if kind == frames.RST_STREAM or (
            kind in (frames.DATA, frames.HEADERS) and flags & frames.END_STREAM
        ):
            ended[stream_id] = frames.RST_STREAM if kind == frames.RST_STREAM else frames.HEADERS
    assert continued == 0
    for stream_id, size in sent.items():
        assert size <= peer.room[stream_id] + (peer.room_of_new if stream_id else 0)


@settings(deadline=None, max_examples=300)
@given(st.lists(steps, max_size=40), st.booleans())
def test_anything_can_come_and_nothing_is_left_of_it(walk: list[Step], breaks: bool) -> None:
    async def scenario() -> None:
        peer = Peer(LIMITS)
        peer.say(HELLO)
        for step in walk:
            await step(peer)
            assert 0 <= peer.server.kept_bytes <= LIMITS.kept_bytes_max
            assert peer.server.calls >= len(peer.connection.calls)
        if not breaks:
            # Everybody gets the chance to finish, and all the room that there is.
            peer.handlers.may_go_on.set()
            await _resume(peer)
            await settle()
        peer.lose()
        await settle()
        assert (peer.server.calls, peer.server.kept_bytes) == (0, 0)
        assert peer.server.connections == 0
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        check_answers(peer)

    run(scenario)
