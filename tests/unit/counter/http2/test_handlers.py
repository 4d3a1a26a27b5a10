"""What handlers do: they fail in every way, and send and read metadata."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from counter.rpc.http2 import frames
from tests.unit.counter.http2.frame_client import FrameClient
from tests.unit.counter.http2.services import Served, until

OK, UNKNOWN, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 0, 2, 9, 12, 13, 14


async def _raise(request: bytes, context: Any) -> bytes:
    raise ZeroDivisionError


async def _no_bytes(request: bytes, context: Any) -> Any:
    return None


async def _cancel(request: bytes, context: Any) -> bytes:
    raise asyncio.CancelledError


async def _abort_ok(request: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.OK, "well")
    return b""


async def _abort_twice(request: bytes, context: Any) -> bytes:
    try:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "first")
    except grpc.aio.AbortError:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "second")
    return b""


async def _abort_and_return(request: bytes, context: Any) -> bytes:
    try:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "first")
    except grpc.aio.AbortError:
        return b"answer"
    return b""


async def _code_and_raise(request: bytes, context: Any) -> bytes:
    context.set_code(grpc.StatusCode.UNIMPLEMENTED)
    context.set_details("not there")
    raise NotImplementedError


async def _ok_and_raise(request: bytes, context: Any) -> bytes:
    context.set_code(grpc.StatusCode.OK)
    raise ZeroDivisionError


async def _code_and_return(request: bytes, context: Any) -> bytes:
    context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
    return b"not sent"


async def _number_as_code(request: bytes, context: Any) -> bytes:
    context.set_code(9)
    return b""


async def _bad_metadata(request: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "", (("Of Callers", "x\n"),))
    return b""


async def _bad_trailing_metadata(request: bytes, context: Any) -> bytes:
    context.set_trailing_metadata((("key", "x\n"),))
    return b""


async def _bad_initial_metadata(request: bytes, context: Any) -> bytes:
    await context.send_initial_metadata((("key", "ä"),))
    return b""


async def _bare_abort_error(request: bytes, context: Any) -> bytes:
    raise grpc.aio.AbortError


@pytest.mark.parametrize(
    ("does", "status", "is_logged"),
    [
        (_raise, UNKNOWN, True),
        (_no_bytes, UNKNOWN, True),
        (_cancel, UNAVAILABLE, False),
        (_abort_ok, UNKNOWN, False),
        (_abort_twice, FAILED_PRECONDITION, False),
        (_abort_and_return, FAILED_PRECONDITION, False),
        (_code_and_raise, UNIMPLEMENTED, False),
        (_ok_and_raise, UNKNOWN, True),
        (_code_and_return, FAILED_PRECONDITION, False),
        (_number_as_code, UNKNOWN, True),
        (_bad_metadata, UNKNOWN, True),
        (_bad_trailing_metadata, UNKNOWN, True),
        (_bad_initial_metadata, UNKNOWN, True),
        (_bare_abort_error, UNKNOWN, True),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_however_a_handler_fails_its_caller_hears_of_it(
    served: Served, does: Callable[..., Any], status: int, is_logged: bool
) -> None:
    served.handlers.does = does
    with capture_logs() as logs:
        async with await FrameClient.connect(served.port) as client:
            client.send(client.unary(1, "/test.Test/Do", b""))
            answer = await client.answer(1)
            assert (answer.status, answer.data) == (status, b"")
            await served.is_empty()
    assert [each["action"] for each in logs] == (["call_failed"] if is_logged else [])


async def test_a_request_that_is_no_message_of_the_method(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Strict", b"bad"))
        client.send(client.unary(3, "/test.Test/Strict", b"good"))
        assert (await client.answer(1)).status == INTERNAL
        assert (await client.answer(3)).messages == [b"good"]


async def test_an_abort_after_an_answer_comes_after_it(served: Served) -> None:
    async def handler(requests: Any, context: Any) -> None:
        await context.write(bytes(100_000))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "enough")

    served.handlers.does = handler
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/DoStream", ends=True))
        await client.take(frames.HEADERS, 1)
        # The handler has ended, and what it wrote waits for the window.
        await until(lambda: served.server.kept_bytes == 5 + 100_000 - frames.WINDOW_DEFAULT)
        client.send(frames.window_update(0, 10**6), frames.window_update(1, 10**6))
        answer = await client.answer(1)
        assert len(answer.data) == 100_005
        # Its first headers were taken above.
        assert answer.headers == {"grpc-status": str(FAILED_PRECONDITION), "grpc-message": "enough"}


async def test_metadata_that_is_larger_than_a_frame(served: Served) -> None:
    """And text that is no ASCII."""

    async def handler(request: bytes, context: Any) -> bytes:
        await context.send_initial_metadata((("first", "a" * 40_000), ("any-bin", b"\0\xff")))
        details = "50 % größer\n"
        await context.abort(grpc.StatusCode.UNAVAILABLE, details, (("last-bin", bytes(40_000)),))
        return b""

    served.handlers.does = handler
    async with await FrameClient.connect(served.port) as client:
        client.decoder.max_header_list_size = 2**20
        client.send(client.unary(1, "/test.Test/Do", b""))
        answer = await client.answer(1)
        assert answer.headers["first"] == "a" * 40_000
        assert answer.headers["any-bin"] == "AP8"
        assert answer.trailers["grpc-message"] == "50 %25 gr%C3%B6%C3%9Fer%0A"
        assert set(answer.trailers["last-bin"]) == {"A"}
        assert answer.status == UNAVAILABLE


async def test_metadata_of_callers(served: Served) -> None:
    async def handler(request: bytes, context: Any) -> bytes:
        served.handlers.seen = context.invocation_metadata()
        return b""

    served.handlers.does = handler
    async with await FrameClient.connect(served.port) as client:
        sent = [
            ("user-agent", "frames"),
            ("grpc-timeout", "10S"),
            ("twice", "1"),
            ("twice", "2"),
            ("latin", "\xe4"),
            ("a-bin", "AP8"),
            ("b-bin", "AP8=, YWI"),
            ("c-bin", ""),
        ]
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in sent]
        client.send(client.unary(1, "/test.Test/Do", b"", encoded))
        assert (await client.answer(1)).status == OK
        assert served.handlers.seen == (
            ("user-agent", "frames"),
            ("twice", "1"),
            ("twice", "2"),
            ("latin", "\xe4"),
            ("a-bin", b"\0\xff"),
            ("b-bin", b"\0\xff"),
            ("b-bin", b"ab"),
            ("c-bin", b""),
        )
        client.send(client.unary(3, "/test.Test/Do", b"", [("a-bin", "no base64")]))
        answer = await client.answer(3)
        assert (answer.status, answer.headers["grpc-message"]) == (
            INTERNAL,
            "metadata that is not base64",
        )
