import gzip
import zlib
from itertools import count

import grpc
import pytest

from counter.rpc.http2.messages import CallRefused, MessageReader
from tests.unit.counter.http2.frame_client import message

MAX = 1_000


def reader(encoding: bytes = b"identity") -> MessageReader:
    return MessageReader(encoding, MAX)


def test_messages_come_out_whole_however_they_come_in() -> None:
    wire = message(b"one") + message(b"") + message(b"three")
    assert reader().feed(wire) == [(b"one", 8), (b"", 5), (b"three", 10)]
    one_by_one, seen = reader(), []
    for at in range(len(wire)):
        seen += one_by_one.feed(wire[at : at + 1])
    assert seen == [(b"one", 8), (b"", 5), (b"three", 10)]
    assert one_by_one.kept_bytes == 0


def test_what_is_not_complete_is_kept() -> None:
    reading = reader()
    assert reading.feed(message(b"one") + message(b"two")[:-1]) == [(b"one", 8)]
    assert reading.kept_bytes == 7
    assert reading.feed(b"o") == [(b"two", 8)]


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_messages_up_to_the_largest(compress: object) -> None:
    for body in (b"", b"a", bytes(MAX)):
        packed = compress(body)  # type: ignore[operator]
        wire = message(packed, flag=1)
        assert reader(b"gzip").feed(wire) == [(body, len(wire))]
    # Not every message of such a call has to be.
    assert reader(b"gzip").feed(message(b"plain")) == [(b"plain", 10)]


@pytest.mark.parametrize(
    ("encoding", "wire", "code"),
    [
        (b"identity", message(bytes(MAX + 1)), grpc.StatusCode.RESOURCE_EXHAUSTED),
        # What is said to come is enough.
        (b"identity", message(bytes(MAX + 1))[:5], grpc.StatusCode.RESOURCE_EXHAUSTED),
        (
            b"gzip",
            message(gzip.compress(bytes(MAX + 1)), flag=1),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        ),
        (
            b"gzip",
            message(gzip.compress(bytes(10**7)), flag=1)[:5],
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        ),
        (b"identity", message(gzip.compress(b"a"), flag=1), grpc.StatusCode.INTERNAL),
        (b"gzip", message(b"a", flag=2), grpc.StatusCode.INTERNAL),
        (b"gzip", message(b"no gzip", flag=1), grpc.StatusCode.INTERNAL),
        (b"gzip", message(b"", flag=1), grpc.StatusCode.INTERNAL),
        (b"gzip", message(gzip.compress(b"cut")[:-1], flag=1), grpc.StatusCode.INTERNAL),
        (b"gzip", message(gzip.compress(b"a") + b"more", flag=1), grpc.StatusCode.INTERNAL),
        (b"deflate", message(zlib.compress(b"cut")[:-1], flag=1), grpc.StatusCode.INTERNAL),
    ],
    ids=map(str, count()),
)
def test_messages_that_are_refused(encoding: bytes, wire: bytes, code: grpc.StatusCode) -> None:
    with pytest.raises(CallRefused) as raised:
        reader(encoding).feed(wire)
    assert raised.value.code is code


def test_a_bomb_is_not_unpacked() -> None:
    """Of 60 MB in 60 KB no more comes out than is needed to see that it is too much."""
    reading = MessageReader(b"gzip", 2**20)
    packed = gzip.compress(bytes(60 * 2**20))
    assert len(packed) < 2**16
    with pytest.raises(CallRefused, match="more, decompressed"):
        reading.feed(message(packed, flag=1))
