"""A control plane's stream wakes whoever follows the store; without one nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from counter.rpc import namespace_watch
from counter.rpc.namespace_watch import NamespaceWatch
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import (
    NamespaceServiceServicer,
    add_NamespaceServiceServicer_to_server,
)


class ControlPlane(NamespaceServiceServicer):
    def __init__(self) -> None:
        self.versions: asyncio.Queue[int] = asyncio.Queue()
        self.known: list[int] = []
        self.server = grpc.aio.server()
        add_NamespaceServiceServicer_to_server(self, self.server)

    async def start(self, port: int = 0) -> int:
        bound = self.server.add_insecure_port(f"127.0.0.1:{port}")
        await self.server.start()
        return bound

    async def WatchNamespaces(
        self, request: pb.WatchNamespacesRequest, context: Any
    ) -> AsyncIterator[pb.WatchNamespacesResponse]:
        self.known.append(request.known_version)
        while True:
            version = await self.versions.get()
            yield pb.WatchNamespacesResponse(version=pb.Version(version=version))


class Follower:
    def __init__(self) -> None:
        self.woken = asyncio.Semaphore(0)

    def wake(self) -> None:
        self.woken.release()

    async def is_woken(self) -> None:
        async with asyncio.timeout(20):
            await self.woken.acquire()


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_watch, "RETRY_S", 0.01)


async def test_each_new_version_wakes() -> None:
    plane, follower = ControlPlane(), Follower()
    port = await plane.start()
    watch = NamespaceWatch([f"127.0.0.1:{port}"], version=lambda: 7, wake=follower.wake)
    watching = asyncio.create_task(watch.run())
    for version in (8, 9):
        plane.versions.put_nowait(version)
        await follower.is_woken()
    assert plane.known == [7]
    watching.cancel()
    await plane.server.stop(None)


async def test_one_that_is_away_is_told_once_and_found_again() -> None:
    first, follower = ControlPlane(), Follower()
    port = await first.start()
    await first.server.stop(None)
    watch = NamespaceWatch([f"127.0.0.1:{port}"], version=lambda: 0, wake=follower.wake)
    with capture_logs() as logs:
        watching = asyncio.create_task(watch.run())
        async with asyncio.timeout(20):
            while not logs:  # noqa: ASYNC110 - the log sets no event
                await asyncio.sleep(0.01)
        again = ControlPlane()
        await again.start(port)
        again.versions.put_nowait(1)
        await follower.is_woken()
    watching.cancel()
    await again.server.stop(None)
    assert [each["action"] for each in logs] == ["watch_broken", "watch_resumed"]


async def test_another_control_plane_is_asked_when_one_is_away() -> None:
    gone, there, follower = ControlPlane(), ControlPlane(), Follower()
    gone_port, there_port = await gone.start(), await there.start()
    await gone.server.stop(None)
    addresses = [f"127.0.0.1:{gone_port}", f"127.0.0.1:{there_port}"]
    watch = NamespaceWatch(addresses, version=lambda: 0, wake=follower.wake)
    watching = asyncio.create_task(watch.run())
    there.versions.put_nowait(1)
    await follower.is_woken()
    watching.cancel()
    await there.server.stop(None)


async def test_without_addresses_there_is_nothing_to_do() -> None:
    async with asyncio.timeout(10):
        await NamespaceWatch([], version=lambda: 0, wake=lambda: None).run()
