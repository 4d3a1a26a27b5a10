"""Frames of HTTP/2 (RFC 9113, sections 4 and 6), and those that a server sends."""

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
STREAM_ID_MAX = 2**31 - 1
WINDOW_MAX = 2**31 - 1

# Kinds. Plain numbers, because every frame is compared with them.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

# Flags.
END_STREAM = ACK = 0x01
END_HEADERS = 0x04
PADDED = 0x08
HAS_PRIORITY = 0x20

# Settings.
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = 1, 2, 3
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 4, 5, 6

FRAME_BYTES_DEFAULT = 16_384
FRAME_BYTES_LIMIT = 2**24 - 1
WINDOW_DEFAULT = 65_535

# Of a header: the upper 16 and the lower 8 bits of the length, kind, flags, stream.
unpack_header = struct.Struct(">HBBBI").unpack_from
_header = struct.Struct(">HBBBI").pack
_setting = struct.Struct(">HI")
_number = struct.Struct(">I")


class ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


class ConnectionBroken(Exception):
    """The peer broke the protocol so that the connection must end."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class StreamBroken(Exception):
    """The peer broke the protocol on one stream, which ends."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    size = len(payload)
    return _header(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def frame_header(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    return _header(size >> 8, size & 0xFF, kind, flags, stream_id)


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_setting.pack(*each) for each in values.items()))


def settings_of(payload: bytes) -> dict[int, int]:
    """The last value of each."""
    return dict(_setting.iter_unpack(payload))


def number_of(payload: bytes) -> int:
    """Of 31 bits: the highest one is reserved."""
    number: int = _number.unpack_from(payload)[0]
    return number & 0x7FFF_FFFF


def window_update(stream_id: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _number.pack(more))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _number.pack(code))


def goaway(last_stream_id: int, code: ErrorCode, why: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _number.pack(last_stream_id) + _number.pack(code) + why.encode())


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]
