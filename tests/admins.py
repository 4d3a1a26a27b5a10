"""Admins at work on the namespaces of a fleet, all at once and against each other.

Whoever wants the next version says which one is live; of two that want the same one, one loses and
is told so. All namespaces of a version carry one mark in their descriptions, so that half of a
version would be seen at once.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Mapping

import grpc

from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import counter_service_pb2_grpc as counter_grpc
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceStub
from tests.calls import refusal_of
from tests.load import open_channel
from tests.processes import NAMESPACES

# Takes deltas of 1,500 or not, by the version. Only `Batches` add to it.
PROBE_DELTA = 1_500
BASE = NAMESPACES | {"probe": "namespace: probe\nstrategy: accurate\nmax_delta: 2000\n"}
_marks = itertools.count(1)


def files_of(definitions: Mapping[str, str]) -> list[pb.NamespaceFile]:
    return [
        pb.NamespaceFile(path=f"{name}.yaml", content=text) for name, text in definitions.items()
    ]


async def apply(stub: NamespaceServiceStub, wanted: dict[str, str]) -> pb.Version:
    planned = await stub.PlanNamespaces(pb.PlanNamespacesRequest(files=files_of(wanted)))
    request = pb.ApplyNamespacesRequest(
        files=files_of(wanted),
        expected_version=planned.base_version,
        author="oncall",
        reason="a test",
        allow_data_loss=True,
    )
    return (await stub.ApplyNamespaces(request)).version


async def rollback(stub: NamespaceServiceStub, version: int) -> pb.Version:
    listed = await stub.ListNamespaces(pb.ListNamespacesRequest())
    request = pb.RollbackNamespacesRequest(
        version=version,
        expected_version=listed.version,
        author="oncall",
        reason="a test",
        allow_data_loss=True,
    )
    return (await stub.RollbackNamespaces(request)).version


async def all_run(stub: NamespaceServiceStub, version: int, processes: int) -> None:
    """Waits until so many processes are there, and each says that it runs this version."""
    async with asyncio.timeout(30):
        while True:
            answer = await stub.ListProcesses(pb.ListProcessesRequest())
            if [each.version for each in answer.processes] == [version] * processes:
                return
            await asyncio.sleep(0.05)


def marked(chance: random.Random) -> dict[str, str]:
    """The tests' namespaces, changed in a way that callers notice or not, all with one mark."""
    mark = f"description: mark {next(_marks)}\n"
    wanted = {name: text + mark for name, text in BASE.items()}
    wanted["probe"] = wanted["probe"].replace("2000", chance.choice(["1000", "2000"]))
    # Not of quotas: those who add to them read their own adds back.
    wanted["plays"] = wanted["plays"].replace("eventual", chance.choice(["eventual", "accurate"]))
    wanted["quotas"] += f"max_delta: {chance.choice([999, 1000, 5000])}\n"
    # Nobody adds to this one: created again it would start at 0.
    if chance.random() < 0.2:
        del wanted["recent"]
    return wanted


class Admin:
    def __init__(self, name: str, address: str, done: Counter[str], *, since: int) -> None:
        """Rolls back to no version before `since`."""
        self._name = name
        self._since = since
        self._chance = random.Random(name)
        self._channel = open_channel(address)
        self._stub = NamespaceServiceStub(self._channel)
        self._done = done

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                try:
                    await self._change()
                except grpc.aio.AioRpcError as error:
                    await self._note(error)
        finally:
            await self._channel.close()

    async def _change(self) -> None:
        listed = await self._stub.ListVersions(pb.ListVersionsRequest(page_size=30), timeout=5)
        live = listed.versions[0].version
        kind = self._chance.random()
        if kind < 0.15:
            await self._apply({"plays": "namespace: plays\nstrategy: eventual\nmax_delta: "}, live)
        elif kind < 0.3:
            low = BASE | {"plays": BASE["plays"] + "cardinality: low\n"}
            await self._apply(low, live)
        elif kind < 0.5:
            earlier = [each.version for each in listed.versions if each.version >= self._since]
            back = pb.RollbackNamespacesRequest(
                version=self._chance.choice(earlier),
                expected_version=live,
                author=self._name,
                reason="a rollback",
                allow_data_loss=True,
            )
            await self._stub.RollbackNamespaces(back, timeout=5)
            self._done["rolled back"] += 1
        else:
            await self._apply(marked(self._chance), live)
            self._done["applied"] += 1

    async def _apply(self, wanted: Mapping[str, str], live: int) -> None:
        request = pb.ApplyNamespacesRequest(
            files=files_of(wanted),
            expected_version=live,
            author=self._name,
            reason="a change",
            allow_data_loss=True,
        )
        await self._stub.ApplyNamespaces(request, timeout=5)

    async def _note(self, error: grpc.aio.AioRpcError) -> None:
        if error.code() is grpc.StatusCode.UNAVAILABLE or error.code() is (
            grpc.StatusCode.DEADLINE_EXCEEDED
        ):
            self._done["away"] += 1
            await asyncio.sleep(0.05)
        else:
            self._done[refusal_of(error).reason] += 1


async def assert_whole(address: str, stop: asyncio.Event, done: Counter[str]) -> None:
    """Every answer of a control plane is one version: all of its namespaces have one mark."""
    async with open_channel(address) as channel:
        stub = NamespaceServiceStub(channel)
        while not stop.is_set():
            try:
                answer = await stub.ListNamespaces(pb.ListNamespacesRequest(), timeout=5)
                watched = await stub.WatchNamespaces(
                    pb.WatchNamespacesRequest(known_version=answer.version), timeout=1
                ).read()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.05)
                continue
            for namespaces in (answer.namespaces, watched.namespaces):
                marks = {each.description for each in namespaces}
                assert len(marks) == 1, marks
                done["whole"] += 1


class Batches:
    """Batches that one version takes as a whole and another refuses as a whole."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.taken = self.refused = self.unknown = 0

    @property
    def counts(self) -> tuple[int, int]:
        """Of each counter, at least and at most."""
        return PROBE_DELTA * self.taken, PROBE_DELTA * (self.taken + self.unknown)

    async def run(self, stop: asyncio.Event) -> None:
        items = [
            counter_pb.AddCountItem(counter_name=f"c{at}", delta=PROBE_DELTA) for at in range(200)
        ]
        request = counter_pb.BatchAddCountRequest(namespace="probe", items=items)
        async with open_channel(self._address) as channel:
            stub = counter_grpc.CounterServiceStub(channel)
            while not stop.is_set():
                try:
                    answer = await stub.BatchAddCount(request, timeout=5)
                except grpc.aio.AioRpcError:
                    self.unknown += 1
                    await asyncio.sleep(0.01)
                    continue
                codes = {each.code for each in answer.outcomes}
                assert len(codes) == 1, "half of a batch was judged by another version"
                if codes == {0}:
                    self.taken += 1
                else:
                    self.refused += 1
                await asyncio.sleep(0.01)
