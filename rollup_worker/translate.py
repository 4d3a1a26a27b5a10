"""Between protobuf and the audit. Protobuf goes no deeper than this."""

from typing import Literal

from counter.errors import InvalidRequest
from counter.events import Event
from counter.rollups import SetAside
from counter.rpc.values import clamped, set_stamp, timestamp_ns
from counter.settings import COUNTER_NAME_BYTES_MAX
from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import rollup_service_pb2 as pb
from counter.windows import Layout
from rollup_worker.audit.audit import CounterAudit, WindowAudit
from rollup_worker.audit.values import BaseKind, Difference, DifferenceKind

_BASES = {
    BaseKind.START: pb.AuditBase.KIND_START,
    BaseKind.HISTORY: pb.AuditBase.KIND_HISTORY,
}
_DIFFERENCES = {
    DifferenceKind.ROLLUP: pb.AuditDifference.KIND_ROLLUP,
    DifferenceKind.HISTORY: pb.AuditDifference.KIND_HISTORY,
    DifferenceKind.HISTORY_MISSING: pb.AuditDifference.KIND_HISTORY_MISSING,
    DifferenceKind.SEGMENTS: pb.AuditDifference.KIND_SEGMENTS,
}


def check_name(name: str, field: str) -> None:
    if not name:
        raise InvalidRequest("NAME_EMPTY", field, f"{field} is missing")
    if len(name.encode()) > COUNTER_NAME_BYTES_MAX:
        raise InvalidRequest(
            "NAME_TOO_LONG",
            field,
            f"{field} has over {COUNTER_NAME_BYTES_MAX} bytes of UTF-8: shorten it",
        )


def required_timestamp_ns(request: pb.AuditWindowRequest, field: Literal["time"]) -> int:
    if not request.HasField(field):
        raise InvalidRequest("TIME_MALFORMED", field, f"{field} is missing: any in the window")
    return timestamp_ns(getattr(request, field), "TIME_MALFORMED", field)


def counter_audit_message(audit: CounterAudit, layout: Layout) -> pb.AuditCounterResponse:
    message = pb.AuditCounterResponse(
        result=_result(audit.is_different),
        expected_count=clamped(audit.expected.count)[0],
        actual_count=clamped(audit.actual.count)[0],
        events=audit.events,
        differences=[_difference(each, layout) for each in audit.differences],
    )
    set_stamp(message.audited_through, layout.complete_through_ns(audit.audited_through))
    if audit.base is not None:
        message.base.kind = _BASES[audit.base.kind]
        message.base.count = clamped(audit.base.state.count)[0]
        set_stamp(message.base.time, layout.complete_through_ns(audit.base.through_window))
    message.adjustments.extend(map(_adjustment, audit.adjustments))
    message.pending_adjustments.extend(map(_adjustment, audit.pending_adjustments))
    return message


def _adjustment(event: Event) -> counter_pb.Adjustment:
    assert event.note is not None
    author, reason = event.note
    message = counter_pb.Adjustment(
        delta=clamped(event.delta or 0)[0], author=author, reason=reason
    )
    set_stamp(message.time, event.time_ns)
    return message


def window_audit_message(audit: WindowAudit, layout: Layout) -> pb.AuditWindowResponse:
    check, record = audit.check, audit.check.record
    message = pb.AuditWindowResponse(
        result=_result(audit.is_different),
        segments=len(record.segments),
        events=check.events,
        recorded_digest=record.digest.hex(),
        computed_digest=check.digest.hex(),
        late_segments=audit.late_segments,
        set_aside=[_set_aside(each) for each in record.set_aside],
        counters_equal=audit.equal,
        counters_different=audit.different,
        counters_without_base=audit.without_base,
        differences=[_difference(each, layout) for each in audit.differences],
    )
    set_stamp(getattr(message, "from"), layout.start_ns(record.from_window))
    set_stamp(message.to, layout.complete_through_ns(record.to_window))
    return message


def _difference(difference: Difference, layout: Layout) -> pb.AuditDifference:
    message = pb.AuditDifference(
        kind=_DIFFERENCES[difference.kind],
        expected=clamped(difference.expected)[0],
        actual=clamped(difference.actual)[0],
        message=difference.message,
    )
    set_stamp(getattr(message, "from"), layout.start_ns(difference.from_window))
    set_stamp(message.to, layout.complete_through_ns(difference.to_window))
    return message


def _set_aside(decision: SetAside) -> pb.SetAsideSegment:
    message = pb.SetAsideSegment(
        segment_id=decision.segment.segment_id.hex(),
        events=decision.segment.event_count,
        author=decision.author,
        reason=decision.reason,
    )
    set_stamp(message.time, decision.time_ns)
    return message


def _result(is_different: bool) -> pb.AuditResult.ValueType:
    return pb.AUDIT_RESULT_DIFFERENT if is_different else pb.AUDIT_RESULT_EQUAL
