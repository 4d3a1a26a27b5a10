"""RollupService: how far closing and folding have come in the whole fleet, and is it right."""

from typing import Any

from counter.clock import NS_PER_MS, NS_PER_S, Clock
from counter.rpc.server import answering_errors
from counter.rpc.values import duration_of, set_stamp, timestamp_ns
from counter.settings import Platform
from counter.storage.ports import Ledger
from counter.v1 import rollup_service_pb2 as pb
from counter.v1 import rollup_service_pb2_grpc as pb_grpc
from counter.windows import Layout
from rollup_worker import translate
from rollup_worker.audit.audit import Audit
from rollup_worker.ownership import Ownership, owner_of
from rollup_worker.quarantine import Quarantine
from rollup_worker.report import ShardReport
from rollup_worker.worker import Worker


class RollupService(pb_grpc.RollupServiceServicer):
    def __init__(
        self,
        worker: Worker,
        ownership: Ownership,
        audit: Audit,
        quarantine: Quarantine,
        ledger: Ledger,
        layout: Layout,
        platform: Platform,
        clock: Clock,
    ) -> None:
        self._worker = worker
        self._ownership = ownership
        self._audit = audit
        self._quarantine = quarantine
        self._ledger = ledger
        self._layout = layout
        self._platform = platform
        self._clock = clock

    @answering_errors
    async def GetRollupStatus(
        self, request: pb.GetRollupStatusRequest, context: Any
    ) -> pb.GetRollupStatusResponse:
        closed = await self._ledger.closed()
        watermarks = await self._ledger.watermarks()
        fleet = await self._ownership.fleet(self._worker.report())
        owners = [owner_of(shard, list(fleet)) for shard in range(self._layout.shards)]
        now_ns = self._clock.now_ns()
        response = pb.GetRollupStatusResponse(
            region=self._platform.region,
            window=duration_of(self._layout.window_ms),
            problem=self._worker.problem() or "",
        )
        self._stamp(response.closed_through, closed.through)
        self._stamp(response.folded_through, min(watermarks))
        said: dict[tuple[str, int], ShardReport] = {}
        for member, report in fleet.items():
            response.workers.add(
                member=member,
                shards=[shard for shard, owner in enumerate(owners) if owner == member],
                passes_in_parallel=report.passes_in_parallel if report else 0,
                problem=report.problem if report else "",
            )
            said |= {(member, each.shard): each for each in (report.shards if report else ())}
        for shard, (window, owner) in enumerate(zip(watermarks, owners, strict=True)):
            of_shard = said.get((owner, shard), ShardReport(shard=shard))
            status = response.shards.add(
                shard=shard,
                folded_events=of_shard.folded_events,
                duplicate_events=of_shard.duplicate_events,
                conflicting_events=of_shard.conflicting_events,
                last_pass_events=of_shard.last_pass_events,
                owner=owner,
                queue_depth=max(0, closed.through - window),
                batch_counters=of_shard.batch_counters,
                problem=of_shard.problem,
            )
            status.last_pass_time.FromNanoseconds(round(of_shard.last_pass_ms * NS_PER_MS))
            self._stamp(status.watermark, window)
            lag_ns = max(0, now_ns - self._layout.end_ns(window))
            status.lag.seconds, status.lag.nanos = divmod(lag_ns, NS_PER_S)
        response.problem = response.problem or _problem_of_others(response)
        return response

    @answering_errors
    async def AuditCounter(
        self, request: pb.AuditCounterRequest, context: Any
    ) -> pb.AuditCounterResponse:
        translate.check_name(request.namespace, "namespace")
        translate.check_name(request.counter_name, "counter_name")
        base_time_ns = None
        if request.HasField("base_time"):
            base_time_ns = timestamp_ns(request.base_time, "TIME_MALFORMED", "base_time")
        audit = await self._audit.counter(request.namespace, request.counter_name, base_time_ns)
        return translate.counter_audit_message(audit, self._layout)

    @answering_errors
    async def AuditWindow(
        self, request: pb.AuditWindowRequest, context: Any
    ) -> pb.AuditWindowResponse:
        time_ns = translate.required_timestamp_ns(request, "time")
        audit = await self._audit.window(request.shard, time_ns)
        return translate.window_audit_message(audit, self._layout)

    @answering_errors
    async def QuarantineSegment(
        self, request: pb.QuarantineSegmentRequest, context: Any
    ) -> pb.QuarantineSegmentResponse:
        ref = await self._quarantine.set_aside(request.segment_id, request.author, request.reason)
        response = pb.QuarantineSegmentResponse(shard=ref.shard, events=ref.event_count)
        set_stamp(response.window, self._layout.start_ns(ref.window))
        return response

    def _stamp(self, stamp: Any, window: int) -> None:
        stamp.seconds, stamp.nanos = divmod(self._layout.complete_through_ns(window), NS_PER_S)


def _problem_of_others(status: pb.GetRollupStatusResponse) -> str:
    """The first there is: of a worker as a whole, then of a shard."""
    for worker in status.workers:
        if worker.problem:
            return f"worker {worker.member}: {worker.problem}"
    for shard in status.shards:
        if shard.problem:
            return f"shard {shard.shard}: {shard.problem}"
    return ""
