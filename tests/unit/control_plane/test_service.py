import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from control_plane import service
from control_plane.app import SERVICE_NAME, ControlPlane
from counter.clock import ManualClock
from counter.presence import NamespaceTraffic, Presence, ProcessReport
from counter.rpc.server import RpcServer
from counter.storage.memory import MemoryMembership, MemoryNamespaceStore
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
REPORT = ProcessReport(
    program="server",
    version=1,
    refused_version=2,
    problem="no cache",
    traffic=(NamespaceTraffic(namespace="api_hits", adds_per_s=5.5, counters=3),),
)
HITS = "namespace: page_hits\nstrategy: best_effort\ndedupe_ttl: 1500ms\ncardinality: low\n"


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[NamespaceServiceStub]:
    (tmp_path / "video_plays.yaml").write_text(VIDEO)
    (tmp_path / "page_hits.yaml").write_text(HITS)
    (tmp_path / "api_hits.yaml").write_text(API)
    membership = MemoryMembership()
    presence = Presence(membership, "me", lambda: REPORT)
    await presence.beat()
    await membership.beat("garbled", b"?", ttl_s=10)
    plane = ControlPlane(
        store=MemoryNamespaceStore(),
        directory=tmp_path,
        clock=ManualClock(),
        processes=presence.processes,
    )
    async with AsyncExitStack() as stack:
        rpc = RpcServer()
        await plane.start(rpc, stack)
        port = await rpc.start("127.0.0.1:0", (SERVICE_NAME,))
        stack.push_async_callback(rpc.stop, 5.0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield NamespaceServiceStub(channel)
            # A stream that would go on for ever must not hold up the end.
            watching = NamespaceServiceStub(channel).WatchNamespaces(pb.WatchNamespacesRequest())
            assert await watching.read()
            async with asyncio.timeout(3):
                await rpc.stop(60.0)


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
            message=response.mistakes[1].message,
            hint=response.mistakes[1].hint,
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
    assert message == "1001 files are more than 1000."
    big = pb.ValidateNamespacesRequest(files=[file("a.yaml", "#" * (64 * 1024 + 1))])
    (only,) = (await stub.ValidateNamespaces(big)).mistakes
    assert only.message == "the file is larger than 64 KiB"


async def test_validate_bytes_limit(
    stub: NamespaceServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FILES_BYTES_MAX", 1024)
    request = pb.ValidateNamespacesRequest(files=[file("a.yaml", "#" * 1024)])
    code, reason, _ = await refused(stub.ValidateNamespaces(request))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE")


async def test_validations_at_once_are_limited(
    stub: NamespaceServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LOADS_MAX", 0)
    request = pb.ValidateNamespacesRequest(files=[file("a.yaml", "")])
    code, reason, _ = await refused(stub.ValidateNamespaces(request))
    assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    monkeypatch.setattr(service, "LOADS_MAX", 2)
    for _ in range(3):
        assert (await stub.ValidateNamespaces(request)).mistakes
    answers = await asyncio.gather(*(stub.ValidateNamespaces(request) for _ in range(2)))
    assert len(answers) == 2


FILES = [file("video_plays.yaml", VIDEO), file("page_hits.yaml", HITS), file("api_hits.yaml", API)]
FASTER = [file("video_plays.yaml", VIDEO.replace("7", "9")), *FILES[1:]]


def applying(
    files: list[pb.NamespaceFile], expected: int, **more: bool
) -> pb.ApplyNamespacesRequest:
    return pb.ApplyNamespacesRequest(
        files=files, expected_version=expected, author="oncall", reason="a test", **more
    )


async def test_plan_and_apply(stub: NamespaceServiceStub) -> None:
    planned = await stub.PlanNamespaces(pb.PlanNamespacesRequest(files=FASTER))
    assert (planned.base_version, len(planned.mistakes)) == (1, 0)
    assert planned.consequence == pb.CONSEQUENCE_HARMLESS
    [change] = planned.changes
    assert (change.namespace, change.path) == ("video_plays", "video_plays.yaml")
    assert change.action == pb.NamespaceChange.ACTION_CHANGE
    [field] = change.fields
    assert (field.field, field.before, field.after) == ("max_delta", "7", "9")
    assert (field.line, field.column) == (3, 12)
    applied = await stub.ApplyNamespaces(applying(FASTER, planned.base_version))
    assert applied.changes == planned.changes
    version = applied.version
    assert (version.version, version.author, version.reason) == (2, "oncall", "a test")
    assert (version.origin, version.changed) == (pb.Version.ORIGIN_APPLIED, 1)
    got = await stub.GetNamespace(pb.GetNamespaceRequest(namespace="video_plays"))
    assert (got.version, got.namespace.max_delta) == (2, 9)
    before = pb.GetNamespaceRequest(namespace="video_plays", version=1)
    got = await stub.GetNamespace(before)
    assert (got.version, got.namespace.max_delta) == (1, 7)
    again = await stub.ApplyNamespaces(applying(FASTER, 2))
    assert (again.version.version, len(again.changes)) == (2, 0)


async def test_plan_with_mistakes_has_no_changes(stub: NamespaceServiceStub) -> None:
    bad = [file("a.yaml", "namespace: a\nstrategy: Eventual\n"), *FILES]
    planned = await stub.PlanNamespaces(pb.PlanNamespacesRequest(files=bad))
    assert [each.path for each in planned.mistakes] == ["a.yaml"]
    assert (len(planned.changes), planned.consequence) == (0, pb.CONSEQUENCE_UNSPECIFIED)
    code, reason, message = await refused(stub.ApplyNamespaces(applying(bad, 1)))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "NAMESPACES_INVALID")
    assert "a.yaml:2:11: strategy: 'Eventual' is not a strategy" in message


async def test_a_lost_race_is_aborted(stub: NamespaceServiceStub) -> None:
    await stub.ApplyNamespaces(applying(FASTER, 1))
    code, reason, message = await refused(stub.ApplyNamespaces(applying(FILES, 1)))
    assert (code, reason) == (grpc.StatusCode.ABORTED, "VERSION_CONFLICT")
    assert "applied by oncall (a test)" in message


async def test_data_loss_must_be_allowed(stub: NamespaceServiceStub) -> None:
    planned = await stub.PlanNamespaces(pb.PlanNamespacesRequest(files=FILES[1:]))
    assert planned.consequence == pb.CONSEQUENCE_DATA_LOSS
    assert planned.changes[0].action == pb.NamespaceChange.ACTION_DELETE
    code, reason, _ = await refused(stub.ApplyNamespaces(applying(FILES[1:], 1)))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "DATA_LOSS_NOT_ALLOWED")
    applied = await stub.ApplyNamespaces(applying(FILES[1:], 1, allow_data_loss=True))
    assert (applied.version.version, applied.version.deleted) == (2, 1)


async def test_what_is_impossible(stub: NamespaceServiceStub) -> None:
    low = [FILES[0], file("page_hits.yaml", HITS.replace("low", "high")), FILES[2]]
    planned = await stub.PlanNamespaces(pb.PlanNamespacesRequest(files=low))
    assert planned.consequence == pb.CONSEQUENCE_IMPOSSIBLE
    code, reason, _ = await refused(stub.ApplyNamespaces(applying(low, 1, allow_data_loss=True)))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CHANGE_IMPOSSIBLE")


async def test_rollback_and_versions(stub: NamespaceServiceStub) -> None:
    await stub.ApplyNamespaces(applying(FASTER, 1))
    back = await stub.PlanNamespaces(pb.PlanNamespacesRequest(version=1))
    assert [each.after for each in back.changes[0].fields] == ["7"]
    request = pb.RollbackNamespacesRequest(
        version=1, expected_version=2, author="oncall", reason="too much"
    )
    rolled = await stub.RollbackNamespaces(request)
    assert rolled.changes == back.changes
    assert (rolled.version.version, rolled.version.restores) == (3, 1)
    assert rolled.version.origin == pb.Version.ORIGIN_ROLLED_BACK
    listed = (await stub.ListVersions(pb.ListVersionsRequest())).versions
    assert [each.version for each in listed] == [3, 2, 1]
    assert listed[0] == rolled.version
    assert listed[0].content_hash == listed[2].content_hash != listed[1].content_hash
    assert listed[2].origin == pb.Version.ORIGIN_FOLDER
    page = await stub.ListVersions(pb.ListVersionsRequest(page_size=1, before=3))
    assert [each.version for each in page.versions] == [2]
    likes = file("likes.yaml", "namespace: likes\nstrategy: eventual\n")
    await stub.ApplyNamespaces(applying([*FILES, likes], 3))
    forward = await stub.PlanNamespaces(pb.PlanNamespacesRequest(version=4, base_version=3))
    [created] = forward.changes
    assert created.action == pb.NamespaceChange.ACTION_CREATE
    assert created.explanation == "its counters start at 0"
    await stub.ApplyNamespaces(applying(FILES, 4, allow_data_loss=True))
    await stub.ApplyNamespaces(applying([*FILES, likes], 5))
    again = await stub.PlanNamespaces(pb.PlanNamespacesRequest(version=6, base_version=4))
    assert [(each.namespace, each.action) for each in again.changes] == [
        ("likes", pb.NamespaceChange.ACTION_DELETE),
        ("likes", pb.NamespaceChange.ACTION_CREATE),
    ], "of the same name and definition, and another one"
    between = await stub.PlanNamespaces(pb.PlanNamespacesRequest(version=2, base_version=1))
    assert [each.after for each in between.changes[0].fields] == ["9"]
    assert between.base_version == 1


@pytest.mark.parametrize(
    ("call", "request_", "reason"),
    [
        ("PlanNamespaces", pb.PlanNamespacesRequest(), "NAMESPACES_INVALID"),
        ("PlanNamespaces", pb.PlanNamespacesRequest(files=FILES, version=1), "NAMESPACES_INVALID"),
        ("PlanNamespaces", pb.PlanNamespacesRequest(version=9), "VERSION_UNKNOWN"),
        ("PlanNamespaces", pb.PlanNamespacesRequest(version=-1), "VERSION_MALFORMED"),
        ("ListNamespaces", pb.ListNamespacesRequest(version=9), "VERSION_UNKNOWN"),
        ("ListNamespaces", pb.ListNamespacesRequest(version=-9), "VERSION_MALFORMED"),
        ("RollbackNamespaces", pb.RollbackNamespacesRequest(version=0), "VERSION_MALFORMED"),
        ("RollbackNamespaces", pb.RollbackNamespacesRequest(version=1), "NOTE_MALFORMED"),
        ("ApplyNamespaces", pb.ApplyNamespacesRequest(files=FILES), "NOTE_MALFORMED"),
        ("ApplyNamespaces", applying([], 1), "BATCH_EMPTY"),
        ("ApplyNamespaces", applying(FILES, -1), "VERSION_MALFORMED"),
        ("ListVersions", pb.ListVersionsRequest(page_size=501), "PAGE_MALFORMED"),
        ("ListVersions", pb.ListVersionsRequest(before=-1), "VERSION_MALFORMED"),
        ("CutoverNamespace", pb.CutoverNamespaceRequest(), "NAME_EMPTY"),
        (
            "CutoverNamespace",
            pb.CutoverNamespaceRequest(
                namespace="page_hits", expected_version=1, author="oncall", reason="a test"
            ),
            "SHADOW_OFF",
        ),
    ],
)
async def test_bad_requests_change_nothing(
    stub: NamespaceServiceStub, call: str, request_: Message, reason: str
) -> None:
    _, found, _ = await refused(getattr(stub, call)(request_))
    assert found == reason
    assert (await stub.ListNamespaces(pb.ListNamespacesRequest())).version == 1


async def test_watch(stub: NamespaceServiceStub) -> None:
    watching = stub.WatchNamespaces(pb.WatchNamespacesRequest())
    later = stub.WatchNamespaces(pb.WatchNamespacesRequest(known_version=1))
    first = await watching.read()
    assert (first.version.version, len(first.namespaces)) == (1, 3)
    await stub.ApplyNamespaces(applying(FASTER, 1))
    for each in (watching, later):
        answer = await each.read()
        assert answer.version.version == 2
        assert {found.name: found.max_delta for found in answer.namespaces}["video_plays"] == 9
        each.cancel()


async def test_processes(stub: NamespaceServiceStub) -> None:
    answer = await stub.ListProcesses(pb.ListProcessesRequest())
    assert answer.version == 1
    garbled, me = answer.processes
    assert (garbled.process, garbled.version) == ("garbled", 0)
    assert "cannot be read" in garbled.problem
    assert me == pb.Process(
        process="me",
        program="server",
        version=1,
        refused_version=2,
        problem="no cache",
        traffic=[pb.NamespaceTraffic(namespace="api_hits", adds_per_s=5.5, counters=3)],
    )
