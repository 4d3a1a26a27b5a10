"""What gRPC has in headers and trailers: metadata, timeouts, encodings, the message of an error."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence

import grpc

from counter.rpc.http2.header_block import Field
from counter.rpc.http2.messages import CallRefused

Metadata = Iterable[tuple[str, str | bytes]]

# Of grpc-timeout.
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT_DIGITS_MAX = 8
_KEY = re.compile(r"[0-9a-z_.-]+")
_VALUE = re.compile(rb"[\x20-\x7e]*")
# Not for handlers.
_INTERNAL = {
    *(b"content-type", b"content-length", b"te"),
    *(b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"),
}
# What may stay as it is in grpc-message; everything else is percent-encoded.
_PLAIN = frozenset(range(0x20, 0x7F)) - {0x25}


def is_grpc(content_type: bytes) -> bool:
    """gRPC-Web, for one, is something else."""
    return content_type == b"application/grpc" or content_type.startswith(
        (b"application/grpc+", b"application/grpc;")
    )


def seconds(timeout: bytes) -> float:
    """Of grpc-timeout: up to eight digits and a unit."""
    digits, unit = timeout[:-1], timeout[-1:]
    if not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS_MAX or unit not in _UNITS_S:
        raise CallRefused(grpc.StatusCode.INTERNAL, "grpc-timeout cannot be read")
    return int(digits) * _UNITS_S[unit]


def fields_of(metadata: Metadata) -> list[Field]:
    """As gRPC has metadata on the wire: what ends with -bin is any bytes, in base64.

    Raises ValueError for what callers could not take.
    """
    fields = []
    for key, value in metadata:
        plain = value if isinstance(value, bytes) else value.encode()
        if key.endswith("-bin"):
            plain = base64.b64encode(plain).rstrip(b"=")
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(plain):
            raise ValueError(f"metadata of the key {key!r} cannot be sent")
        fields.append((key.encode(), plain))
    return fields


def metadata_of(fields: Sequence[Field]) -> tuple[tuple[str, str | bytes], ...]:
    """What a caller sent beside what HTTP/2 and gRPC need themselves."""
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name in _INTERNAL or name[0] == 0x3A:
            continue
        key = name.decode()
        if key.endswith("-bin"):
            # Values of the same key may be joined on their way.
            metadata += [(key, _any_bytes(each)) for each in value.split(b",")]
        else:
            metadata.append((key, value.decode("latin-1")))
    return tuple(metadata)


def _any_bytes(value: bytes) -> bytes:
    try:
        return base64.b64decode(value.strip() + b"=" * (-len(value.strip()) % 4), validate=True)
    except binascii.Error:
        raise CallRefused(grpc.StatusCode.INTERNAL, "metadata that is not base64") from None


def percent_encoded(text: str) -> bytes:
    encoded = text.encode(errors="replace")
    if _PLAIN.issuperset(encoded):
        return encoded
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in encoded)
