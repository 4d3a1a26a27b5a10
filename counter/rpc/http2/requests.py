"""What the headers of a request ask for."""

from typing import TYPE_CHECKING

import grpc

from counter.rpc.http2.call import Call, StrayRequest
from counter.rpc.http2.frames import ErrorCode, StreamBroken
from counter.rpc.http2.header_block import Request
from counter.rpc.http2.messages import ENCODINGS, CallRefused
from counter.rpc.http2.metadata import is_grpc, seconds

if TYPE_CHECKING:
    from counter.rpc.http2.connection import Connection

_LENGTH_DIGITS_MAX = 18


def call_of(connection: "Connection", stream_id: int, request: Request | None) -> Call:
    """Raises `CallRefused`, or `StreamBroken`. None is a request of which only its size is known:
    it is too large."""
    if request is None:
        raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "the metadata is too large")
    server = connection.server
    fields, headers = request
    path = headers[b":path"]
    if headers.get(b"te", b"trailers") != b"trailers" or not path:
        raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
    if headers[b":method"] != b"POST" or not is_grpc(headers.get(b"content-type", b"")):
        call: Call = StrayRequest(connection, stream_id, server.nothing, fields)
    else:
        method = server.method(path)
        if method is None:
            raise _unknown(path)
        if server.calls >= server.limits.calls_max:
            why = f"{server.calls} calls are under way, which is the limit: call again later"
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        call = Call(connection, stream_id, method, fields)
        if b"grpc-timeout" in headers:
            timeout_s = seconds(headers[b"grpc-timeout"])
            if not timeout_s:
                raise CallRefused(grpc.StatusCode.DEADLINE_EXCEEDED, "there is no time for it")
            call.deadline_s = connection.loop.time() + timeout_s
        if b"grpc-encoding" in headers:
            call.encoding = headers[b"grpc-encoding"]
            if call.encoding not in ENCODINGS:
                raise _unknown(b"grpc-encoding " + call.encoding)
    if b"content-length" in headers:
        length = headers[b"content-length"]
        if not length.isdigit() or len(length) > _LENGTH_DIGITS_MAX:
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
        call.content_bytes = int(length)
    return call


def _unknown(what: bytes) -> CallRefused:
    said = what.decode(errors="replace")
    return CallRefused(grpc.StatusCode.UNIMPLEMENTED, f"{said} is not known here")
