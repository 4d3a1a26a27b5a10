import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from control_plane import service
from control_plane.app import SERVICE_NAME, ControlPlane
from counter.clock import ManualClock
from counter.storage.memory.namespace_store import MemoryNamespaceStore
from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceStub

VIDEO = "namespace: video_plays\nstrategy: eventual\nmax_delta: 7\nowner: me\n"
API = """\
namespace: api_hits
strategy: rolling_window
rolling_window: {length: 300s}
history:
  - {step: 1m, retention: 7d}
  - {step: 1d, retention: 730d}
"""
HITS = "namespace: page_hits\nstrategy: best_effort\ndedupe_ttl: 1500ms\ncardinality: low\n"


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[NamespaceServiceStub]:
    (tmp_path / "video_plays.yaml").write_text(VIDEO)
    (tmp_path / "page_hits.yaml").write_text(HITS)
    (tmp_path / "api_hits.yaml").write_text(API)
    plane = ControlPlane(store=MemoryNamespaceStore(), directory=tmp_path, clock=ManualClock())
    await plane.snapshots.start()
    server = grpc.aio.server()
    plane.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield NamespaceServiceStub(channel)
    await server.stop(None)


def file(path: str, content: str) -> pb.NamespaceFile:
    return pb.NamespaceFile(path=path, content=content)


async def refused(call: grpc.aio.UnaryUnaryCall) -> tuple[grpc.StatusCode, str, str]:
    """Code, reason and message."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    status = rpc_status.from_call(raised.value)
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return raised.value.code(), info.reason, status.message


def test_service_name() -> None:
    assert SERVICE_NAME == "counter.v1.NamespaceService"


async def test_list(stub: NamespaceServiceStub) -> None:
    response = await stub.ListNamespaces(pb.ListNamespacesRequest())
    assert response.version == 1
    assert response.applied_at.ToNanoseconds() == ManualClock().now_ns()
    assert [(each.name, each.id) for each in response.namespaces] == [
        ("api_hits", 1),
        ("page_hits", 2),
        ("video_plays", 3),
    ]


async def test_get(stub: NamespaceServiceStub) -> None:
    response = await stub.GetNamespace(pb.GetNamespaceRequest(namespace="video_plays"))
    assert response.version == 1
    video = response.namespace
    assert (video.name, video.id, video.owner, video.max_delta) == ("video_plays", 3, "me", 7)
    assert video.strategy == counter_pb.STRATEGY_EVENTUAL
    assert video.cardinality == pb.CARDINALITY_MEDIUM
    assert video.cache.ttl.ToMilliseconds() == 5_000
    assert video.cache.local_ttl.ToMilliseconds() == 500
    assert not video.HasField("dedupe_ttl")
    assert not video.HasField("rolling_window")
    assert list(video.history) == []
    response = await stub.GetNamespace(pb.GetNamespaceRequest(namespace="page_hits"))
    assert response.namespace.dedupe_ttl.ToMilliseconds() == 1_500
    assert response.namespace.strategy == counter_pb.STRATEGY_BEST_EFFORT
    assert response.namespace.cardinality == pb.CARDINALITY_LOW


async def test_history_and_rolling_window(stub: NamespaceServiceStub) -> None:
    response = await stub.GetNamespace(pb.GetNamespaceRequest(namespace="api_hits"))
    api = response.namespace
    assert api.strategy == counter_pb.STRATEGY_ROLLING_WINDOW
    assert api.rolling_window.length.ToSeconds() == 300
    assert [(each.step.ToSeconds(), each.retention.ToSeconds()) for each in api.history] == [
        (60, 7 * 86_400),
        (86_400, 730 * 86_400),
    ]
    listed = await stub.ListNamespaces(pb.ListNamespacesRequest())
    assert listed.namespaces[0] == api


@pytest.mark.parametrize(
    ("name", "code", "reason", "message"),
    [
        (
            "video-play",
            grpc.StatusCode.NOT_FOUND,
            "NAMESPACE_UNKNOWN",
            "There is no namespace 'video-play'. Did you mean 'video_plays'?",
        ),
        (
            "orders",
            grpc.StatusCode.NOT_FOUND,
            "NAMESPACE_UNKNOWN",
            "There is no namespace 'orders'. ListNamespaces tells which there are.",
        ),
        (
            "",
            grpc.StatusCode.INVALID_ARGUMENT,
            "NAME_EMPTY",
            "The namespace is empty: name one.",
        ),
        (
            "a" * 65,
            grpc.StatusCode.INVALID_ARGUMENT,
            "NAME_TOO_LONG",
            f"The namespace '{'a' * 40}...' is longer than 64 bytes.",
        ),
    ],
)
async def test_get_unknown(
    stub: NamespaceServiceStub, name: str, code: grpc.StatusCode, reason: str, message: str
) -> None:
    call = stub.GetNamespace(pb.GetNamespaceRequest(namespace=name))
    assert await refused(call) == (code, reason, message)


async def test_validate(stub: NamespaceServiceStub) -> None:
    request = pb.ValidateNamespacesRequest(
        files=[
            file("b.yaml", "namespace: b\nstrategy: Eventual\n"),
            file("a.yaml", "namespace: a\nstrategy: eventual\n"),
            file("page_hits.yaml", HITS.replace("low", "high")),
        ]
    )
    response = await stub.ValidateNamespaces(request)
    assert list(response.mistakes) == [
        pb.Mistake(
            path="b.yaml",
            line=2,
            column=11,
            field="strategy",
            message="'Eventual' is not a strategy",
            hint="did you mean eventual?",
        ),
        pb.Mistake(
            path="page_hits.yaml",
            line=4,
            column=14,
            field="cardinality",
            message="cannot change from low to high",
            hint="it is fixed once a namespace is created: write 'cardinality: low', or create "
            "a namespace under another name",
        ),
    ]


async def test_validate_one_good_file_among_live_ones(stub: NamespaceServiceStub) -> None:
    files = [file("a.yaml", "namespace: a\nstrategy: eventual\n")]
    response = await stub.ValidateNamespaces(pb.ValidateNamespacesRequest(files=files))
    assert not response.mistakes
    listed = await stub.ListNamespaces(pb.ListNamespacesRequest())
    assert len(listed.namespaces) == 3, "validating applies nothing"


async def test_validate_limits(stub: NamespaceServiceStub) -> None:
    code, reason, _ = await refused(stub.ValidateNamespaces(pb.ValidateNamespacesRequest()))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_EMPTY")
    many = pb.ValidateNamespacesRequest(files=[file("a.yaml", "")] * 1_001)
    code, reason, message = await refused(stub.ValidateNamespaces(many))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE")
    assert message == "1001 files are more than 1000: send fewer at a time."
    big = pb.ValidateNamespacesRequest(files=[file("a.yaml", "#" * (64 * 1024 + 1))])
    (only,) = (await stub.ValidateNamespaces(big)).mistakes
    assert only.message == "the file is larger than 64 KiB"


async def test_validate_bytes_limit(
    stub: NamespaceServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "VALIDATION_BYTES_MAX", 1024)
    request = pb.ValidateNamespacesRequest(files=[file("a.yaml", "#" * 1024)])
    code, reason, _ = await refused(stub.ValidateNamespaces(request))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE")


async def test_validations_at_once_are_limited(
    stub: NamespaceServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "VALIDATIONS_MAX", 0)
    request = pb.ValidateNamespacesRequest(files=[file("a.yaml", "")])
    code, reason, _ = await refused(stub.ValidateNamespaces(request))
    assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    monkeypatch.setattr(service, "VALIDATIONS_MAX", 2)
    for _ in range(3):
        assert (await stub.ValidateNamespaces(request)).mistakes
    answers = await asyncio.gather(*(stub.ValidateNamespaces(request) for _ in range(2)))
    assert len(answers) == 2
