"""Audits and quarantine, as a worker of the contract answers them."""

from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_status import rpc_status

from clients import (
    Adjustment,
    AuditBase,
    AuditBaseKind,
    AuditDifference,
    AuditResult,
    AuditWithoutBase,
    CounterAudit,
    DifferenceKind,
    Internal,
    InvalidRequest,
    QuarantinedSegment,
    SegmentAgreed,
    SegmentDamaged,
    SegmentReadable,
    SegmentUnknown,
    SetAsideSegment,
    WindowAudit,
)
from counter import errors
from counter.rpc.status import status_of
from counter.v1 import rollup_service_pb2 as pb
from counter.v1 import rollup_service_pb2_grpc as pb_grpc

TIME_NS = 1_700_000_000_000_000_005
STAMP = Timestamp(seconds=1_700_000_000, nanos=5)
MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def difference(kind: Any) -> pb.AuditDifference:
    message = pb.AuditDifference(kind=kind, to=STAMP, expected=5, actual=4, message="differs")
    getattr(message, "from").CopyFrom(STAMP)
    return message


def found(kind: DifferenceKind | None) -> AuditDifference:
    return AuditDifference(
        kind=kind, from_ns=TIME_NS, to_ns=TIME_NS, expected=5, actual=4, message="differs"
    )


class Worker(pb_grpc.RollupServiceServicer):
    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.refusals: deque[errors.TallyError] = deque()
        self.answers: dict[str, Any] = {}

    async def AuditCounter(self, request: Any, context: Any) -> Any:
        return await self._answer(request, context, "AuditCounter")

    async def AuditWindow(self, request: Any, context: Any) -> Any:
        return await self._answer(request, context, "AuditWindow")

    async def QuarantineSegment(self, request: Any, context: Any) -> Any:
        return await self._answer(request, context, "QuarantineSegment")

    async def _answer(self, request: Any, context: Any, method: str) -> Any:
        self.requests.append(request)
        if self.refusals:
            error = self.refusals.popleft()
            await context.abort_with_status(rpc_status.to_status(status_of(error)))
        return self.answers[method]


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
async def target(worker: Worker) -> AsyncIterator[str]:
    server = grpc.aio.server()
    pb_grpc.add_RollupServiceServicer_to_server(worker, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_audit_counter(client: Any, worker: Worker) -> None:
    response = pb.AuditCounterResponse(
        result=pb.AUDIT_RESULT_DIFFERENT,
        base=pb.AuditBase(kind=pb.AuditBase.KIND_HISTORY, time=STAMP, count=2),
        audited_through=STAMP,
        expected_count=5,
        actual_count=4,
        events=3,
        differences=[
            difference(pb.AuditDifference.KIND_ROLLUP),
            difference(pb.AuditDifference.KIND_HISTORY),
            difference(pb.AuditDifference.KIND_HISTORY_MISSING),
            difference(pb.AuditDifference.KIND_SEGMENTS),
            difference(99),
        ],
    )
    response.adjustments.add(time=STAMP, delta=-1, author="oncall", reason="bug 1")
    response.pending_adjustments.add(time=STAMP, delta=1, author="oncall", reason="bug 2")
    worker.answers["AuditCounter"] = response
    audit = await client("audit_counter", "a", base_time=MOMENT)
    assert audit == CounterAudit(
        result=AuditResult.DIFFERENT,
        base=AuditBase(kind=AuditBaseKind.HISTORY, time_ns=TIME_NS, count=2),
        audited_through_ns=TIME_NS,
        expected_count=5,
        actual_count=4,
        events=3,
        differences=(
            found(DifferenceKind.ROLLUP),
            found(DifferenceKind.HISTORY),
            found(DifferenceKind.HISTORY_MISSING),
            found(DifferenceKind.SEGMENTS),
            found(None),
        ),
        adjustments=(Adjustment(time_ns=TIME_NS, delta=-1, author="oncall", reason="bug 1"),),
        pending_adjustments=(
            Adjustment(time_ns=TIME_NS, delta=1, author="oncall", reason="bug 2"),
        ),
    )
    assert (audit.audited_through, audit.base.time) == (MOMENT, MOMENT)
    (request,) = worker.requests
    assert (request.namespace, request.counter_name) == ("plays", "a")
    assert request.base_time == Timestamp(seconds=1_700_000_000)
    await client("audit_counter", "a")
    assert not worker.requests[-1].HasField("base_time")


async def test_an_audit_result_is_never_guessed(client: Any, worker: Worker) -> None:
    worker.answers["AuditCounter"] = pb.AuditCounterResponse()
    with pytest.raises(Internal, match="update"):
        await client("audit_counter", "a")


async def test_audit_window(client: Any, worker: Worker) -> None:
    response = pb.AuditWindowResponse(
        result=pb.AUDIT_RESULT_EQUAL,
        to=STAMP,
        segments=1,
        events=2,
        recorded_digest="0a",
        computed_digest="0a",
        late_segments=3,
        set_aside=[
            pb.SetAsideSegment(segment_id="5f", events=4, author="a", reason="r", time=STAMP)
        ],
        counters_equal=5,
        counters_different=6,
        counters_without_base=7,
    )
    worker.answers["AuditWindow"] = response
    assert await client("audit_window", 3, TIME_NS) == WindowAudit(
        result=AuditResult.EQUAL,
        from_ns=None,
        to_ns=TIME_NS,
        segments=1,
        events=2,
        recorded_digest="0a",
        computed_digest="0a",
        late_segments=3,
        set_aside=(
            SetAsideSegment(segment_id="5f", events=4, author="a", reason="r", time_ns=TIME_NS),
        ),
        counters_equal=5,
        counters_different=6,
        counters_without_base=7,
        differences=(),
    )
    assert (worker.requests[0].shard, worker.requests[0].time) == (3, STAMP)
    with pytest.raises(InvalidRequest, match="no shard -1"):
        await client("audit_window", -1, TIME_NS)
    assert len(worker.requests) == 1


async def test_quarantine_segment(client: Any, worker: Worker) -> None:
    worker.answers["QuarantineSegment"] = pb.QuarantineSegmentResponse(
        shard=3, window=STAMP, events=17
    )
    worker.refusals.append(errors.StoreUnavailable("for a moment"))
    done = await client("quarantine_segment", "5f", author="oncall", reason="disk failure")
    assert done == QuarantinedSegment(shard=3, window_ns=TIME_NS, events=17)
    assert done.window == MOMENT
    first, second = worker.requests
    assert first == second
    assert (first.segment_id, first.author, first.reason) == ("5f", "oncall", "disk failure")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.AuditWithoutBase("too little"), AuditWithoutBase),
        (errors.SegmentReadable("it can be read"), SegmentReadable),
        (errors.SegmentAgreed("a record names it"), SegmentAgreed),
        (errors.SegmentUnknown("no such segment"), SegmentUnknown),
        (errors.SegmentDamaged("cannot be read", segment_id=b"\x5f" * 16), SegmentDamaged),
        (errors.InvalidRequest("SEGMENT_MALFORMED", "segment_id", "not hex"), InvalidRequest),
    ],
)
async def test_refusals_are_typed(client: Any, worker: Worker, error: Any, kind: Any) -> None:
    worker.refusals.append(error)
    with pytest.raises(kind) as caught:
        await client("quarantine_segment", "5f", author="oncall", reason="r")
    assert caught.value.reason == error.reason
    assert len(worker.requests) == 1
