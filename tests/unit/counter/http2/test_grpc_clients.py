"""What callers see who use gRPC's own clients for Python: the one for asyncio, and the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import BytesValue
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from counter.rpc.http2.connection import Connection
from tests.unit.counter.http2.conftest import Serve
from tests.unit.counter.http2.services import Served, until

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


class Client(Protocol):
    async def unary(self, method: str, body: bytes = b"", **how: Any) -> bytes: ...

    async def trailing(self, method: str, body: bytes = b"", **how: Any) -> tuple[Any, Any]:
        """The metadata before and after the answer of a unary call."""
        ...

    async def answers(self, method: str, body: bytes, **how: Any) -> list[bytes]: ...

    async def sent(self, method: str, *bodies: bytes, **how: Any) -> bytes: ...

    async def exchanged(self, method: str, *bodies: bytes, **how: Any) -> list[bytes]: ...

    async def given_up(self, method: str, when: Callable[[], Awaitable[None]]) -> grpc.StatusCode:
        """Cancels a unary call then."""
        ...


class AsyncClient:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def unary(self, method: str, body: bytes = b"", **how: Any) -> bytes:
        return await self._channel.unary_unary(f"/test.Test/{method}")(body, **how)

    async def trailing(self, method: str, body: bytes = b"", **how: Any) -> tuple[Any, Any]:
        call = self._channel.unary_unary(f"/test.Test/{method}")(body, **how)
        await call
        return await call.initial_metadata(), await call.trailing_metadata()

    async def answers(self, method: str, body: bytes, **how: Any) -> list[bytes]:
        call = self._channel.unary_stream(f"/test.Test/{method}")(body, **how)
        return [each async for each in call]

    async def sent(self, method: str, *bodies: bytes, **how: Any) -> bytes:
        return await self._channel.stream_unary(f"/test.Test/{method}")(iter(bodies), **how)

    async def exchanged(self, method: str, *bodies: bytes, **how: Any) -> list[bytes]:
        call = self._channel.stream_stream(f"/test.Test/{method}")(iter(bodies), **how)
        return [each async for each in call]

    async def given_up(self, method: str, when: Callable[[], Awaitable[None]]) -> grpc.StatusCode:
        call = self._channel.unary_unary(f"/test.Test/{method}")(b"")
        await when()
        call.cancel()
        return await call.code()


class BlockingClient:
    """Every call on a thread of its own, as its users have it."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    async def unary(self, method: str, body: bytes = b"", **how: Any) -> bytes:
        call = self._channel.unary_unary(f"/test.Test/{method}")
        return await asyncio.to_thread(call, body, **how)

    async def trailing(self, method: str, body: bytes = b"", **how: Any) -> tuple[Any, Any]:
        call = self._channel.unary_unary(f"/test.Test/{method}")
        _, done = await asyncio.to_thread(call.with_call, body, **how)
        return done.initial_metadata(), done.trailing_metadata()

    async def answers(self, method: str, body: bytes, **how: Any) -> list[bytes]:
        call = self._channel.unary_stream(f"/test.Test/{method}")
        return await asyncio.to_thread(lambda: list(call(body, **how)))

    async def sent(self, method: str, *bodies: bytes, **how: Any) -> bytes:
        call = self._channel.stream_unary(f"/test.Test/{method}")
        return await asyncio.to_thread(call, iter(bodies), **how)

    async def exchanged(self, method: str, *bodies: bytes, **how: Any) -> list[bytes]:
        call = self._channel.stream_stream(f"/test.Test/{method}")
        return await asyncio.to_thread(lambda: list(call(iter(bodies), **how)))

    async def given_up(self, method: str, when: Callable[[], Awaitable[None]]) -> grpc.StatusCode:
        call = self._channel.unary_unary(f"/test.Test/{method}").future(b"")
        await when()
        call.cancel()
        return await asyncio.to_thread(call.code)


Connect = Callable[..., Any]


@pytest.fixture(params=["grpc.aio", "grpc"])
def connect(request: pytest.FixtureRequest) -> Connect:
    @asynccontextmanager
    async def connected(served: Served, **options: int) -> AsyncIterator[Client]:
        chosen = [*OPTIONS, *((f"grpc.{name}", value) for name, value in options.items())]
        if request.param == "grpc":
            with grpc.insecure_channel(served.address, options=chosen) as channel:
                yield BlockingClient(channel)
        else:
            async with grpc.aio.insecure_channel(served.address, options=chosen) as channel:
                yield AsyncClient(channel)

    return connected


async def test_methods_of_all_kinds(served: Served, connect: Connect) -> None:
    served.handlers.may_go_on.set()
    bodies = [b"a", b"", b"c" * 100_000]
    async with connect(served) as client:
        for body in bodies:
            assert await client.unary("Echo", body) == body
        assert await client.answers("Repeat", b"3,4") == [b"\0" * 4, b"\1" * 4, b"\2" * 4]
        assert await client.answers("Repeat", b"0,4") == []
        assert await client.sent("Sum", *bodies) == b"100001"
        assert await client.sent("Sum") == b"0"
        for method in ("Chat", "Talk"):
            assert await client.exchanged(method, *bodies) == bodies
            assert await client.exchanged(method) == []
        await served.is_empty()


async def test_many_calls_at_once(served: Served, connect: Connect) -> None:
    async with connect(served) as client:
        bodies = [b"%d" % number for number in range(300)]
        answers = await asyncio.gather(*(client.unary("Echo", body) for body in bodies))
        assert answers == bodies


async def test_metadata_in_both_directions(served: Served, connect: Connect) -> None:
    async def handler(request: bytes, context: Any) -> bytes:
        served.handlers.seen = context.invocation_metadata()
        await context.send_initial_metadata((("before", "1"), ("before-bin", b"\0\xff")))
        context.set_trailing_metadata((("after", "a"), ("after", "b"), ("after-bin", b"")))
        return request

    served.handlers.does = handler
    async with connect(served) as client:
        sent = (("key", "value"), ("key", "other"), ("any-bin", bytes(range(256))))
        before, after = await client.trailing("Do", metadata=sent, timeout=60)
        names = {key for key, _ in served.handlers.seen}
        assert names == {"user-agent", "key", "any-bin"}
        assert tuple(each for each in served.handlers.seen if each[0] != "user-agent") == sent
        assert [tuple(each) for each in before] == [("before", "1"), ("before-bin", b"\0\xff")]
        assert [tuple(each) for each in after] == [
            ("after", "a"),
            ("after", "b"),
            ("after-bin", b""),
        ]


async def test_errors_with_details(served: Served, connect: Connect) -> None:
    """Rich ones, of a few KB: gRPC's own clients take no more than 8 of metadata for sure."""
    detail = AnyMessage()
    detail.Pack(error_details_pb2.ErrorInfo(reason="WHY", metadata={"long": "x" * 5_000}))
    status = status_pb2.Status(
        code=code_pb2.FAILED_PRECONDITION, message="100 % größer\n", details=[detail]
    )

    async def unary(request: bytes, context: Any) -> bytes:
        await context.abort_with_status(rpc_status.to_status(status))
        return b""

    async def stream(requests: Any, context: Any) -> None:
        await context.write(b"first")
        await unary(b"", context)

    async with connect(served) as client:
        for does, call in (
            (unary, lambda: client.unary("Do")),
            (stream, lambda: client.exchanged("DoStream", b"")),
        ):
            served.handlers.does = does
            with pytest.raises(grpc.RpcError) as raised:
                await call()
            error: Any = raised.value
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert error.details() == "100 % größer\n"
            assert rpc_status.from_call(error) == status


async def test_failures_have_the_codes_that_grpc_gives_them(
    served: Served, connect: Connect
) -> None:
    async with connect(served) as client:
        for call, code in (
            (lambda: client.unary("Nothing"), grpc.StatusCode.UNIMPLEMENTED),
            (lambda: client.unary("Strict", b"bad"), grpc.StatusCode.INTERNAL),
            (lambda: client.answers("Repeat", b"no number"), grpc.StatusCode.UNKNOWN),
            (lambda: client.unary("Wait", timeout=0.3), grpc.StatusCode.DEADLINE_EXCEEDED),
            (lambda: client.exchanged("Chat", timeout=0.3), grpc.StatusCode.DEADLINE_EXCEEDED),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                await call()
            error: Any = raised.value
            assert error.code() is code
        await served.is_empty()
        assert served.handlers.began == served.handlers.cancelled == 2


async def test_a_deadline_is_known_to_the_handler(served: Served, connect: Connect) -> None:
    async def handler(request: bytes, context: Any) -> bytes:
        served.handlers.seen = context.time_remaining()
        return b""

    served.handlers.does = handler
    async with connect(served) as client:
        await client.unary("Do", timeout=100)
        # gRPC tells the server of so long a time in whole seconds, rounded up.
        assert 40 < served.handlers.seen <= 101
        await client.unary("Do")
        assert served.handlers.seen is None


async def test_a_call_that_is_cancelled(served: Served, connect: Connect) -> None:
    async def when_it_waits() -> None:
        await until(lambda: served.handlers.began == 1)

    async with connect(served) as client:
        assert await client.given_up("Wait", when_it_waits) is grpc.StatusCode.CANCELLED
        await until(lambda: served.handlers.cancelled == 1)
        await served.is_empty()
        assert await client.unary("Echo", b"next") == b"next"


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_messages(
    serve: Serve, connect: Connect, compression: grpc.Compression
) -> None:
    served = await serve(message_bytes_max=1_000_000)
    async with connect(served) as client:
        for body in (b"", b"short", bytes(1_000_000)):
            assert await client.unary("Echo", body, compression=compression) == body
        sizes = await client.sent("Sum", *[bytes(100_000)] * 20, compression=compression)
        assert sizes == b"2000000"
        with pytest.raises(grpc.RpcError) as raised:
            await client.unary("Echo", bytes(1_000_001), compression=compression)
        error: Any = raised.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "decompressed" in error.details()
        await served.is_empty()


async def test_the_largest_message_and_one_that_is_larger(served: Served, connect: Connect) -> None:
    """Of 16 MiB, which is what servers of ours take."""
    largest = served.server.limits.message_bytes_max
    assert largest == 16 * 2**20
    body = bytes(largest)
    async with connect(served) as client:
        assert await client.unary("Echo", body) == body
        assert await client.exchanged("Talk", body, b"", body) == [body, b"", body]
        for call in (client.unary("Echo", body + b"x"), client.sent("Sum", b"", body + b"x")):
            with pytest.raises(grpc.RpcError) as raised:
                await call
            error: Any = raised.value
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await client.unary("Echo", b"next") == b"next"
        await served.is_empty()


async def test_too_many_calls_at_once(serve: Serve, connect: Connect) -> None:
    served = await serve(calls_max=3)
    async with connect(served) as client:
        waiting = [asyncio.create_task(client.unary("Wait", b"waits")) for _ in range(3)]
        await until(lambda: served.handlers.began == 3)
        with pytest.raises(grpc.RpcError) as raised:
            await client.unary("Echo")
        error: Any = raised.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        served.handlers.may_go_on.set()
        assert await asyncio.gather(*waiting) == [b"waits"] * 3
        assert await client.unary("Echo", b"next") == b"next"


async def test_too_many_streams_of_a_connection_wait_for_their_turn(
    serve: Serve, connect: Connect
) -> None:
    """Clients keep to what the server says about it by themselves."""
    served = await serve(streams_max=3)
    async with connect(served) as client:
        assert await client.unary("Echo", b"first") == b"first"
        waiting = [asyncio.create_task(client.unary("Wait", b"waits")) for _ in range(10)]
        await until(lambda: served.handlers.began == 3)
        served.handlers.may_go_on.set()
        assert await asyncio.gather(*waiting) == [b"waits"] * 10


async def test_pings_of_a_client_that_wants_to_know(
    served: Served, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings = 0
    ping = Connection._ping

    def counted(self: Connection, flags: int, payload: bytes) -> None:
        nonlocal pings
        pings += 1
        ping(self, flags, payload)

    monkeypatch.setattr(Connection, "_ping", counted)
    async with connect(
        served,
        keepalive_time_ms=20,
        keepalive_timeout_ms=20_000,
        **{"http2.max_pings_without_data": 0},
    ) as client:
        waiting = asyncio.create_task(client.unary("Wait", b"waits"))
        await until(lambda: pings >= 2)
        served.handlers.may_go_on.set()
        assert await waiting == b"waits"


async def test_a_connection_that_ends_is_not_noticed(serve: Serve, connect: Connect) -> None:
    """Callers go on on the next one."""
    served = await serve(connection_age_s=0.2)
    peers: set[str] = set()

    async def peer(request: bytes, context: Any) -> bytes:
        peers.add(context.peer())
        return b""

    served.handlers.does = peer
    async with connect(served) as client:
        async with asyncio.timeout(60):
            while len(peers) < 4:
                await asyncio.gather(*(client.unary("Do") for _ in range(10)))


# Streams whose other end is slow.


def numbered(count: int, size: int) -> Iterator[bytes]:
    return (number.to_bytes(4) * (size // 4) for number in range(count))


async def test_a_caller_that_reads_slowly_holds_the_handler_back(served: Served) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        call = channel.unary_stream("/test.Test/Repeat")(b"2000,20000")
        assert len(await call.read()) == 20_000
        # 40 MB: the handler has to wait for somebody to take them.
        await until(lambda: served.server.kept_bytes > 200_000)
        held_at = -1
        while held_at != served.handlers.began:
            held_at = served.handlers.began
            await asyncio.sleep(0.1)
        assert held_at < 2_000
        for number in range(1, 2_000):
            assert await call.read() == bytes((number % 256,)) * 20_000
        assert await call.read() is grpc.aio.EOF


async def test_a_handler_that_reads_slowly_holds_the_caller_back(served: Served) -> None:
    sent = 0

    async def send() -> AsyncIterator[bytes]:
        nonlocal sent
        for body in numbered(2_000, 20_000):
            sent += 1
            yield body

    async with grpc.aio.insecure_channel(served.address) as channel:
        call = channel.stream_stream("/test.Test/Chat")(send())
        await until(lambda: served.server.kept_bytes > 200_000)
        held_at = -1
        while held_at != sent:
            held_at = sent
            await asyncio.sleep(0.1)
        assert held_at < 2_000
        assert served.server.kept_bytes < 2 * served.server.limits.stream_window_bytes
        served.handlers.may_go_on.set()
        expected = numbered(2_000, 20_000)
        async for answer in call:
            assert answer == next(expected)
        assert served.handlers.read == list(numbered(2_000, 20_000))


async def test_typed_messages(served: Served) -> None:
    """As generated code registers and calls them."""

    async def twice(request: BytesValue, context: Any) -> BytesValue:
        return BytesValue(value=request.value * 2)

    handler = grpc.unary_unary_rpc_method_handler(
        twice, BytesValue.FromString, BytesValue.SerializeToString
    )
    generic = grpc.method_handlers_generic_handler("test.Late", {"Twice": handler})
    served.server.add_generic_rpc_handlers((generic,))
    assert served.server.has_service("test.Late")
    async with grpc.aio.insecure_channel(served.address) as channel:
        call = channel.unary_unary(
            "/test.Late/Twice", BytesValue.SerializeToString, BytesValue.FromString
        )
        assert (await call(BytesValue(value=b"ab"))).value == b"abab"
