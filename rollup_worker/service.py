"""RollupService: how far closing and folding have come."""

from typing import Any

from counter.clock import NS_PER_S, Clock
from counter.rpc.server import answering_errors
from counter.rpc.status import duration_of
from counter.settings import Platform
from counter.storage.ports import Ledger
from counter.v1 import rollup_service_pb2 as pb
from counter.v1 import rollup_service_pb2_grpc as pb_grpc
from counter.windows import Layout
from rollup_worker.rollup import Rollup
from rollup_worker.worker import Worker


class RollupService(pb_grpc.RollupServiceServicer):
    def __init__(
        self,
        worker: Worker,
        rollup: Rollup,
        ledger: Ledger,
        layout: Layout,
        platform: Platform,
        clock: Clock,
    ) -> None:
        self._worker = worker
        self._rollup = rollup
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
        now_ns = self._clock.now_ns()
        response = pb.GetRollupStatusResponse(
            region=self._platform.region,
            window=duration_of(self._layout.window_ms),
            problem=self._worker.problem() or "",
        )
        self._stamp(response.closed_through, closed.through)
        self._stamp(response.folded_through, min(watermarks))
        for shard, (window, progress) in enumerate(
            zip(watermarks, self._rollup.progress, strict=True)
        ):
            status = response.shards.add(
                shard=shard,
                folded_events=progress.events,
                duplicate_events=progress.counts.duplicates,
                conflicting_events=progress.counts.conflicts,
                last_pass_events=progress.last_pass_events,
                last_pass_time=duration_of(round(progress.last_pass_s * 1_000)),
            )
            self._stamp(status.watermark, window)
            lag_ns = max(0, now_ns - self._layout.end_ns(window))
            status.lag.seconds, status.lag.nanos = divmod(lag_ns, NS_PER_S)
        return response

    def _stamp(self, stamp: Any, window: int) -> None:
        stamp.seconds, stamp.nanos = divmod(self._layout.complete_through_ns(window), NS_PER_S)
