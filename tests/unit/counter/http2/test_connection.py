"""Connections of peers that mean well, of those that do not, and of those that say nothing."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from counter.rpc.http2 import frames
from counter.rpc.http2.frames import ErrorCode
from tests.unit.counter.http2.conftest import Serve
from tests.unit.counter.http2.frame_client import ANY_WINDOW, FrameClient, message, settings
from tests.unit.counter.http2.services import Served, until

DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED = 4, 8
# So many that no delay of the machine makes them few.
FLOOD = 50_000
PING = frames.frame(frames.PING, 0, 0, bytes(8))


async def answers(client: FrameClient, stream_id: int) -> None:
    """Is all well with the connection?"""
    client.send(client.unary(stream_id, "/test.Test/Echo", b"well"))
    assert (await client.answer(stream_id)).messages == [b"well"]


# How it begins.


async def test_the_greeting_may_come_in_pieces(served: Served) -> None:
    client = await FrameClient.connect_silently(served.port)
    async with client:
        for byte in frames.PREFACE + settings():
            client.send(bytes((byte,)))
            await asyncio.sleep(0)
        await answers(client, 1)


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        frames.PREFACE + PING + PING,
        frames.PREFACE + frames.frame(frames.SETTINGS, frames.ACK, 0, b""),
    ],
)
async def test_whoever_speaks_something_else_is_let_go(served: Served, greeting: bytes) -> None:
    with capture_logs() as logs:
        async with await FrameClient.connect_silently(served.port) as client:
            client.send(greeting)
            # Our own greeting, and no more.
            assert [each.kind for each in await client.rest()] == [
                frames.SETTINGS,
                frames.WINDOW_UPDATE,
            ]
        await until(lambda: served.server.connections == 0)
    assert [each["action"] for each in logs] == ["connection_broken"]


@pytest.mark.parametrize("said", [b"", frames.PREFACE, frames.PREFACE + settings()[:5]])
async def test_a_peer_that_does_not_greet_is_cut_off(serve: Serve, said: bytes) -> None:
    served = await serve(handshake_s_max=0.2)
    with capture_logs() as logs:
        async with await FrameClient.connect_silently(served.port) as client:
            client.send(said)
            await client.rest()
        await until(lambda: served.server.connections == 0)
    assert [(each["action"], each["why"]) for each in logs] == [("connection_cut", "silent")]


async def test_there_is_a_limit_of_connections(serve: Serve) -> None:
    served = await serve(connections_max=2)
    async with await FrameClient.connect(served.port) as first:
        async with await FrameClient.connect(served.port):
            assert await (await FrameClient.connect_silently(served.port)).rest() == []
        await until(lambda: served.server.connections == 1)
        await answers(first, 1)
        async with await FrameClient.connect(served.port) as another:
            await answers(another, 1)


# Limits of calls.


async def test_there_is_a_limit_of_streams_at_once(serve: Serve) -> None:
    served = await serve(streams_max=2)
    async with await FrameClient.connect(served.port) as client:
        for stream_id in (1, 3):
            client.send(client.unary(stream_id, "/test.Test/Wait", b""))
        # Its headers are refused, and yet the next ones refer to what they put into the table.
        client.send(client.unary(5, "/test.Test/Wait", b"", [("first-of-its-name", "x")]))
        assert (await client.answer(5)).reset == ErrorCode.REFUSED_STREAM
        client.send(frames.rst_stream(1, ErrorCode.CANCEL))
        client.send(client.unary(7, "/test.Test/Echo", b"well", [("first-of-its-name", "x")]))
        assert (await client.answer(7)).messages == [b"well"]


async def test_there_is_a_limit_of_calls_in_all(serve: Serve) -> None:
    """A call counts from its headers on, whether or not its message has come."""
    served = await serve(calls_max=2)
    async with (
        await FrameClient.connect(served.port) as first,
        await FrameClient.connect(served.port) as second,
    ):
        first.send(first.headers(1, "/test.Test/Echo"))
        second.send(second.unary(1, "/test.Test/Wait", b""))
        await until(lambda: served.server.calls == 2)
        for client in (first, second):
            client.send(client.unary(3, "/test.Test/Echo", b""))
            answer = await client.answer(3)
            assert answer.status == RESOURCE_EXHAUSTED
            assert "2 calls are under way" in answer.headers["grpc-message"]
        first.send(first.data(1, message(b"late"), ends=True))
        assert (await first.answer(1)).messages == [b"late"]
        await answers(second, 5)


# Headers.


async def test_metadata_that_is_too_large_costs_one_call(serve: Serve) -> None:
    """In one frame or in several: the connection goes on, with the table as the peer has it."""
    served = await serve(header_bytes_max=10_000)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Echo", b"", [("kept", "k"), ("x", "y" * 12_000)]))
        block = client.encoder.encode([("also-kept", "k"), ("x", "z" * 30_000)])
        pieces = [block[begin : begin + 9_000] for begin in range(0, len(block), 9_000)]
        assert len(pieces) >= 2
        client.send(frames.frame(frames.HEADERS, 0, 3, pieces[0]))
        client.send(*(frames.frame(frames.CONTINUATION, 0, 3, each) for each in pieces[1:-1]))
        client.send(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 3, pieces[-1]))
        for stream_id in (1, 3):
            answer = await client.answer(stream_id)
            assert (answer.status, answer.headers["grpc-message"]) == (
                RESOURCE_EXHAUSTED,
                "the metadata is too large",
            )
        more = [("kept", "k"), ("also-kept", "k")]
        client.send(client.unary(5, "/test.Test/Echo", b"well", more))
        assert (await client.answer(5)).messages == [b"well"]


async def test_a_small_block_of_large_fields(served: Served) -> None:
    """4 KB in the table, and then 16,000 references to them."""
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Echo", b"well", [("bomb", "x" * 3_000)]))
        assert (await client.answer(1)).messages == [b"well"]
        block = client.encoder.encode([("bomb", "x" * 3_000)])
        assert len(block) == 1
        client.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 3, block * 16_000))
        assert (await client.answer(3)).status == RESOURCE_EXHAUSTED
        await answers(client, 5)


async def test_headers_without_end(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(frames.frame(frames.HEADERS, 0, 1, bytes(16_000)))
        client.send(frames.frame(frames.CONTINUATION, 0, 1, bytes(16_000)) * 20)
        assert (await client.goodbye())[1] == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "field",
    [
        (b"Upper", b"x"),
        (b"with space", b"x"),
        (b"with:colon", b"x"),
        (b"\xc3\xa4", b"x"),
        (b"", b"x"),
        (b":other", b"x"),
        (b"connection", b"x"),
        (b"te", b"gzip"),
    ],
)
async def test_fields_that_no_request_has(served: Served, field: tuple[bytes, bytes]) -> None:
    async with await FrameClient.connect(served.port) as client:
        await answers(client, 1)
        client.send(client.headers(3, "/test.Test/Echo", [field]))  # type: ignore[list-item]
        assert (await client.answer(3)).reset == ErrorCode.PROTOCOL_ERROR
        await answers(client, 5)


@pytest.mark.parametrize("value", ["two\nlines", "two\rlines", "nu\0ll"])
async def test_a_value_of_several_lines(served: Served, value: str) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Echo", [("x", value)]))
        assert (await client.goodbye())[1] == ErrorCode.PROTOCOL_ERROR


async def test_what_was_checked_once_is_checked_again_where_it_matters(served: Served) -> None:
    """The same names in the same order, with another value."""
    async with await FrameClient.connect(served.port) as client:
        for stream_id, te, is_right in ((1, "trailers", True), (3, "gzip", False)):
            fields = [(":method", "POST"), (":scheme", "http"), (":path", "/test.Test/Echo")]
            fields += [("content-type", "application/grpc"), ("te", te)]
            block = client.encoder.encode(fields)
            client.send(frames.frame(frames.HEADERS, frames.END_HEADERS, stream_id, block))
            client.send(client.data(stream_id, message(b""), ends=True))
            reset = (await client.answer(stream_id)).reset
            assert reset == (None if is_right else ErrorCode.PROTOCOL_ERROR)


# Floods.


@pytest.mark.parametrize(
    "frame",
    [
        PING,
        settings(),
        settings(INITIAL_WINDOW_SIZE=10),
        frames.frame(frames.PRIORITY, 0, 9, bytes(5)),
        frames.frame(frames.DATA, 0, 1, b""),
        frames.frame(frames.DATA, frames.PADDED, 1, b"\0"),
        frames.window_update(1, 1),
        frames.window_update(0, 1),
        frames.frame(99, 0, 0, b"unknown"),
        frames.goaway(0, ErrorCode.NO_ERROR),
        frames.rst_stream(1, ErrorCode.CANCEL),
    ],
    ids=lambda frame: f"{frame[3]}-{frame[9:].hex()}",
)
async def test_frames_that_bring_nothing(serve: Serve, frame: bytes) -> None:
    served = await serve(idle_frames_max=100)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Chat"))
        client.send(frame * 50)
        await client.has_heard()  # some are fine
        client.send(frame * FLOOD)
        assert (await client.goodbye())[1] == ErrorCode.ENHANCE_YOUR_CALM
        await served.is_empty()


async def test_empty_continuations(serve: Serve) -> None:
    served = await serve(idle_frames_max=100)
    async with await FrameClient.connect(served.port) as client:
        client.send(frames.frame(frames.HEADERS, 0, 1, b""))
        client.send(frames.frame(frames.CONTINUATION, 0, 1, b"") * FLOOD)
        assert (await client.goodbye())[1] == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "gives_up",
    [
        lambda stream_id: frames.rst_stream(stream_id, ErrorCode.CANCEL),
        # Mistakes after which it is the server that gives the call up.
        lambda stream_id: frames.window_update(stream_id, 0),
        lambda stream_id: frames.frame(frames.PRIORITY, 0, stream_id, stream_id.to_bytes(4) + b"x"),
    ],
)
async def test_calls_that_are_made_to_be_given_up(
    serve: Serve, gives_up: Callable[[int], bytes]
) -> None:
    served = await serve(resets_max=100)
    async with await FrameClient.connect(served.port) as client:
        for stream_id in range(1, 20_001, 2):
            client.send(client.unary(stream_id, "/test.Test/Wait", b"") + gives_up(stream_id))
        assert (await client.goodbye())[1] == ErrorCode.ENHANCE_YOUR_CALM
        await served.is_empty()
    async with await FrameClient.connect(served.port) as client:
        await answers(client, 1)


async def test_many_calls_may_be_given_up_after_a_while(serve: Serve) -> None:
    """As when all of them have reached the same deadline."""
    served = await serve(resets_max=100)
    async with await FrameClient.connect(served.port) as client:
        for stream_id in range(1, 1_001, 2):
            client.send(client.unary(stream_id, "/test.Test/Wait", b""))
        # This one the server looks at later than at all the others.
        client.send(client.unary(1_001, "/test.Test/Wait", b"", [("grpc-timeout", "1m")]))
        assert (await client.answer(1_001)).status == DEADLINE_EXCEEDED
        for stream_id in range(1, 1_001, 2):
            client.send(frames.rst_stream(stream_id, ErrorCode.CANCEL))
        await served.is_empty()
        await answers(client, 1_003)
        assert served.handlers.cancelled == served.handlers.began == 501


async def test_one_frame_of_many_settings_counts_the_last_of_each(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        pair = settings(INITIAL_WINDOW_SIZE=0)[9:] + settings(INITIAL_WINDOW_SIZE=9)[9:]
        client.send(frames.frame(frames.SETTINGS, 0, 0, pair * 1_000))
        client.send(client.unary(1, "/test.Test/Echo", b"a fool"))
        assert len((await client.take(frames.DATA, 1)).payload) == 9


# How it ends.


async def test_calls_end_with_a_connection_that_breaks_the_protocol(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b""), client.headers(3, "/test.Test/Chat"))
        client.send(client.data(3, message(b"kept")))
        await until(lambda: served.handlers.began == 2)
        assert served.server.kept_bytes > 0
        client.send(frames.frame(frames.PUSH_PROMISE, 0, 1, bytes(4)))
        assert (await client.goodbye()) == (3, ErrorCode.PROTOCOL_ERROR)
        await served.is_empty()
        assert served.handlers.cancelled == 2


async def test_a_broken_connection_whose_peer_does_not_read_ends_too(serve: Serve) -> None:
    served = await serve(unread_bytes_max=2**30, unread_s_max=0.5)
    with capture_logs() as logs:
        async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=ANY_WINDOW) as client:
            client.stop_reading()
            client.send(frames.window_update(0, 2**30))
            for stream_id in range(1, 2_001, 2):
                client.send(client.unary(stream_id, "/test.Test/Echo", bytes(16_000)))
            client.send(PING[:3] + b"\x63" + PING[4:])  # something unknown
            client.send(frames.frame(frames.PUSH_PROMISE, 0, 1, bytes(4)))
            await until(lambda: any(each["action"] == "connection_broken" for each in logs))
            assert served.server.connections == 1  # 16 MB of answers are on their way to nobody
            await until(lambda: served.server.connections == 0)
    assert [each["action"] for each in logs] == ["connection_broken", "connection_cut"]


async def test_frames_of_streams_that_are_gone(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        await answers(client, 5)
        client.send(frames.window_update(5, 1), frames.rst_stream(5, ErrorCode.CANCEL))
        client.send(client.data(5, b"late"))
        assert (await client.answer(5)).reset == ErrorCode.STREAM_CLOSED
        await answers(client, 7)
        client.send(client.headers(1, "/test.Test/Echo"))  # lower than one before
        assert (await client.goodbye()) == (7, ErrorCode.STREAM_CLOSED)


async def test_data_after_the_end_of_a_callers_messages(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b""), client.data(1, b"more"))
        assert (await client.answer(1)).reset == ErrorCode.STREAM_CLOSED
        await served.is_empty()
