"""A client that speaks in frames: it can say whatever a peer may say, and what none should."""

import asyncio
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import hpack

from counter.rpc.http2 import frames

WITHIN_S = 30.0
ANY_WINDOW = 2**31 - 1
OF_STREAMS = (frames.HEADERS, frames.CONTINUATION, frames.DATA, frames.RST_STREAM)
_HEADER = struct.Struct(">HBBBI")


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def ends(self) -> bool:
        return self.kind in (frames.DATA, frames.HEADERS) and bool(self.flags & frames.END_STREAM)


@dataclass
class Answer:
    """What came on one stream, until it ended."""

    headers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    data_frames: int = 0
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None

    @property
    def status(self) -> int:
        return int((self.trailers or self.headers)["grpc-status"])

    @property
    def messages(self) -> list[bytes]:
        found, rest = [], self.data
        while rest:
            end = 5 + int.from_bytes(rest[1:5])
            assert rest[0] == 0
            assert len(rest) >= end
            found.append(rest[5:end])
            rest = rest[end:]
        return found


def message(body: bytes, *, flag: int = 0) -> bytes:
    return bytes((flag,)) + len(body).to_bytes(4) + body


def settings(**values: int) -> bytes:
    return frames.settings({getattr(frames, name): value for name, value in values.items()})


def request_fields(
    path: str, more: Iterable[tuple[str, str]] = (), *, content_type: str = "application/grpc"
) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "here"),
        ("content-type", content_type),
        ("te", "trailers"),
        *more,
    ]


class FrameClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.seen: list[Frame] = []
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()

    @classmethod
    async def connect(cls, port: int, *, host: str = "127.0.0.1", **with_settings: int) -> Self:
        """With the greetings exchanged."""
        client = await cls.connect_silently(port, host=host)
        client.send(frames.PREFACE, settings(**with_settings))
        await client.take(frames.SETTINGS)
        await client.take(frames.SETTINGS)  # its word that it knows ours
        return client

    @classmethod
    async def connect_silently(cls, port: int, *, host: str = "127.0.0.1") -> Self:
        reader, writer = await asyncio.open_connection(host, port, limit=2**26)
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    # What it says.

    def send(self, *pieces: bytes) -> None:
        self._writer.write(b"".join(pieces))

    def headers(
        self,
        stream_id: int,
        path: str,
        more: Iterable[tuple[str, str]] = (),
        *,
        ends: bool = False,
        content_type: str = "application/grpc",
    ) -> bytes:
        block = self.encoder.encode(request_fields(path, more, content_type=content_type))
        flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
        return frames.frame(frames.HEADERS, flags, stream_id, block)

    @staticmethod
    def data(stream_id: int, data: bytes, *, ends: bool = False) -> bytes:
        flags = frames.END_STREAM if ends else 0
        return frames.frame(frames.DATA, flags, stream_id, data)

    def in_frames(self, stream_id: int, data: bytes) -> Iterator[bytes]:
        """As many as it needs; the last one ends the stream."""
        size = frames.FRAME_BYTES_DEFAULT
        for begin in range(0, len(data), size):
            piece = data[begin : begin + size]
            yield self.data(stream_id, piece, ends=begin + size >= len(data))

    def unary(
        self, stream_id: int, path: str, body: bytes, more: Iterable[tuple[str, str]] = ()
    ) -> bytes:
        """A whole call, of a message that fits into a frame."""
        return self.headers(stream_id, path, more) + self.data(stream_id, message(body), ends=True)

    # What it hears.

    async def take(self, kind: int, stream_id: int | None = None) -> Frame:
        """The next frame of the kind; what came before it is kept for others."""
        return await self._take(
            lambda frame: frame.kind == kind and stream_id in (None, frame.stream_id)
        )

    async def answer(self, stream_id: int) -> Answer:
        answer = Answer()
        block = b""
        while True:
            frame = await self._take(
                lambda each: each.stream_id == stream_id and each.kind in OF_STREAMS
            )
            if frame.kind == frames.RST_STREAM:
                answer.reset = int.from_bytes(frame.payload)
                return answer
            if frame.kind == frames.DATA:
                answer.data += frame.payload
                answer.data_frames += 1
            elif frame.kind in (frames.HEADERS, frames.CONTINUATION):
                block += frame.payload
                if frame.kind == frames.HEADERS:
                    ends = frame.ends
                if not frame.flags & frames.END_HEADERS:
                    continue
                fields = dict(self.decoder.decode(block))
                block = b""
                if answer.headers:
                    answer.trailers = fields
                else:
                    answer.headers = fields
                if ends:
                    return answer
            if frame.kind == frames.DATA and frame.ends:
                return answer

    async def _take(self, is_wanted: Callable[[Frame], bool]) -> Frame:
        for at, frame in enumerate(self.seen):
            if is_wanted(frame):
                return self.seen.pop(at)
        while (seen := await self._read()) is not None:
            if is_wanted(seen):
                return seen
            self.seen.append(seen)
        raise AssertionError(f"the connection is closed; not wanted were {self.seen}")

    async def has_heard(self) -> None:
        """When this returns, the server has acted on everything that was said before."""
        self.send(frames.frame(frames.PING, 0, 0, b"over-to?"))
        while (await self.take(frames.PING)).payload != b"over-to?":
            pass

    async def goodbye(self) -> tuple[int, int]:
        """Waits for the end of the connection: the last stream of GOAWAY, and its code."""
        said = (-1, -1)
        while (frame := await self._read()) is not None:
            if frame.kind == frames.GOAWAY:
                said = struct.unpack_from(">II", frame.payload)
        return said

    def stop_reading(self) -> None:
        """From now on, so that what the server says fills the sockets between us."""
        self._writer.transport.pause_reading()

    async def rest(self) -> Sequence[Frame]:
        """Everything until the connection ends."""
        while (frame := await self._read()) is not None:
            self.seen.append(frame)
        return self.seen

    async def _read(self) -> Frame | None:
        async with asyncio.timeout(WITHIN_S):
            try:
                header = await self._reader.readexactly(9)
                high, low, kind, flags, stream_id = _HEADER.unpack(header)
                payload = await self._reader.readexactly(high << 8 | low)
            except (asyncio.IncompleteReadError, ConnectionError):
                self._writer.close()
                return None
        return Frame(kind, flags, stream_id, payload)
