"""Plans, applies, rollbacks, versions, the watch and the fleet, as a control plane answers them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_status import rpc_status

from clients import (
    Action,
    ChangeImpossible,
    ChangeUnknown,
    ClientClosed,
    Consequence,
    CounterClient,
    DataLossRefused,
    FieldChange,
    InvalidRequest,
    Mistake,
    Namespace,
    NamespaceChange,
    NamespaceLimits,
    NamespacesInvalid,
    NamespaceTraffic,
    Origin,
    Overloaded,
    Plan,
    Process,
    Processes,
    ShadowOff,
    Strategy,
    SyncCounterClient,
    Unsupported,
    Version,
    VersionConflict,
    VersionUnknown,
)
from counter import errors
from counter.rpc.status import status_of
from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import namespace_service_pb2 as pb
from counter.v1 import namespace_service_pb2_grpc as pb_grpc

DEADLINE_S = 20.0
STAMP = Timestamp(seconds=1_700_000_000, nanos=5)
FILES = {"plays.yaml": "namespace: plays"}
NOTE = {"author": "oncall", "reason": "more history"}
# What a newer server may send, which this SDK has no word for.
NEWER = 99


class ControlPlane(pb_grpc.NamespaceServiceServicer):
    """Versions are numbers here. Calls fail as `script` says: an error, or a code without one."""

    def __init__(self) -> None:
        self.live = 7
        self.requests: list[Any] = []
        self.script: deque[errors.TallyError | grpc.StatusCode] = deque()
        self.apply_then_fail = False  # the answer to a change is lost
        self.plan = pb.PlanNamespacesResponse(base_version=7)
        self.processes = pb.ListProcessesResponse(version=7)
        self.news = asyncio.Condition()
        self.watchers: list[Any] = []

    async def _start(self, request: Any, context: Any) -> None:
        async with self.news:
            self.requests.append(request)
            self.news.notify_all()
        failure = self.script.popleft() if self.script else None
        if isinstance(failure, grpc.StatusCode):
            if self.apply_then_fail and hasattr(request, "expected_version"):
                self.live += 1
            await context.abort(failure, "broken")
        elif failure is not None:
            await context.abort_with_status(rpc_status.to_status(status_of(failure)))

    def version(self, number: int) -> pb.Version:
        return pb.Version(
            version=number,
            applied_at=STAMP,
            origin=pb.Version.ORIGIN_APPLIED,
            author="oncall",
            reason=f"reason {number}",
            content_hash="ab" * 32,
            namespaces=3,
            created=1,
            changed=2,
        )

    async def _change(self, request: Any, context: Any) -> None:
        await self._start(request, context)
        if request.expected_version != self.live:
            conflict = errors.VersionConflict(f"version {self.live} is live")
            await context.abort_with_status(rpc_status.to_status(status_of(conflict)))
        self.live += 1

    async def ListNamespaces(self, request: Any, context: Any) -> Any:
        await self._start(request, context)
        return pb.ListNamespacesResponse(version=request.version or self.live)

    async def GetNamespace(self, request: Any, context: Any) -> Any:
        await self._start(request, context)
        limits = pb.NamespaceLimits(adds_per_s=100, names="[a-z]+", counters=0)
        return pb.GetNamespaceResponse(
            version=request.version or self.live,
            namespace=pb.Namespace(
                name=request.namespace,
                strategy=counter_pb.STRATEGY_BEST_EFFORT,
                shadow=counter_pb.STRATEGY_EVENTUAL,
                limits=limits,
            ),
        )

    async def PlanNamespaces(self, request: Any, context: Any) -> Any:
        await self._start(request, context)
        return self.plan

    async def ApplyNamespaces(self, request: Any, context: Any) -> Any:
        await self._change(request, context)
        change = pb.NamespaceChange(namespace="plays", action=pb.NamespaceChange.ACTION_CREATE)
        return pb.ApplyNamespacesResponse(version=self.version(self.live), changes=[change])

    async def RollbackNamespaces(self, request: Any, context: Any) -> Any:
        await self._change(request, context)
        version = self.version(self.live)
        version.origin = pb.Version.ORIGIN_ROLLED_BACK
        version.restores = request.version
        return pb.RollbackNamespacesResponse(version=version)

    async def ListVersions(self, request: Any, context: Any) -> Any:
        await self._start(request, context)
        newest = min(self.live, (request.before or self.live + 1) - 1)
        numbers = range(newest, max(0, newest - min(request.page_size, 500)), -1)
        return pb.ListVersionsResponse(versions=[self.version(each) for each in numbers])

    async def WatchNamespaces(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await self._start(request, context)
        known = request.known_version

        def has_news() -> bool:
            return self.live > known or bool(self.script)

        while True:
            async with self.news:
                await self.news.wait_for(has_news)
                known = self.live
            if self.script:
                await context.abort(self.script.popleft(), "broken")
            yield pb.WatchNamespacesResponse(
                version=self.version(known), namespaces=[pb.Namespace(name="plays", id=known)]
            )

    async def ListProcesses(self, request: Any, context: Any) -> Any:
        await self._start(request, context)
        return self.processes

    async def seen(self, requests: int) -> None:
        async with self.news:
            await self.news.wait_for(lambda: len(self.requests) >= requests)

    async def announce(self, version: int) -> None:
        async with self.news:
            self.live = version
            self.news.notify_all()

    async def break_watches(self, code: grpc.StatusCode) -> None:
        async with self.news:
            self.script.append(code)
            self.news.notify_all()


@pytest.fixture
def plane() -> ControlPlane:
    return ControlPlane()


@pytest.fixture
async def target(plane: ControlPlane) -> AsyncIterator[str]:
    server = grpc.aio.server()
    pb_grpc.add_NamespaceServiceServicer_to_server(plane, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_plan_of_files(client: Any, plane: ControlPlane) -> None:
    change = plane.plan.changes.add(
        namespace="plays",
        action=pb.NamespaceChange.ACTION_CHANGE,
        consequence=pb.CONSEQUENCE_IMPOSSIBLE,
        path="plays.yaml",
    )
    change.fields.add(
        field="cardinality",
        before="low",
        after="high",
        consequence=pb.CONSEQUENCE_IMPOSSIBLE,
        explanation="it decides where counts are kept",
        hint="create another namespace",
        line=3,
        column=14,
    )
    plane.plan.changes.add(
        namespace="old",
        action=pb.NamespaceChange.ACTION_DELETE,
        consequence=pb.CONSEQUENCE_DATA_LOSS,
        explanation="its counts are out of reach",
    )
    plane.plan.consequence = pb.CONSEQUENCE_IMPOSSIBLE
    plan = await client("plan_namespaces", FILES)
    assert plan == Plan(
        base_version=7,
        mistakes=(),
        consequence=Consequence.IMPOSSIBLE,
        changes=(
            NamespaceChange(
                namespace="plays",
                action=Action.CHANGE,
                consequence=Consequence.IMPOSSIBLE,
                explanation="",
                path="plays.yaml",
                fields=(
                    FieldChange(
                        field="cardinality",
                        before="low",
                        after="high",
                        consequence=Consequence.IMPOSSIBLE,
                        explanation="it decides where counts are kept",
                        hint="create another namespace",
                        line=3,
                        column=14,
                    ),
                ),
            ),
            NamespaceChange(
                namespace="old",
                action=Action.DELETE,
                consequence=Consequence.DATA_LOSS,
                explanation="its counts are out of reach",
                path="",
                fields=(),
            ),
        ),
    )
    (request,) = plane.requests
    assert [(each.path, each.content) for each in request.files] == list(FILES.items())
    assert (request.version, request.base_version) == (0, 0)


async def test_a_plan_of_files_with_mistakes(client: Any, plane: ControlPlane) -> None:
    plane.plan.mistakes.add(path="a.yaml", line=1, column=2, field="f", message="bad", hint="h")
    plan = await client("plan_namespaces", FILES)
    mistake = Mistake(path="a.yaml", line=1, column=2, field="f", message="bad", hint="h")
    assert (plan.mistakes, plan.changes, plan.consequence) == ((mistake,), (), None)


async def test_a_plan_between_versions(client: Any, plane: ControlPlane) -> None:
    await client("plan_namespaces", version=5, base_version=3)
    (request,) = plane.requests
    assert (request.version, request.base_version, len(request.files)) == (5, 3, 0)
    for arguments in ({}, {"files": FILES, "version": 5}):
        with pytest.raises(TypeError, match="either files or a version"):
            await client("plan_namespaces", **arguments)


@pytest.mark.parametrize("version", [-1, 2**63])
async def test_what_is_no_version_is_not_sent(
    client: Any, plane: ControlPlane, version: int
) -> None:
    for method in ("plan_namespaces", "namespaces"):
        with pytest.raises(InvalidRequest, match="no version"):
            await client(method, version=version)
    with pytest.raises(InvalidRequest, match="no version"):
        await client("rollback_namespaces", version, expected_version=7, **NOTE)
    assert plane.requests == []


async def test_what_a_newer_server_says_breaks_nothing(client: Any, plane: ControlPlane) -> None:
    change = plane.plan.changes.add(action=NEWER, consequence=NEWER)
    change.fields.add(consequence=NEWER)
    plane.plan.consequence = NEWER  # type: ignore[assignment]
    plan = await client("plan_namespaces", FILES)
    assert (plan.consequence, plan.changes[0].action) == (None, None)
    assert (plan.changes[0].consequence, plan.changes[0].fields[0].consequence) == (None, None)


async def test_apply(client: Any, plane: ControlPlane) -> None:
    done = await client("apply_namespaces", FILES, expected_version=7, allow_data_loss=True, **NOTE)
    assert done.version == Version(
        version=8,
        applied_at_ns=1_700_000_000_000_000_005,
        origin=Origin.APPLIED,
        author="oncall",
        reason="reason 8",
        content_hash="ab" * 32,
        restores=None,
        namespaces=3,
        created=1,
        changed=2,
        deleted=0,
    )
    assert done.version.applied_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert [each.action for each in done.changes] == [Action.CREATE]
    (request,) = plane.requests
    assert (request.expected_version, request.allow_data_loss) == (7, True)
    assert (request.author, request.reason) == ("oncall", "more history")


async def test_rollback(client: Any, plane: ControlPlane) -> None:
    done = await client("rollback_namespaces", 5, expected_version=7, **NOTE)
    assert (done.version.origin, done.version.restores) == (Origin.ROLLED_BACK, 5)
    assert (plane.requests[0].version, plane.requests[0].allow_data_loss) == (5, False)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (errors.VersionConflict("v"), VersionConflict),
        (errors.VersionUnknown("v"), VersionUnknown),
        (errors.ChangeImpossible("c"), ChangeImpossible),
        (errors.DataLossRefused("d"), DataLossRefused),
        (errors.InvalidRequest("NAMESPACES_INVALID", "files", "n"), NamespacesInvalid),
        (errors.ShadowOff("s"), ShadowOff),
    ],
)
async def test_each_refusal_has_its_error(
    client: Any, plane: ControlPlane, refusal: errors.TallyError, kind: type[Exception]
) -> None:
    plane.script.append(refusal)
    with pytest.raises(kind) as caught:
        await client("apply_namespaces", FILES, expected_version=7, **NOTE)
    assert caught.value.reason == refusal.reason  # type: ignore[attr-defined]
    assert (len(plane.requests), plane.live) == (1, 7)


async def test_a_change_that_was_not_made_is_sent_again(client: Any, plane: ControlPlane) -> None:
    plane.script.append(errors.Overloaded("busy"))
    plane.script.append(grpc.StatusCode.UNAVAILABLE)
    done = await client("apply_namespaces", FILES, expected_version=7, **NOTE)
    assert (done.version.version, len(plane.requests)) == (8, 3)


async def test_a_change_whose_answer_was_lost_is_made_once(
    client: Any, plane: ControlPlane
) -> None:
    plane.apply_then_fail = True
    plane.script.append(grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(ChangeUnknown, match=r"version 8 .* tally versions") as caught:
        await client("rollback_namespaces", 5, expected_version=7, **NOTE)
    assert caught.value.expected_version == 7
    assert isinstance(caught.value.last_error, VersionConflict)
    assert (plane.live, len(plane.requests)) == (8, 2)


async def test_a_change_that_nobody_answers_in_time(client: Any, plane: ControlPlane) -> None:
    plane.script.extend([grpc.StatusCode.UNAVAILABLE] * 10_000)
    with pytest.raises(ChangeUnknown, match="not known"):
        await client("apply_namespaces", FILES, expected_version=7, timeout_s=0.3, **NOTE)
    plane.script.clear()
    # Later than there is time for: no further attempt can be cut short by the deadline.
    plane.script.append(errors.Overloaded("busy", retry_after_ms=60_000))
    with pytest.raises(Overloaded, match="busy"):
        await client("apply_namespaces", FILES, expected_version=7, timeout_s=30, **NOTE)
    assert plane.live == 7


async def test_versions_come_page_by_page(client: Any, plane: ControlPlane) -> None:
    plane.live = 1_203
    assert len(await client("versions")) == 50
    some = await client("versions", limit=1_001)
    assert [each.version for each in some] == list(range(1_203, 202, -1))
    assert [each.page_size for each in plane.requests] == [50, 500, 500, 1]
    assert [each.version for each in await client("versions", limit=10, before=4)] == [3, 2, 1]
    with pytest.raises(ValueError, match="limit"):
        await client("versions", limit=0)


async def test_namespaces_of_an_earlier_version(client: Any, plane: ControlPlane) -> None:
    assert (await client("namespaces", version=3)).version == 3
    plays: Namespace = await client("get_namespace", "plays", version=3)
    assert plane.requests[-1].version == 3
    assert plays.limits == NamespaceLimits(adds_per_s=100, names="[a-z]+", counters=0)
    assert plays.shadow is Strategy.EVENTUAL


async def test_processes(client: Any, plane: ControlPlane) -> None:
    server = plane.processes.processes.add(
        process="server a", program="server", version=6, refused_version=7, problem="too new"
    )
    server.traffic.add(namespace="plays", adds_per_s=2.5, reads_per_s=1.5, limited_per_s=0.5)
    server.traffic.add(namespace="likes", counters=0)
    plane.processes.processes.add(process="worker b", program="worker", version=7)
    assert await client("processes") == Processes(
        version=7,
        processes=(
            Process(
                process="server a",
                program="server",
                version=6,
                refused_version=7,
                problem="too new",
                traffic=(
                    NamespaceTraffic(
                        namespace="plays",
                        adds_per_s=2.5,
                        reads_per_s=1.5,
                        limited_per_s=0.5,
                        counters=None,
                    ),
                    NamespaceTraffic(
                        namespace="likes",
                        adds_per_s=0.0,
                        reads_per_s=0.0,
                        limited_per_s=0.0,
                        counters=0,
                    ),
                ),
            ),
            Process(
                process="worker b",
                program="worker",
                version=7,
                refused_version=None,
                problem="",
                traffic=(),
            ),
        ),
    )


async def following(watched: Any) -> Any:
    """The next version, of either client's watch."""
    if isinstance(watched, Iterator):
        return await asyncio.to_thread(next, watched)
    return await anext(watched)


async def test_a_watch_goes_on_over_broken_streams(client: Any, plane: ControlPlane) -> None:
    watched = client.client.watch_namespaces()

    async with asyncio.timeout(DEADLINE_S):
        first = await following(watched)
        assert (first.version, first.about.reason) == (7, "reason 7")
        assert first.applied_at == first.about.applied_at
        assert [each.id for each in first.namespaces] == [7]
        await plane.announce(9)
        assert (await following(watched)).version == 9
        for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL):
            await plane.break_watches(code)
        next_one = asyncio.create_task(following(watched))
        await plane.seen(3)
        await plane.announce(10)
        assert (await next_one).version == 10
    assert [each.known_version for each in plane.requests] == [0, 9, 9]
    if isinstance(client.client, SyncCounterClient):
        await asyncio.to_thread(watched.close)
    else:
        await watched.aclose()


async def test_a_watch_that_is_refused_ends(client: Any, plane: ControlPlane) -> None:
    await plane.break_watches(grpc.StatusCode.UNIMPLEMENTED)
    watched = client.client.watch_namespaces()
    with pytest.raises(Unsupported):
        await following(watched)


@pytest.mark.parametrize("kind", [CounterClient, SyncCounterClient])
async def test_closing_ends_a_watch(kind: Any, target: str, plane: ControlPlane) -> None:
    client = kind(target, namespace="plays")
    watched = client.watch_namespaces()
    async with asyncio.timeout(DEADLINE_S):
        await following(watched)
        waiting = asyncio.create_task(following(watched))
        await (asyncio.to_thread(client.close) if kind is SyncCounterClient else client.close())
        with pytest.raises(ClientClosed):
            await waiting
