"""The audit and the quarantine as callers see them: fields, times, errors that name the field."""

from typing import Any, NoReturn

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2, status_pb2

from counter.clock import NS_PER_S
from counter.v1 import rollup_service_pb2 as pb
from rollup_worker.quarantine import Quarantine
from rollup_worker.service import RollupService
from tests.stores import KEEPING, segment
from tests.unit.rollup_worker.audits import adjust, audit_of, live, rewrite, row_of, shard_in
from tests.unit.rollup_worker.world import PLATFORM, World

pytestmark = pytest.mark.parametrize("stores", KEEPING, indirect=True)


class Aborted(Exception):
    def __init__(self, status: Any) -> None:
        super().__init__(status.details)
        self.code: grpc.StatusCode = status.code
        [(_, packed)] = status.trailing_metadata
        rich = status_pb2.Status.FromString(packed)
        info = error_details_pb2.ErrorInfo()
        rich.details[0].Unpack(info)
        self.reason = info.reason
        self.field = ""
        request = error_details_pb2.BadRequest()
        if len(rich.details) > 1 and rich.details[1].Unpack(request):
            self.field = request.field_violations[0].field


class Context:
    async def abort_with_status(self, status: Any) -> NoReturn:
        raise Aborted(status)


def service(world: World) -> RollupService:
    stores, unused = world.stores, Any
    quarantine = Quarantine(stores.event_log, stores.ledger, world.layout, world.clock)
    return RollupService(
        unused,  # type: ignore[arg-type]
        unused,  # type: ignore[arg-type]
        audit_of(world),
        quarantine,
        stores.ledger,
        world.layout,
        PLATFORM,
        world.clock,
    )


def stamp(time_ns: int) -> Timestamp:
    return Timestamp(seconds=time_ns // NS_PER_S, nanos=time_ns % NS_PER_S)


async def audit(world: World, **fields: Any) -> pb.AuditCounterResponse:
    request = pb.AuditCounterRequest(namespace="plays", counter_name="views", **fields)
    return await service(world).AuditCounter(request, Context())


async def test_audit_counter(world: World) -> None:
    await live(world, ["views"], seed=1, events=10)
    row = await row_of(world, "views")
    response = await audit(world)
    assert response.result == pb.AUDIT_RESULT_EQUAL
    assert response.base.kind == pb.AuditBase.KIND_START
    assert (response.expected_count, response.actual_count) == (row.count, row.count)
    assert response.events > 0
    assert not response.differences
    [watermark] = {await watermark_of(world)}
    assert response.audited_through == stamp(world.layout.complete_through_ns(watermark))
    named = await audit(world, base_time=stamp(world.clock.now_ns()))
    assert named.base.kind == pb.AuditBase.KIND_HISTORY
    assert named.result == pb.AUDIT_RESULT_EQUAL


async def watermark_of(world: World) -> int:
    return (await world.stores.ledger.watermarks())[shard_in(world, "views")]


async def test_audit_counter_with_differences_and_adjustments(world: World) -> None:
    await live(world, ["views"], seed=1, events=10)
    event = await adjust(world, "views", 1)
    await world.fold_all()
    world.clock.advance_ms(10_000)
    await world.fold_all()
    await rewrite(world, "views", count=10**30)
    response = await audit(world)
    assert response.result == pb.AUDIT_RESULT_DIFFERENT
    assert response.actual_count == 2**63 - 1  # clamped
    difference = response.differences[-1]
    assert difference.kind == pb.AuditDifference.KIND_ROLLUP
    assert getattr(difference, "from").ToNanoseconds() < difference.to.ToNanoseconds()
    assert difference.to.ToNanoseconds() % 1_000 == 999
    [adjustment] = response.adjustments
    assert adjustment.time == stamp(event.time_ns)
    assert (adjustment.delta, adjustment.author) == (1, "oncall")
    assert adjustment.reason == "the audit said so"


async def test_audit_window(world: World) -> None:
    event = await world.write("views", 5)
    await world.fold_all()
    shard = shard_in(world, "views")
    request = pb.AuditWindowRequest(shard=shard, time=stamp(event.time_ns))
    response = await service(world).AuditWindow(request, Context())
    [record] = [each for each in await world.records(shard) if each.segments]
    assert response.result == pb.AUDIT_RESULT_EQUAL
    assert getattr(response, "from") == stamp(world.layout.start_ns(record.from_window))
    assert response.to == stamp(world.layout.complete_through_ns(record.to_window))
    assert (response.segments, response.events, response.counters_equal) == (1, 1, 1)
    assert response.recorded_digest == response.computed_digest == record.digest.hex()


async def test_quarantine_segment(world: World) -> None:
    window = world.layout.window_of(world.clock.now_ns())
    whole = segment([], window=window, shard=1, namespace_id=world.id_of("plays"))
    ref = whole.ref._replace(event_count=7)
    await world.stores.event_log.append([whole._replace(ref=ref, body=b"")])
    world.clock.advance_ms(7_000)
    await world.worker().worker.round()
    request = pb.QuarantineSegmentRequest(
        segment_id=ref.segment_id.hex(), author="oncall", reason="the disk is broken"
    )
    response = await service(world).QuarantineSegment(request, Context())
    assert (response.shard, response.events) == (1, 7)
    assert response.window == stamp(world.layout.start_ns(window))
    await world.fold_all()
    audited = await service(world).AuditWindow(
        pb.AuditWindowRequest(shard=1, time=response.window), Context()
    )
    [set_aside] = audited.set_aside
    assert (set_aside.segment_id, set_aside.events) == (ref.segment_id.hex(), 7)
    assert (set_aside.author, set_aside.reason) == ("oncall", "the disk is broken")
    assert set_aside.HasField("time")


@pytest.mark.parametrize(
    ("rpc", "request_", "expected"),
    [
        ("AuditCounter", pb.AuditCounterRequest(counter_name="a"), ("NAME_EMPTY", "namespace")),
        ("AuditCounter", pb.AuditCounterRequest(namespace="a"), ("NAME_EMPTY", "counter_name")),
        (
            "AuditCounter",
            pb.AuditCounterRequest(namespace="a", counter_name="é" * 129),
            ("NAME_TOO_LONG", "counter_name"),
        ),
        (
            "AuditCounter",
            pb.AuditCounterRequest(
                namespace="a", counter_name="b", base_time=Timestamp(seconds=-1)
            ),
            ("TIME_MALFORMED", "base_time"),
        ),
        (
            "AuditCounter",
            pb.AuditCounterRequest(namespace="a", counter_name="b"),
            ("NAMESPACE_UNKNOWN", ""),
        ),
        ("AuditWindow", pb.AuditWindowRequest(shard=99), ("TIME_MALFORMED", "time")),
        (
            "AuditWindow",
            pb.AuditWindowRequest(shard=99, time=Timestamp(seconds=1)),
            ("SHARD_UNKNOWN", "shard"),
        ),
        (
            "AuditWindow",
            pb.AuditWindowRequest(shard=1, time=Timestamp(seconds=1)),
            ("HISTORY_TOO_OLD", ""),
        ),
        (
            "QuarantineSegment",
            pb.QuarantineSegmentRequest(segment_id="x"),
            ("SEGMENT_MALFORMED", "segment_id"),
        ),
        (
            "QuarantineSegment",
            pb.QuarantineSegmentRequest(segment_id="0" * 32, reason="why"),
            ("NOTE_MALFORMED", "author"),
        ),
        (
            "QuarantineSegment",
            pb.QuarantineSegmentRequest(segment_id="0" * 32, author="oncall", reason="why"),
            ("SEGMENT_UNKNOWN", ""),
        ),
    ],
)
async def test_errors_name_reason_and_field(
    world: World, rpc: str, request_: Any, expected: tuple[str, str]
) -> None:
    with pytest.raises(Aborted) as caught:
        await getattr(service(world), rpc)(request_, Context())
    assert (caught.value.reason, caught.value.field) == expected
