"""Windows in both directions, and what is kept while somebody does not take it."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from counter.rpc.http2 import frames
from counter.rpc.http2.answers import Answers
from counter.rpc.http2.call import MESSAGE_OVERHEAD_BYTES, UNSENT_BYTES_MAX
from counter.rpc.http2.frames import ErrorCode
from tests.unit.counter.http2.conftest import Serve
from tests.unit.counter.http2.frame_client import ANY_WINDOW, FrameClient, message, settings
from tests.unit.counter.http2.services import Served, until

RESOURCE_EXHAUSTED = 8
MORE_CONNECTION = frames.window_update(0, 2**30)


def kept_of(*requests: bytes) -> int:
    """What large requests, and those of streams, take until they are answered."""
    return sum(len(each) + MESSAGE_OVERHEAD_BYTES for each in requests)


def given_back(client: FrameClient) -> list[int]:
    """To the callers of streams."""
    return [
        int.from_bytes(each.payload)
        for each in client.seen
        if each.kind == frames.WINDOW_UPDATE and each.stream_id
    ]


def padded(stream_id: int, data: bytes, padding: int) -> bytes:
    payload = bytes((padding,)) + data + bytes(padding)
    return frames.frame(frames.DATA, frames.PADDED, stream_id, payload)


# What we send.


async def test_an_answer_waits_for_the_window_of_its_stream(served: Served) -> None:
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=10) as client:
        client.send(client.unary(1, "/test.Test/Echo", bytes(20)))
        assert len((await client.take(frames.DATA, 1)).payload) == 10
        await client.has_heard()
        assert (served.server.calls, served.server.kept_bytes) == (1, 15)
        client.send(frames.window_update(1, 14))
        assert len((await client.take(frames.DATA, 1)).payload) == 14
        client.send(frames.window_update(1, 1))
        last = await client.take(frames.DATA, 1)
        assert len(last.payload) == 1
        await client.take(frames.HEADERS, 1)
        trailers = await client.take(frames.HEADERS, 1)
        assert trailers.ends
        await served.is_empty()


async def test_an_answer_waits_for_the_window_of_the_connection(served: Served) -> None:
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=ANY_WINDOW) as client:
        client.send(client.unary(1, "/test.Test/Repeat", b"1,100000"))
        kept = kept_of(b"1,100000") + 100_005 - frames.WINDOW_DEFAULT
        await until(lambda: served.server.kept_bytes == kept)
        client.send(client.unary(3, "/test.Test/Echo", b"also waits"))
        await until(lambda: served.server.kept_bytes == kept + 15)
        client.send(MORE_CONNECTION)
        assert (await client.answer(1)).messages == [bytes(100_000)]
        assert (await client.answer(3)).messages == [b"also waits"]
        await served.is_empty()


async def test_a_call_that_is_given_up_while_it_waits_for_the_connection(served: Served) -> None:
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=ANY_WINDOW) as client:
        for stream_id in (1, 3):
            client.send(client.unary(stream_id, "/test.Test/Repeat", b"1,100000"))
        await until(lambda: served.server.kept_bytes > 100_005)
        client.send(frames.rst_stream(1, ErrorCode.CANCEL), MORE_CONNECTION)
        assert (await client.answer(3)).messages == [bytes(100_000)]
        await served.is_empty()


async def test_calls_take_turns(served: Served) -> None:
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=ANY_WINDOW) as client:
        for stream_id in (1, 3, 5):
            client.send(client.unary(stream_id, "/test.Test/Repeat", b"1,200000"))
        kept = 3 * (200_005 + kept_of(b"1,200000")) - frames.WINDOW_DEFAULT
        await until(lambda: served.server.kept_bytes == kept)
        client.send(MORE_CONNECTION)
        order = []
        while len(order) < 30:
            order.append((await client.take(frames.DATA)).stream_id)
        # The first one had the window for itself. From then on all have the same.
        assert order[:3] == [1, 1, 1]
        assert order[4:28] == order[4:7] * 8
        assert sorted(order[4:7]) == [1, 3, 5]


async def test_frames_are_as_large_as_the_peer_takes_and_no_larger(serve: Serve) -> None:
    served = await serve()
    for says, largest in ((2**14, 2**14), (20_000, 20_000), (2**24 - 1, 2**16)):
        async with await FrameClient.connect(
            served.port, INITIAL_WINDOW_SIZE=ANY_WINDOW, MAX_FRAME_SIZE=says
        ) as client:
            client.send(MORE_CONNECTION, client.unary(1, "/test.Test/Repeat", b"1,200000"))
            sizes = [len((await client.take(frames.DATA, 1)).payload) for _ in range(3)]
            assert sizes == [largest] * 3
            assert len((await client.answer(1)).data) == 200_005 - 3 * largest


async def test_windows_shrink_below_zero_and_grow_again(served: Served) -> None:
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=100) as client:
        client.send(client.unary(1, "/test.Test/Echo", bytes(300)))
        assert len((await client.take(frames.DATA, 1)).payload) == 100
        client.send(settings(INITIAL_WINDOW_SIZE=10), frames.window_update(1, 90))
        client.send(client.unary(3, "/test.Test/Echo", bytes(5)))
        assert len((await client.answer(3)).data) == 10
        assert served.server.kept_bytes == 205
        client.send(frames.window_update(1, 1))
        assert len((await client.take(frames.DATA, 1)).payload) == 1
        client.send(settings(INITIAL_WINDOW_SIZE=1_000))
        await client.take(frames.HEADERS, 1)
        assert len((await client.answer(1)).data) == 204


async def test_windows_that_grow_too_large(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Chat"), frames.window_update(1, ANY_WINDOW))
        assert (await client.answer(1)).reset == ErrorCode.FLOW_CONTROL_ERROR
        client.send(client.headers(3, "/test.Test/Chat"))
        client.send(frames.window_update(3, ANY_WINDOW - frames.WINDOW_DEFAULT))
        client.send(settings(INITIAL_WINDOW_SIZE=frames.WINDOW_DEFAULT + 1))
        assert (await client.goodbye()) == (3, ErrorCode.FLOW_CONTROL_ERROR)
    async with await FrameClient.connect(served.port) as client:
        client.send(frames.window_update(0, ANY_WINDOW))
        assert (await client.goodbye()) == (0, ErrorCode.FLOW_CONTROL_ERROR)


async def test_a_handler_waits_while_its_answers_are_not_taken(served: Served) -> None:
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=0) as client:
        client.send(client.unary(1, "/test.Test/Repeat", b"100,10000"))
        may_wait = UNSENT_BYTES_MAX // 10_005 + 1
        kept = kept_of(b"100,10000") + may_wait * 10_005
        await until(lambda: served.server.kept_bytes == kept)
        await client.has_heard()
        assert served.handlers.began == may_wait + 1
        client.send(frames.window_update(1, ANY_WINDOW), MORE_CONNECTION)
        assert (await client.answer(1)).messages == [bytes((n,)) * 10_000 for n in range(100)]


async def test_tiny_windows_of_many_calls_do_not_multiply(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is looked at when its own window grows, and not when another's does."""
    looks = 0
    send_frame = Answers._send_frame

    def counted(self: Answers, call: Any) -> bool:
        nonlocal looks
        looks += 1
        return send_frame(self, call)

    monkeypatch.setattr(Answers, "_send_frame", counted)
    calls = 1_000
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=0) as client:
        streams = range(1, 2 * calls, 2)
        for stream_id in streams:
            client.send(client.unary(stream_id, "/test.Test/Echo", b""))
        await until(lambda: served.server.kept_bytes == 5 * calls)
        for _ in range(5):
            client.send(*(frames.window_update(stream_id, 1) for stream_id in streams))
        for stream_id in streams:
            assert (await client.answer(stream_id)).data == message(b"")
        assert looks == 6 * calls


async def test_the_peers_table_for_our_headers_can_be_small(served: Served) -> None:
    """The first block after its settings has to say that we keep to them; the others need not."""
    async with await FrameClient.connect(served.port, HEADER_TABLE_SIZE=0) as client:
        # As strict as RFC 9113 has it.
        client.decoder.max_allowed_table_size = 0
        client.send(settings(HEADER_TABLE_SIZE=100))
        for stream_id in (1, 3):
            client.send(client.unary(stream_id, "/test.Test/Echo", b"a"))
        first = await client.take(frames.HEADERS)
        assert first.payload[:1] == b"\x20"
        others = [await client.take(frames.HEADERS) for _ in range(3)]
        assert all(each.payload[:1] != b"\x20" for each in others)
        for each in (first, *others):
            assert client.decoder.decode(each.payload)


# What we take.


async def test_a_message_that_is_larger_than_the_window(serve: Serve) -> None:
    served = await serve(stream_window_bytes=100_000, connection_window_bytes=200_000)
    body = bytes(range(256)) * 4_000
    async with await FrameClient.connect(served.port) as client:
        client.send(MORE_CONNECTION, settings(INITIAL_WINDOW_SIZE=ANY_WINDOW))
        for stream_id, method in ((1, "Echo"), (3, "Talk")):
            client.send(client.headers(stream_id, f"/test.Test/{method}"))
            room_of_stream, room = 100_000, 200_000
            for piece in client.in_frames(stream_id, message(body)):
                while room_of_stream < len(piece) or room < len(piece):
                    update = await client.take(frames.WINDOW_UPDATE)
                    if update.stream_id == stream_id:
                        room_of_stream += int.from_bytes(update.payload)
                    else:
                        room += int.from_bytes(update.payload)
                client.send(piece)
                room_of_stream -= len(piece) - 9
                room -= len(piece) - 9
            assert (await client.answer(stream_id)).messages == [body]


async def test_a_caller_gets_back_what_its_handler_took(serve: Serve) -> None:
    served = await serve(stream_window_bytes=100_000)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Chat"))
        for _ in range(6):
            client.send(client.data(1, message(bytes(10_000 - 5))))
        await client.has_heard()
        assert served.server.kept_bytes == kept_of(*[bytes(10_000 - 5)] * 6)
        assert given_back(client) == []
        served.handlers.may_go_on.set()
        update = await client.take(frames.WINDOW_UPDATE, 1)
        assert int.from_bytes(update.payload) == 50_000
        await until(lambda: served.server.kept_bytes == 0)


async def test_empty_messages_are_not_for_nothing(serve: Serve) -> None:
    """Whoever sends them without end is held back as well, and what they take is counted."""
    served = await serve(stream_window_bytes=10_000)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Chat"))
        client.send(client.data(1, message(b"") * 1_000), client.data(1, message(b"") * 1_000))
        await client.has_heard()
        assert served.server.kept_bytes == kept_of(*[b""] * 2_000)
        assert given_back(client) == []
        client.send(client.data(1, message(b"")))
        assert (await client.answer(1)).reset == ErrorCode.FLOW_CONTROL_ERROR
        await served.is_empty()


async def test_a_caller_that_sends_more_than_it_may(serve: Serve) -> None:
    served = await serve(stream_window_bytes=20_000, connection_window_bytes=70_000)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Chat"))
        client.send(client.data(1, message(bytes(10_000))), client.data(1, message(bytes(9_990))))
        client.send(client.data(1, b"x"))
        assert (await client.answer(1)).reset == ErrorCode.FLOW_CONTROL_ERROR
        # That stream is gone, and the connection is not: it gave back what the stream had used.
        client.send(client.unary(3, "/test.Test/Echo", b"next"))
        assert (await client.answer(3)).messages == [b"next"]
        await served.is_empty()


async def test_data_of_streams_that_were_cut_short_is_given_back_too(serve: Serve) -> None:
    served = await serve(message_bytes_max=100, connection_window_bytes=70_000)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Echo"), client.data(1, message(bytes(101))))
        assert (await client.answer(1)).status == RESOURCE_EXHAUSTED
        sent = 0
        room = 70_000 - 106
        while sent < 500_000:
            if room < 16_384:
                update = await client.take(frames.WINDOW_UPDATE)
                assert update.stream_id == 0
                room += int.from_bytes(update.payload)
            client.send(client.data(1, bytes(16_384)))
            sent, room = sent + 16_384, room - 16_384
        client.send(client.unary(3, "/test.Test/Echo", b"next"))
        assert (await client.answer(3)).messages == [b"next"]


async def test_padding_takes_room_and_is_given_back(serve: Serve) -> None:
    served = await serve(stream_window_bytes=10_000, idle_frames_max=10**6)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.headers(1, "/test.Test/Sum"))
        room = 10_000
        for number in range(200):
            data = message(b"x") if number % 2 else b""
            used = 1 + len(data) + 255
            while room < used:
                room += int.from_bytes((await client.take(frames.WINDOW_UPDATE, 1)).payload)
            client.send(padded(1, data, 255))
            room -= used
        client.send(client.data(1, b"", ends=True))
        assert (await client.answer(1)).messages == [b"100"]


# What is kept.


async def test_what_all_calls_keep_has_a_limit(serve: Serve) -> None:
    served = await serve(kept_bytes_max=200_000)
    async with (
        await FrameClient.connect(served.port) as first,
        await FrameClient.connect(served.port) as second,
    ):
        first.send(MORE_CONNECTION, settings(INITIAL_WINDOW_SIZE=ANY_WINDOW))
        first.send(first.headers(1, "/test.Test/Chat"))
        for _ in range(12):
            first.send(first.data(1, message(bytes(15_000))))
        await first.has_heard()
        kept = kept_of(*[bytes(15_000)] * 12)
        assert served.server.kept_bytes == kept
        # A part of a message counts as well.
        second.send(second.headers(1, "/test.Test/Echo"))
        second.send(second.data(1, message(bytes(20_000))[:16_000]))
        await second.has_heard()
        assert served.server.kept_bytes == kept + 16_000
        second.send(second.headers(3, "/test.Test/Echo"), second.data(3, message(bytes(5_000))))
        answer = await second.answer(3)
        assert answer.status == RESOURCE_EXHAUSTED
        assert "of all calls together" in answer.headers["grpc-message"]
        assert served.server.kept_bytes == kept + 16_000
        served.handlers.may_go_on.set()
        for _ in range(12):
            await first.take(frames.DATA, 1)
        await until(lambda: served.server.kept_bytes == 16_000)
        second.send(second.data(1, bytes(4_005), ends=True))
        assert (await second.answer(1)).messages == [bytes(20_000)]


async def test_a_large_request_is_kept_until_it_is_answered(served: Served) -> None:
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=ANY_WINDOW) as client:
        client.send(client.headers(1, "/test.Test/Wait"))
        client.send(*client.in_frames(1, message(bytes(50_000))))
        await until(lambda: served.handlers.began == 1)
        assert served.server.kept_bytes == kept_of(bytes(50_000))
        served.handlers.may_go_on.set()
        assert (await client.answer(1)).messages == [bytes(50_000)]
        await served.is_empty()


async def test_answers_that_nobody_takes_have_a_limit_too(serve: Serve) -> None:
    served = await serve(kept_bytes_max=50_000)
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=0) as client:
        for stream_id in (1, 3, 5):
            client.send(client.unary(stream_id, "/test.Test/Echo", bytes(15_000)))
        await until(lambda: served.server.kept_bytes == 3 * 15_005)
        client.send(client.unary(7, "/test.Test/Echo", bytes(15_000)))
        client.send(client.unary(9, "/test.Test/Repeat", b"3,10000"))
        for stream_id in (7, 9):
            answer = await client.answer(stream_id)
            assert (answer.status, answer.data) == (RESOURCE_EXHAUSTED, b"")
        client.send(*(frames.window_update(stream_id, 20_000) for stream_id in (1, 3, 5)))
        for stream_id in (1, 3, 5):
            assert (await client.answer(stream_id)).messages == [bytes(15_000)]
        await served.is_empty()


async def test_a_complete_answer_that_nobody_takes_is_given_up(serve: Serve) -> None:
    """And neither one that is taken slowly, nor one whose handler may still write."""
    served = await serve(unread_s_max=1.0)
    async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=0) as client:
        client.send(client.unary(1, "/test.Test/Echo", bytes(10_000)))
        client.send(client.unary(3, "/test.Test/Echo", bytes(10_000)))
        client.send(client.unary(5, "/test.Test/Repeat", b"100,10000"))

        async def take_slowly() -> None:
            while True:
                client.send(frames.window_update(3, 1))
                await asyncio.sleep(0.01)

        taking = asyncio.create_task(take_slowly())
        reset = await client.take(frames.RST_STREAM)
        taking.cancel()
        assert (reset.stream_id, int.from_bytes(reset.payload)) == (1, ErrorCode.CANCEL)
        client.send(MORE_CONNECTION, settings(INITIAL_WINDOW_SIZE=10**7))
        assert (await client.answer(3)).messages == [bytes(10_000)]
        assert len((await client.answer(5)).messages) == 100
        await served.is_empty()


async def test_a_peer_that_never_reads_is_cut_off(serve: Serve) -> None:
    served = await serve(unread_bytes_max=100_000, unread_s_max=0.5)
    with capture_logs() as logs:
        async with await FrameClient.connect(served.port, INITIAL_WINDOW_SIZE=ANY_WINDOW) as client:
            client.stop_reading()
            client.send(MORE_CONNECTION)
            for stream_id in range(1, 41, 2):
                client.send(client.unary(stream_id, "/test.Test/Forever", b""))
            # It has filled what lies between us, and handlers wait.
            await until(lambda: served.server.kept_bytes > UNSENT_BYTES_MAX)
            await served.is_empty()
            assert served.server.connections == 0
    assert [(each["action"], each["why"]) for each in logs] == [("connection_cut", "does not read")]
    assert served.handlers.cancelled > 0
