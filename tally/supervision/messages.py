"""What a supervisor and its processes tell each other, over one socket per process.

The socket is also the life line: the kernel closes it with either end, so a process learns of the
end of its supervisor, however that came. First comes the task, then messages both ways, each with
its length before it.
"""

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from socket import socket

import msgspec

from counter.telemetry import LogFormat
from tally.config import Config

# Far more than the metrics of a process: what is longer is a mistake of ours.
BYTES_MAX = 64 * 1024 * 1024
BEAT_S = 1.0
LENGTH = struct.Struct(">I")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a process is to do. The config travels along: the file may have changed meanwhile."""

    number: int  # 1 to N
    config: Config
    listen: str
    log_format: LogFormat
    bind_first: bool  # or others answer until it is ready


class Scrape(msgspec.Struct, frozen=True, tag=True):
    request: int


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Finish what was accepted, and end. The end of the life line means the same."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    details: tuple[str, ...]  # what it runs on, for the greeting


class Serving(msgspec.Struct, frozen=True, tag=True):
    """Said at each change, and every BEAT_S anyway: one that falls silent hangs."""

    problem: str | None  # why it does not serve; None: it does


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It cannot start as configured, and ends."""

    message: str


class Sample(msgspec.Struct, frozen=True, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric as Prometheus has it."""

    name: str
    documentation: str
    type: str
    unit: str
    samples: list[Sample]


class Scraped(msgspec.Struct, frozen=True, tag=True):
    request: int
    families: list[Family]


ToChild = Scrape | Stop
FromChild = Ready | Serving | Refused | Scraped

to_child = msgspec.msgpack.Decoder(ToChild)
from_child = msgspec.msgpack.Decoder(FromChild)


def framed(body: bytes) -> bytes:
    assert len(body) <= BYTES_MAX, len(body)
    return LENGTH.pack(len(body)) + body


def encode(message: ToChild | FromChild) -> bytes:
    return framed(msgspec.msgpack.encode(message))


def encode_task(task: Task) -> bytes:
    return framed(pickle.dumps(task))


def decode_task(body: bytes) -> Task:
    """Only from one's own supervisor, over the life line."""
    task = pickle.loads(body)
    assert isinstance(task, Task)
    return task


def frames(line: socket) -> Iterator[bytes]:
    """Until the other end is closed or gone."""
    while (header := _exactly(line, LENGTH.size)) is not None:
        body = _exactly(line, LENGTH.unpack(header)[0])
        if body is None:
            return
        yield body


def _exactly(line: socket, length: int) -> bytes | None:
    parts: list[bytes] = []
    while length:
        try:
            part = line.recv(min(length, 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
