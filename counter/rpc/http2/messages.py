"""Messages of gRPC as they lie in the data of a stream: a flag, the length, the message."""

import struct
import zlib

import grpc

PREFIX_BYTES = 5
_prefix = struct.Struct(">BI")
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
# What we can read. Our own messages are never compressed.
ENCODINGS = {b"identity", b"gzip", b"deflate"}


class CallRefused(Exception):
    """The call ends with this status, before or instead of its handler's."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


def prefix(size: int) -> bytes:
    return _prefix.pack(0, size)


class MessageReader:
    """The messages of one call, whatever frames they came in."""

    def __init__(self, encoding: bytes, message_bytes_max: int) -> None:
        self._encoding = encoding
        self._message_bytes_max = message_bytes_max
        self._received = bytearray()

    @property
    def kept_bytes(self) -> int:
        """Of a message that is not complete yet."""
        return len(self._received)

    def feed(self, data: bytes) -> list[tuple[bytes, int]]:
        """The messages that are complete now, each with what it took on the wire."""
        received, messages = self._received, []
        received += data
        while len(received) >= PREFIX_BYTES:
            flag, size = _prefix.unpack_from(received)
            self._check(flag, size)
            end = PREFIX_BYTES + size
            if len(received) < end:
                break
            message = bytes(memoryview(received)[PREFIX_BYTES:end])
            del received[:end]
            messages.append((self._plain(message) if flag else message, end))
        return messages

    def _check(self, flag: int, size: int) -> None:
        if size > self._message_bytes_max:
            raise self._too_large(f"{size} bytes")
        if flag > 1 or (flag and self._encoding == b"identity"):
            raise CallRefused(
                grpc.StatusCode.INTERNAL, f"a message with flag {flag}, not in an encoding of ours"
            )

    def _plain(self, message: bytes) -> bytes:
        inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            plain = inflater.decompress(message, self._message_bytes_max + 1)
        except zlib.error:
            raise CallRefused(
                grpc.StatusCode.INTERNAL, "a message that cannot be decompressed"
            ) from None
        if len(plain) > self._message_bytes_max:
            raise self._too_large("more, decompressed")
        if not inflater.eof or inflater.unused_data:
            raise CallRefused(grpc.StatusCode.INTERNAL, "a compressed message without its end")
        return plain

    def _too_large(self, size: str) -> CallRefused:
        return CallRefused(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"a message of {size}: at most {self._message_bytes_max} bytes are taken",
        )
