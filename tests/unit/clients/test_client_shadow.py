"""A shadow phase: pages of its comparison, and the cutover."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from clients import ChangeUnknown, CounterClient, Origin, ShadowCount, ShadowOff
from counter import errors
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter.v1 import namespace_service_pb2 as namespace_pb
from counter.v1 import namespace_service_pb2_grpc as namespace_pb_grpc
from tests.unit.clients.conftest import refuse_with

NAMES = [f"c{at}" for at in range(5)]


class Phase(pb_grpc.CounterServiceServicer, namespace_pb_grpc.NamespaceServiceServicer):
    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.refusal: errors.TallyError | None = None
        self.broken_answers = 0

    async def _begin(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        if self.refusal is not None:
            await refuse_with(self.refusal, context)
        if self.broken_answers:
            self.broken_answers -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "broken")

    async def CompareShadow(self, request: pb.CompareShadowRequest, context: Any) -> Any:
        await self._begin(request, context)
        names = [name for name in NAMES if name > request.page_token]
        page, rest = names[: request.page_size], names[request.page_size :]
        counters = [
            pb.ShadowCount(counter_name=name, count=10, shadow_count=int(name[1:])) for name in page
        ]
        return pb.CompareShadowResponse(counters=counters, next_page_token=page[-1] if rest else "")

    async def CutoverNamespace(
        self, request: namespace_pb.CutoverNamespaceRequest, context: Any
    ) -> Any:
        await self._begin(request, context)
        return namespace_pb.CutoverNamespaceResponse(
            version=namespace_pb.Version(
                version=request.expected_version + 1, origin=namespace_pb.Version.ORIGIN_CUT_OVER
            )
        )


@pytest.fixture
def phase() -> Phase:
    return Phase()


@pytest.fixture
async def target(phase: Phase) -> AsyncIterator[str]:
    server = grpc.aio.server()
    pb_grpc.add_CounterServiceServicer_to_server(phase, server)
    namespace_pb_grpc.add_NamespaceServiceServicer_to_server(phase, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def all_of(client: Any, **options: Any) -> list[ShadowCount]:
    compared = client.client.compare_shadow(**options)
    if isinstance(client.client, CounterClient):
        return [each async for each in compared]
    return await asyncio.to_thread(list, compared)


async def test_a_comparison_reads_every_page(client: Any, phase: Phase) -> None:
    phase.broken_answers = 1
    found = await all_of(client, page_size=2)
    assert found == [
        ShadowCount(counter=name, count=10, shadow_count=at) for at, name in enumerate(NAMES)
    ]
    assert [each.difference for each in found] == [10, 9, 8, 7, 6]
    assert [each.page_token for each in phase.requests] == ["", "", "c1", "c3"]
    assert {each.namespace for each in phase.requests} == {"plays"}


async def test_one_page_of_a_comparison(client: Any) -> None:
    page = await client("compare_shadow_page", page_size=4)
    assert [each.counter for each in page.counters] == NAMES[:4]
    rest = await client("compare_shadow_page", page_token=page.next_page_token)
    assert ([each.counter for each in rest.counters], rest.next_page_token) == (NAMES[4:], "")


CUTOVER: dict[str, Any] = {"expected_version": 7, "author": "oncall", "reason": "exact now"}


async def test_a_cutover(client: Any, phase: Phase) -> None:
    version = await client("cutover_namespace", "hits", **CUTOVER)
    assert (version.version, version.origin) == (8, Origin.CUT_OVER)
    assert phase.requests == [namespace_pb.CutoverNamespaceRequest(namespace="hits", **CUTOVER)]


async def test_a_cutover_whose_answer_is_lost_is_sent_again(client: Any, phase: Phase) -> None:
    phase.broken_answers = 2
    assert (await client("cutover_namespace", "hits", **CUTOVER)).version == 8
    assert len(phase.requests) == 3
    phase.broken_answers = 1_000
    with pytest.raises(ChangeUnknown, match="the cutover of namespace 'hits'"):
        await client("cutover_namespace", "hits", timeout_s=0.2, **CUTOVER)


async def test_a_namespace_without_a_shadow(client: Any, phase: Phase) -> None:
    phase.refusal = errors.ShadowOff("namespace plays is in no shadow phase")
    with pytest.raises(ShadowOff):
        await client("compare_shadow_page")
    with pytest.raises(ShadowOff):
        await client("cutover_namespace", "plays", **CUTOVER)
