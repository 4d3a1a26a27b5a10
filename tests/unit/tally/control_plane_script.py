"""A control plane of a few lines: it numbers versions, and answers plans as a test tells it to."""

from collections import deque
from typing import Any

import grpc
from grpc_status import rpc_status

from counter import errors
from counter.rpc.status import status_of
from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import namespace_service_pb2 as pb
from counter.v1 import namespace_service_pb2_grpc as pb_grpc

APPLIED_AT_NS = 1_700_000_000_000_000_000


class ControlPlane(pb_grpc.NamespaceServiceServicer):
    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.plan = pb.PlanNamespacesResponse(base_version=7)
        self.versions = [pb.Version(version=number) for number in range(7, 0, -1)]
        # What ListProcesses answers, one after the other; the last one stays.
        self.fleets = [pb.ListProcessesResponse(version=7)]
        # Instead of the answer to the next change; a code alone is an answer that got lost.
        self.refusals: deque[errors.TallyError | grpc.StatusCode] = deque()
        # Somebody else applies these before the next change arrives.
        self.faster: list[pb.Version] = []

    @property
    def live(self) -> int:
        return self.versions[0].version

    def asked(self, kind: type) -> list[Any]:
        return [each for each in self.requests if isinstance(each, kind)]

    def ListNamespaces(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        answer = pb.ListNamespacesResponse(version=request.version or self.live)
        answer.applied_at.FromNanoseconds(APPLIED_AT_NS)
        plays = answer.namespaces.add(
            name="plays",
            id=3,
            owner="playback-team",
            strategy=counter_pb.STRATEGY_EVENTUAL,
            cardinality=pb.CARDINALITY_HIGH,
            max_delta=1_000_000,
        )
        plays.cache.ttl.FromMilliseconds(5_000)
        plays.cache.local_ttl.FromMilliseconds(500)
        for step_s, retention_s in ((60, 7 * 86_400), (3_600, 90 * 86_400)):
            step = plays.history.add()
            step.step.FromSeconds(step_s)
            step.retention.FromSeconds(retention_s)
        hits = answer.namespaces.add(name="hits", id=4, strategy=counter_pb.STRATEGY_ROLLING_WINDOW)
        hits.rolling_window.length.FromSeconds(300)
        likes = answer.namespaces.add(
            name="likes",
            id=5,
            strategy=counter_pb.STRATEGY_BEST_EFFORT,
            shadow=counter_pb.STRATEGY_EVENTUAL,
        )
        likes.limits.adds_per_s = 1_000
        likes.limits.batch_items = 50
        likes.limits.names = "[a-z]+"
        return answer

    def PlanNamespaces(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        return self.plan

    def ApplyNamespaces(self, request, context):  # type: ignore[no-untyped-def]
        self._change(request, context, pb.Version.ORIGIN_APPLIED)
        return pb.ApplyNamespacesResponse(version=self.versions[0], changes=self.plan.changes)

    def RollbackNamespaces(self, request, context):  # type: ignore[no-untyped-def]
        self._change(request, context, pb.Version.ORIGIN_ROLLED_BACK)
        self.versions[0].restores = request.version
        return pb.RollbackNamespacesResponse(version=self.versions[0], changes=self.plan.changes)

    def ListVersions(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        return pb.ListVersionsResponse(versions=self.versions[: request.page_size])

    def ListProcesses(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        return self.fleets.pop(0) if len(self.fleets) > 1 else self.fleets[0]

    def _change(self, request: Any, context: grpc.ServicerContext, origin: Any) -> None:
        self.requests.append(request)
        self.versions[:0], self.faster = self.faster, []
        refusal: errors.TallyError | grpc.StatusCode | None = None
        if self.refusals:
            refusal = self.refusals.popleft()
        elif request.expected_version != self.live:
            refusal = errors.VersionConflict(f"version {self.live} is live")
        if isinstance(refusal, errors.TallyError):
            context.abort_with_status(rpc_status.to_status(status_of(refusal)))
        version = pb.Version(
            version=self.live + 1,
            origin=origin,
            author=request.author,
            reason=request.reason,
            content_hash="0123456789abcdef" * 4,
            created=1,
            changed=2,
        )
        version.applied_at.FromNanoseconds(APPLIED_AT_NS)
        self.versions.insert(0, version)
        if refusal is not None:
            context.abort(refusal, "the answer is lost")
