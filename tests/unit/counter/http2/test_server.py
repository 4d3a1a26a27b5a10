"""Where a server listens, how long connections live, and how everything ends."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from counter.rpc.http2 import frames
from counter.rpc.http2.frames import STREAM_ID_MAX, ErrorCode
from tests.unit.counter.http2.conftest import Serve
from tests.unit.counter.http2.frame_client import FrameClient
from tests.unit.counter.http2.services import Served, until

HAS_IPV6 = socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")


# Where it listens.


@pytest.mark.parametrize(
    ("listen", "hosts"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("localhost", ["127.0.0.1", "::1"]),
        ("[::1]", ["::1"]),
        ("0.0.0.0", ["127.0.0.1", "::1"]),
        ("[::]", ["127.0.0.1", "::1"]),
    ],
)
async def test_it_listens_where_it_is_told(serve: Serve, listen: str, hosts: list[str]) -> None:
    assert HAS_IPV6, "these tests need IPv6 on the loopback device"
    served = await serve(listen=f"{listen}:0")
    peers: list[str] = []

    async def peer(request: bytes, context: Any) -> bytes:
        peers.append(context.peer())
        return b""

    served.handlers.does = peer
    for host in hosts:
        async with await FrameClient.connect(served.port, host=host) as client:
            client.send(client.unary(1, "/test.Test/Do", b""))
            assert (await client.answer(1)).status == 0
    shown = {"127.0.0.1": "ipv4:127.0.0.1:", "::1": "ipv6:[::1]:"}
    assert [each.rpartition(":")[0] + ":" for each in peers] == [shown[host] for host in hosts]


async def test_a_port_that_is_taken(serve: Serve, served: Served) -> None:
    before = open_files()
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        with pytest.raises(OSError, match="in use") as raised:
            await serve(listen=f"{host}:{served.port}")
        assert raised.value.errno == errno.EADDRINUSE
    await asyncio.sleep(0)
    assert open_files() == before


async def test_an_address_of_another_machine(serve: Serve) -> None:
    with pytest.raises(OSError, match="no address of this machine"):
        await serve(listen="192.0.2.1:0")


async def test_several_may_share_a_port_if_all_say_so(serve: Serve) -> None:
    first, second = await serve(), await serve()
    port = await first.server.start("127.0.0.1:0", share_port=True)
    assert await second.server.start(f"127.0.0.1:{port}", share_port=True) == port


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1_000) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@contextmanager
def files_max(number: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.asyncio(loop_factories=["uvloop"])  # the other one complains, at length
async def test_it_outlives_a_lack_of_files(served: Served) -> None:
    loop = asyncio.get_running_loop()
    peers = [socket.socket() for _ in range(20)]
    try:
        for each in peers:
            each.setblocking(False)
        with files_max(open_files() + 5):
            with pytest.raises(OSError, match="Too many open files"):
                [socket.socket() for _ in range(20)]
            for each in peers:
                await loop.sock_connect(each, ("127.0.0.1", served.port))
            await until(lambda: served.server.connections > 0)
            # The others are let go: as soon as a connection fails, there was no file for it.
            await until(lambda: any(is_closed(each) for each in peers))
            assert 0 < served.server.connections < len(peers)
    finally:
        for each in peers:
            each.close()
    await until(lambda: served.server.connections == 0)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Echo", b"well"))
        assert (await client.answer(1)).messages == [b"well"]


# Ages.


async def goaway(client: FrameClient) -> int:
    """The last stream that will be taken."""
    said = await client.take(frames.GOAWAY)
    assert int.from_bytes(said.payload[4:8]) == ErrorCode.NO_ERROR
    return int.from_bytes(said.payload[:4])


async def acknowledge(client: FrameClient) -> None:
    ping = await client.take(frames.PING)
    client.send(frames.frame(frames.PING, frames.ACK, 0, ping.payload))


async def test_an_old_connection_ends_without_a_lost_call(serve: Serve) -> None:
    served = await serve(connection_age_s=0.3)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b"old"))
        assert await goaway(client) == STREAM_ID_MAX
        # On its way while the server said that: it is taken.
        client.send(client.unary(3, "/test.Test/Echo", b"taken"))
        assert (await client.answer(3)).messages == [b"taken"]
        await acknowledge(client)
        assert await goaway(client) == 3
        # Now the caller knows; it is ignored, with everything about it.
        client.send(client.unary(5, "/test.Test/Echo", b"ignored"), frames.window_update(5, 1))
        client.send(frames.rst_stream(5, ErrorCode.CANCEL))
        await client.has_heard()
        served.handlers.may_go_on.set()
        assert (await client.answer(1)).messages == [b"old"]
        assert [each.stream_id for each in await client.rest() if each.stream_id] == []
        await until(lambda: served.server.connections == 0)


async def test_a_peer_that_does_not_answer_the_last_ping(serve: Serve) -> None:
    served = await serve(connection_age_s=0.1)
    async with await FrameClient.connect(served.port) as client:
        assert await goaway(client) == STREAM_ID_MAX
        assert await goaway(client) == 0
        assert await client.rest()


async def test_calls_on_an_old_connection_have_a_grace(serve: Serve) -> None:
    served = await serve(connection_age_s=0.1, grace_s=0.3)
    with capture_logs() as logs:
        async with await FrameClient.connect(served.port) as client:
            client.send(client.unary(1, "/test.Test/Wait", b""))
            await acknowledge(client)
            await client.rest()
            await served.is_empty()
    assert served.handlers.cancelled == 1
    assert [each["why"] for each in logs] == ["did not end in time"]


# The end.


async def test_a_stop_at_once_ends_all_handlers(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b""), client.headers(3, "/test.Test/Chat"))
        await until(lambda: served.handlers.began == 2)
        await served.server.stop(0)
        assert served.handlers.cancelled == 2
        assert (served.server.calls, served.server.connections) == (0, 0)
        await client.rest()
    with pytest.raises(ConnectionRefusedError):
        await FrameClient.connect_silently(served.port)


async def test_a_stop_waits_for_calls_and_no_longer(served: Served) -> None:
    async with (
        await FrameClient.connect(served.port) as busy,
        await FrameClient.connect(served.port) as idle,
        await FrameClient.connect_silently(served.port) as silent,
    ):
        busy.send(busy.unary(1, "/test.Test/Wait", b"under way"))
        await until(lambda: served.handlers.began == 1)
        stopping = asyncio.create_task(served.server.stop(3_600))
        await acknowledge(idle)
        await idle.rest()
        await silent.rest()
        await acknowledge(busy)
        assert not stopping.done()
        served.handlers.may_go_on.set()
        assert (await busy.answer(1)).messages == [b"under way"]
        await busy.rest()
        await stopping


async def test_a_stop_ends_calls_that_take_too_long(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b""))
        await until(lambda: served.handlers.began == 1)
        await served.server.stop(0.2)
        assert served.handlers.cancelled == 1
        assert served.server.calls == 0


async def test_a_stop_shortens_the_grace_of_old_connections(serve: Serve) -> None:
    served = await serve(connection_age_s=0.1, grace_s=3_600)
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b""))
        await acknowledge(client)
        await served.server.stop(0.1)
        assert served.handlers.cancelled == 1


async def test_it_can_be_stopped_twice(served: Served) -> None:
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Wait", b""))
        await until(lambda: served.handlers.began == 1)
        await asyncio.gather(served.server.stop(3_600), served.server.stop(0))
        assert served.handlers.cancelled == 1


async def test_a_stop_does_not_wait_for_ever_for_a_handler(served: Served) -> None:
    may_end = asyncio.Event()

    async def stubborn(request: bytes, context: Any) -> bytes:
        served.handlers.began += 1
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                served.handlers.cancelled += 1
        return b""

    served.handlers.does = stubborn
    async with await FrameClient.connect(served.port) as client:
        client.send(client.unary(1, "/test.Test/Do", b""))
        await until(lambda: served.handlers.began == 1)
        await served.server.stop(0)
        assert (served.handlers.cancelled, served.server.calls) == (1, 1)
        may_end.set()
        await served.is_empty()
