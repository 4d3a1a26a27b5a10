"""A server with handlers of every kind, whose messages are plain bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from counter.rpc.http2.server import Http2Server, Limits

WITHIN_S = 30.0


class Handlers:
    """What tests look at while handlers run."""

    def __init__(self) -> None:
        self.began = 0
        self.cancelled = 0
        self.may_go_on = asyncio.Event()
        self.read: list[bytes] = []
        self.seen: Any = None
        self.does: Callable[[Any, Any], Any] | None = None

    async def Echo(self, request: bytes, context: Any) -> bytes:
        return request

    async def Wait(self, request: bytes, context: Any) -> bytes:
        """Until it may go on."""
        self.began += 1
        try:
            await self.may_go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return request

    async def Do(self, request: bytes, context: Any) -> Any:
        """What the test says."""
        assert self.does is not None
        return await self.does(request, context)

    async def Repeat(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Answers `times,size`."""
        times, size = map(int, request.split(b","))
        for number in range(times):
            self.began = number + 1
            yield bytes((number % 256,)) * size

    async def Forever(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Until the caller has enough of it."""
        try:
            while True:
                yield bytes(100_000)
        finally:
            self.cancelled += 1

    async def Sum(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"%d" % sum([len(each) async for each in requests])

    async def Chat(self, requests: Any, context: Any) -> None:
        """Answers each message with itself, as soon as it may go on."""
        self.began += 1
        try:
            await self.may_go_on.wait()
            while (request := await context.read()) is not grpc.aio.EOF:
                self.read.append(request)
                await context.write(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def Talk(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for each in requests:
            yield each

    async def DoStream(self, requests: Any, context: Any) -> None:
        assert self.does is not None
        await self.does(requests, context)

    def generic(self) -> Any:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        methods = {
            **{name: unary(getattr(self, name)) for name in ("Echo", "Wait", "Do")},
            "Strict": unary(self.Echo, request_deserializer=_not_bad),
            "Repeat": grpc.unary_stream_rpc_method_handler(self.Repeat),
            "Forever": grpc.unary_stream_rpc_method_handler(self.Forever),
            "Sum": grpc.stream_unary_rpc_method_handler(self.Sum),
            **{name: stream(getattr(self, name)) for name in ("Chat", "Talk", "DoStream")},
        }
        return grpc.method_handlers_generic_handler("test.Test", methods)


def _not_bad(body: bytes) -> bytes:
    if body == b"bad":
        raise ValueError("it is bad")
    return body


class Served:
    def __init__(self, limits: Limits, connection_age_s: float | None) -> None:
        self.server = Http2Server(limits, connection_age_s=connection_age_s)
        self.handlers = Handlers()
        self.server.add_generic_rpc_handlers((self.handlers.generic(),))
        self.port = 0

    async def start(self, listen: str = "127.0.0.1:0") -> "Served":
        self.port = await self.server.start(listen, share_port=False)
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def is_empty(self) -> None:
        """Waits until no call is under way, and nothing is kept for any."""
        await until(lambda: (self.server.calls, self.server.kept_bytes) == (0, 0))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 (what is waited for is a number)
            await asyncio.sleep(0.001)
