"""One call, frame by frame: how it begins, and all the ways in which it ends."""

import asyncio
from typing import Any

import pytest

from counter.rpc.http2 import call, frames
from counter.rpc.http2.frames import ErrorCode
from tests.unit.counter.http2.conftest import Serve
from tests.unit.counter.http2.frame_client import FrameClient, message
from tests.unit.counter.http2.services import Served, until

OK, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 2, 4, 8, 12, 13
RESET = frames.rst_stream


async def test_a_unary_call_is_answered_with_three_frames(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Echo", b"hello"))
        answer = await client.answer(1)
        assert answer.headers == {":status": "200", "content-type": "application/grpc"}
        assert answer.messages == [b"hello"]
        assert answer.trailers == {"grpc-status": "0"}
        assert answer.data_frames == 1


# What callers send.


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([message(b"")], OK),
        ([message(b"a"), b""], OK),
        ([b"\0\0", b"\0\0\3a", b"bc", b""], OK),
        ([b""], INTERNAL),
        ([message(b"abc")[:-1]], INTERNAL),
        ([message(b"a") + message(b"b")], INTERNAL),
        ([message(b"a"), message(b"b")], INTERNAL),
        ([message(b"a") + b"\0"], INTERNAL),
        ([message(b"a", flag=1)], INTERNAL),
        ([message(b"a", flag=2)], INTERNAL),
    ],
)
async def test_a_unary_method_takes_one_message(
    served: Served, pieces: list[bytes], status: int
) -> None:
    async with await FrameClient.connect(served.port) as client:
        for stream_id, method in ((1, "Echo"), (3, "Repeat")):
            client.send(client.headers(stream_id, f"/test.Test/{method}"))
            for piece in pieces[:-1]:
                client.send(client.data(stream_id, piece))
            client.send(client.data(stream_id, pieces[-1], ends=True))
        answer = await client.answer(1)
        assert answer.status == status
        # The other kind of method with one message judges it alike: it cannot read these.
        assert (await client.answer(3)).status == (UNKNOWN if status == OK else INTERNAL)
        await served.is_empty()


async def test_headers_alone(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Echo", ends=True))
        client.send(client.headers(3, "/test.Test/Sum", ends=True))
        assert (await client.answer(1)).status == INTERNAL
        assert (await client.answer(3)).messages == [b"0"]


@pytest.mark.parametrize("size_max", [1_000, 100_000])
async def test_the_size_of_a_message_has_a_limit(serve: Serve, size_max: int) -> None:
    served = await serve(message_bytes_max=size_max)
    async with await FrameClient.connect(served.port) as client:
        for stream_id, size in ((1, size_max), (5, size_max + 1)):
            body = message(bytes(size))
            for each, method in ((stream_id, "Sum"), (stream_id + 2, "Echo")):
                client.send(client.headers(each, f"/test.Test/{method}"))
                client.send(*client.in_frames(each, body))
        client.send(frames.window_update(0, 10**6), frames.window_update(3, 10**6))
        assert (await client.answer(1)).messages == [b"%d" % size_max]
        assert (await client.answer(3)).messages == [bytes(size_max)]
        for too_large in (await client.answer(5), await client.answer(7)):
            assert too_large.headers["grpc-status"] == str(RESOURCE_EXHAUSTED)
            assert f"at most {size_max} bytes" in too_large.headers["grpc-message"]


async def test_a_call_that_is_refused_early_need_not_be_sent_whole(serve: Serve) -> None:
    served = await serve(message_bytes_max=1_000)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Echo"), client.data(1, message(bytes(2_000))))
        assert (await client.answer(1)).status == RESOURCE_EXHAUSTED
        assert (await client.answer(1)).reset == ErrorCode.NO_ERROR
        client.send(client.data(1, bytes(10_000)), client.data(1, b"", ends=True))
        client.send(client.unary(3, "/test.Test/Echo", b"next"))
        assert (await client.answer(3)).messages == [b"next"]


@pytest.mark.parametrize(
    ("content_type", "is_taken"),
    [
        ("application/grpc", True),
        ("application/grpc+proto", True),
        ("application/grpc;charset=x", True),
        ("application/grpc-web", False),
        ("application/json", False),
    ],
)
async def test_content_types(served: Served, content_type: str, is_taken: bool) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Echo", content_type=content_type))
        client.send(client.data(1, message(b"a"), ends=True))
        answer = await client.answer(1)
        assert answer.headers[":status"] == ("200" if is_taken else "415")
        assert is_taken or b"This is a gRPC server" in answer.data


async def test_a_browser_is_told_what_this_is(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        fields = [(":method", "GET"), (":scheme", "http"), (":path", "/")]
        flags = frames.END_HEADERS | frames.END_STREAM
        client.send(frames.frame(frames.HEADERS, flags, 1, client.encoder.encode(fields)))
        answer = await client.answer(1)
        assert answer.headers[":status"] == "415"
        assert answer.data.endswith(b"list\n")


async def test_what_is_not_there(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Nothing", b""))
        client.send(client.unary(3, "/test.Test/Echo", b"", [("grpc-encoding", "br")]))
        unknown, encoded = await client.answer(1), await client.answer(3)
        assert unknown.status == encoded.status == UNIMPLEMENTED
        assert unknown.headers["grpc-message"] == "/test.Test/Nothing is not known here"
        assert encoded.headers["grpc-accept-encoding"] == "identity,deflate,gzip"


@pytest.mark.parametrize(("length", "is_right"), [("8", True), ("7", False), ("9", False)])
async def test_a_content_length_must_be_right(served: Served, length: str, is_right: bool) -> None:
    async with await FrameClient.connect(served.port) as client:
        more = [("content-length", length)]
        client.send(client.unary(1, "/test.Test/Echo", b"abc", more))
        client.send(client.headers(3, "/test.Test/Sum", more, ends=True))
        client.send(client.unary(5, "/test.Test/Echo", b"abc", [("content-length", "-8")]))
        assert (await client.answer(1)).reset == (None if is_right else ErrorCode.PROTOCOL_ERROR)
        assert (await client.answer(3)).reset == ErrorCode.PROTOCOL_ERROR
        assert (await client.answer(5)).reset == ErrorCode.PROTOCOL_ERROR


async def test_trailers_of_a_caller_end_its_messages(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        for stream_id, fields, ends in (
            (1, [("x", "y")], True),
            (3, [(":path", "y")], True),
            (5, [("x", "y")], False),
        ):
            client.send(client.headers(stream_id, "/test.Test/Echo"))
            client.send(client.data(stream_id, message(b"hello")))
            flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
            block = client.encoder.encode(fields)
            client.send(frames.frame(frames.HEADERS, flags, stream_id, block))
        assert (await client.answer(1)).messages == [b"hello"]
        assert (await client.answer(3)).reset == ErrorCode.PROTOCOL_ERROR
        assert (await client.answer(5)).reset == ErrorCode.PROTOCOL_ERROR


# Time.


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("2H", 7_200),
        ("90M", 5_400),
        ("5000S", 5_000),
        ("5000000m", 5_000),
        ("99999999u", 99.999999),
        ("99999999H", 359_999_996_400),
        ("000100S", 100),
    ],
)
async def test_timeouts_of_all_units(served: Served, timeout: str, seconds: float) -> None:
    async def remaining(request: bytes, context: Any) -> bytes:
        return b"%f" % context.time_remaining()

    served.handlers.does = remaining
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Do", b"", [("grpc-timeout", timeout)]))
        left = float((await client.answer(1)).messages[0])
        assert seconds - 60 < left <= seconds


@pytest.mark.parametrize("timeout", ["", "S", "5", "5s", "-5S", "1.5S", "123456789S", "5 S"])
async def test_a_timeout_that_cannot_be_read(served: Served, timeout: str) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b"", [("grpc-timeout", timeout)]))
        answer = await client.answer(1)
        assert (answer.status, served.handlers.began) == (INTERNAL, 0)


async def test_no_time_at_all(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b"", [("grpc-timeout", "0n")]))
        answer = await client.answer(1)
        assert (answer.status, served.handlers.began) == (DEADLINE_EXCEEDED, 0)


@pytest.mark.parametrize("method", ["Wait", "Chat"])
async def test_a_handler_is_cancelled_at_the_deadline(served: Served, method: str) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, f"/test.Test/{method}", b"", [("grpc-timeout", "200m")]))
        answer = await client.answer(1)
        assert answer.status == DEADLINE_EXCEEDED
        await served.is_empty()
        assert (served.handlers.began, served.handlers.cancelled) == (1, 1)


async def test_a_call_without_its_message_ends_at_the_deadline_too(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Wait", [("grpc-timeout", "1m")]))
        assert (await client.answer(1)).status == DEADLINE_EXCEEDED
        assert (await client.answer(1)).reset == ErrorCode.NO_ERROR
        await served.is_empty()
        assert served.handlers.began == 0


# Callers that go away.


async def test_calls_that_are_given_up_before_they_begin(serve: Serve) -> None:
    """Their handlers never take a step, and yet they are not under way for ever."""
    served = await serve(calls_max=5)
    async with await FrameClient.connect(served.port) as client:
        for stream_id in range(1, 41, 4):
            client.send(
                client.unary(stream_id, "/test.Test/Wait", b"")
                + RESET(stream_id, ErrorCode.CANCEL)
                + client.headers(stream_id + 2, "/test.Test/Chat")
                + RESET(stream_id + 2, ErrorCode.CANCEL)
            )
            await client.has_heard()
            await served.is_empty()
        client.send(client.unary(101, "/test.Test/Echo", b"still there"))
        assert (await client.answer(101)).messages == [b"still there"]


@pytest.mark.parametrize("method", ["Wait", "Chat"])
@pytest.mark.parametrize("goes", ["reset", "connection"])
async def test_a_caller_that_goes_away_ends_its_handler(
    served: Served, method: str, goes: str
) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, f"/test.Test/{method}"))
        client.send(client.data(1, message(b"x") + (message(b"y") if method == "Chat" else b"")))
        client.send(client.data(1, b"", ends=True))
        await until(lambda: served.handlers.began == 1)
        if goes == "reset":
            client.send(RESET(1, ErrorCode.CANCEL))
        else:
            await client.__aexit__()
        await until(lambda: served.handlers.cancelled == 1)
        await served.is_empty()


async def test_a_handler_that_ignores_it_counts_until_it_ends(served: Served) -> None:
    goes_on = asyncio.Event()

    async def stubborn(request: bytes, context: Any) -> bytes:
        served.handlers.began += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            served.handlers.cancelled += 1
            await goes_on.wait()
        assert context.cancelled()
        return b"to nobody"

    served.handlers.does = stubborn
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Do", b""))
        await until(lambda: served.handlers.began == 1)
        client.send(RESET(1, ErrorCode.CANCEL))
        await until(lambda: served.handlers.cancelled == 1)
        await client.has_heard()
        assert served.server.calls == 1
        goes_on.set()
        await served.is_empty()
        client.send(client.unary(3, "/test.Test/Echo", b"next"))
        assert (await client.answer(3)).messages == [b"next"]


async def test_whoever_goes_on_after_the_end_is_told_so(served: Served) -> None:
    """By another exception than of a bug, and without a message of the caller."""
    raised: list[type[BaseException]] = []

    async def stubborn(requests: Any, context: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for again in (context.read, lambda: context.write(b"x"), context.read):
                try:
                    await again()
                except BaseException as error:
                    raised.append(type(error))

    served.handlers.does = stubborn
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/DoStream"))
        client.send(client.data(1, message(b"one") + message(b"two")))
        await until(lambda: served.server.kept_bytes > 0)
        client.send(RESET(1, ErrorCode.CANCEL))
        await until(lambda: len(raised) == 3)
        assert raised == [asyncio.CancelledError] * 3
        await served.is_empty()


@pytest.mark.parametrize("what", ["read", "write"])
async def test_other_tasks_of_a_handler_wake_up_too(served: Served, what: str) -> None:
    """Those that wait for the caller: the handler's own task is another."""
    tasks: list[asyncio.Task[Any]] = []

    async def write(context: Any) -> None:
        while True:
            await context.write(bytes(10_000))

    async def handler(requests: Any, context: Any) -> None:
        tasks.append(asyncio.create_task(context.read() if what == "read" else write(context)))
        served.handlers.began += 1
        await asyncio.Event().wait()

    served.handlers.does = handler
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/DoStream"))
        await until(lambda: served.handlers.began == 1)
        await client.has_heard()
        assert not tasks[0].done()
        client.send(RESET(1, ErrorCode.CANCEL))
        await until(lambda: tasks[0].done())
        assert tasks[0].cancelled()
        await served.is_empty()


async def test_a_generator_is_closed_when_nobody_listens(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Forever", b""))
        await client.take(frames.DATA, 1)
        assert served.handlers.cancelled == 0
        client.send(RESET(1, ErrorCode.CANCEL))
        await served.is_empty()
        assert served.handlers.cancelled == 1


async def test_a_read_that_is_cancelled_loses_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when the message is there and has woken the reader, which has not taken it yet."""
    woken, wake = asyncio.Event(), call._wake

    def wake_and_cancel(waiting: "asyncio.Future[None] | None") -> None:
        wake(waiting)
        if waiting is not None and reading:
            reading.pop().cancel()
            woken.set()

    async def impatient(requests: Any, context: Any) -> None:
        first = asyncio.create_task(context.read())
        reading.append(first)
        await woken.wait()
        await asyncio.wait([first])
        served.handlers.seen = first.cancelled()
        await context.write(await context.read())

    reading: list[asyncio.Task[Any]] = []
    monkeypatch.setattr(call, "_wake", wake_and_cancel)
    served.handlers.does = impatient
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/DoStream"))
        await until(lambda: bool(reading))
        await client.has_heard()
        client.send(client.data(1, message(b"hello"), ends=True))
        assert (await client.answer(1)).messages == [b"hello"]
        assert served.handlers.seen is True
