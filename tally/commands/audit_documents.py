"""Audits as JSON. Field names are stable."""

from typing import Any

from clients import AuditDifference, AuditWithoutBase, CounterAudit, WindowAudit
from tally.commands.history import adjustment_document
from tally.commands.values import format_time

_DIFFERENCE_FIELDS = "differences, a list of: kind, from, to, expected, actual, message"
COUNTER_FIELDS = (
    "result (equal, different or without_base), base_kind, base_time, base_count, "
    f"audited_through, expected_count, actual_count, events, {_DIFFERENCE_FIELDS}; adjustments and "
    "pending_adjustments (not folded yet), lists of: time, delta, author, reason"
)
AUDIT_FIELDS = (
    f"JSON: namespace, counters, a list of: counter, problem, {COUNTER_FIELDS}. With --window: "
    "shard, result, from, to, segments, events, recorded_digest, computed_digest, late_segments, "
    "counters_equal, counters_different, counters_without_base, set_aside, a list of: segment_id, "
    f"events, author, reason, time; {_DIFFERENCE_FIELDS}."
)
WITHOUT_BASE = "without_base"


def audit_or_not_document(audit: CounterAudit | AuditWithoutBase) -> dict[str, Any]:
    if isinstance(audit, AuditWithoutBase):
        return {"result": WITHOUT_BASE, "problem": audit.message}
    return {"problem": None} | audit_document(audit)


def audit_document(audit: CounterAudit) -> dict[str, Any]:
    return {
        "result": audit.result,
        "base_kind": audit.base.kind,
        "base_time": format_time(audit.base.time_ns),
        "base_count": audit.base.count,
        "audited_through": format_time(audit.audited_through_ns),
        "expected_count": audit.expected_count,
        "actual_count": audit.actual_count,
        "events": audit.events,
        "differences": [_difference_document(each) for each in audit.differences],
        "adjustments": [adjustment_document(each) for each in audit.adjustments],
        "pending_adjustments": [adjustment_document(each) for each in audit.pending_adjustments],
    }


def _difference_document(difference: AuditDifference) -> dict[str, Any]:
    return {
        "kind": difference.kind,
        "from": format_time(difference.from_ns),
        "to": format_time(difference.to_ns),
        "expected": difference.expected,
        "actual": difference.actual,
        "message": difference.message,
    }


def window_document(shard: int, audit: WindowAudit) -> dict[str, Any]:
    return {
        "shard": shard,
        "result": audit.result,
        "from": format_time(audit.from_ns),
        "to": format_time(audit.to_ns),
        "segments": audit.segments,
        "events": audit.events,
        "recorded_digest": audit.recorded_digest,
        "computed_digest": audit.computed_digest,
        "late_segments": audit.late_segments,
        "counters_equal": audit.counters_equal,
        "counters_different": audit.counters_different,
        "counters_without_base": audit.counters_without_base,
        "set_aside": [
            {
                "segment_id": each.segment_id,
                "events": each.events,
                "author": each.author,
                "reason": each.reason,
                "time": format_time(each.time_ns),
            }
            for each in audit.set_aside
        ],
        "differences": [_difference_document(each) for each in audit.differences],
    }
