"""Between the SDK's values of audits and the messages of counter.v1."""

from collections.abc import Iterable

from clients.audit_values import (
    AuditBase,
    AuditBaseKind,
    AuditDifference,
    AuditResult,
    CounterAudit,
    DifferenceKind,
    QuarantinedSegment,
    SetAsideSegment,
    WindowAudit,
)
from clients.translate import optional_ns
from clients.translate_history import adjustment, word_of
from counter.v1 import rollup_service_pb2 as pb

_RESULTS: dict[int, AuditResult] = {
    pb.AUDIT_RESULT_EQUAL: AuditResult.EQUAL,
    pb.AUDIT_RESULT_DIFFERENT: AuditResult.DIFFERENT,
}
_BASES: dict[int, AuditBaseKind] = {
    pb.AuditBase.KIND_START: AuditBaseKind.START,
    pb.AuditBase.KIND_HISTORY: AuditBaseKind.HISTORY,
}
_DIFFERENCES: dict[int, DifferenceKind] = {
    pb.AuditDifference.KIND_ROLLUP: DifferenceKind.ROLLUP,
    pb.AuditDifference.KIND_HISTORY: DifferenceKind.HISTORY,
    pb.AuditDifference.KIND_HISTORY_MISSING: DifferenceKind.HISTORY_MISSING,
    pb.AuditDifference.KIND_SEGMENTS: DifferenceKind.SEGMENTS,
}


def counter_audit(message: pb.AuditCounterResponse) -> CounterAudit:
    return CounterAudit(
        result=word_of(_RESULTS, message.result, "audit result"),
        base=AuditBase(
            kind=_BASES.get(message.base.kind),
            time_ns=optional_ns(message.base, "time"),
            count=message.base.count,
        ),
        audited_through_ns=optional_ns(message, "audited_through"),
        expected_count=message.expected_count,
        actual_count=message.actual_count,
        events=message.events,
        differences=_differences(message.differences),
        adjustments=tuple(adjustment(each) for each in message.adjustments),
        pending_adjustments=tuple(adjustment(each) for each in message.pending_adjustments),
    )


def window_audit(message: pb.AuditWindowResponse) -> WindowAudit:
    return WindowAudit(
        result=word_of(_RESULTS, message.result, "audit result"),
        from_ns=optional_ns(message, "from"),
        to_ns=optional_ns(message, "to"),
        segments=message.segments,
        events=message.events,
        recorded_digest=message.recorded_digest,
        computed_digest=message.computed_digest,
        late_segments=message.late_segments,
        set_aside=tuple(
            SetAsideSegment(
                segment_id=each.segment_id,
                events=each.events,
                author=each.author,
                reason=each.reason,
                time_ns=optional_ns(each, "time"),
            )
            for each in message.set_aside
        ),
        counters_equal=message.counters_equal,
        counters_different=message.counters_different,
        counters_without_base=message.counters_without_base,
        differences=_differences(message.differences),
    )


def quarantined_segment(message: pb.QuarantineSegmentResponse) -> QuarantinedSegment:
    return QuarantinedSegment(
        shard=message.shard, window_ns=optional_ns(message, "window"), events=message.events
    )


def _differences(messages: Iterable[pb.AuditDifference]) -> tuple[AuditDifference, ...]:
    return tuple(
        AuditDifference(
            kind=_DIFFERENCES.get(each.kind),
            from_ns=optional_ns(each, "from"),
            to_ns=optional_ns(each, "to"),
            expected=each.expected,
            actual=each.actual,
            message=each.message,
        )
        for each in messages
    )
