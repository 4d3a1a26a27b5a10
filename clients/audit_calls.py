"""Calls that check what the folds made, and that decide on what cannot be folded."""

from clients import translate_audit as translate
from clients.audit_values import CounterAudit, QuarantinedSegment, WindowAudit
from clients.platform_calls import PlatformCalls
from clients.translate import check_name
from clients.translate_history import Moment, check_shard, moment_message, optional_moment
from counter.v1 import rollup_service_pb2 as pb


class AuditCalls(PlatformCalls):
    """The part of `CounterClient` that a worker answers; in a fleet, give its address."""

    _namespace: str

    async def audit_counter(
        self, counter: str, *, base_time: Moment | None = None, timeout_s: float | None = None
    ) -> CounterAudit:
        """Computes a counter again from what is kept and compares; writes nothing.

        It begins with the state that held at `base_time`, or as early as what is kept allows.
        Raises AuditWithoutBase if that is too little.

            audit = await client.audit_counter("title-42")
            if audit.result is AuditResult.DIFFERENT:
                print(audit.expected_count, audit.actual_count, audit.differences)
        """
        response = await self._connection.read(
            self._connection.rollups.AuditCounter,
            pb.AuditCounterRequest(
                namespace=self._namespace,
                counter_name=check_name(counter),
                base_time=optional_moment(base_time, "base_time"),
            ),
            what=f"the audit of {counter!r} in namespace {self._namespace!r}",
            deadline=self._deadline(timeout_s),
        )
        return translate.counter_audit(response)

    async def audit_window(
        self, shard: int, time: Moment, *, timeout_s: float | None = None
    ) -> WindowAudit:
        """Reads a partition of the event log again and compares; writes nothing.

        `time` is any time in the window. All namespaces of the shard are in it.

            audit = await client.audit_window(3, datetime.now(UTC) - timedelta(minutes=1))
            print(audit.result, audit.events, audit.counters_different)
        """
        response = await self._connection.read(
            self._connection.rollups.AuditWindow,
            pb.AuditWindowRequest(shard=check_shard(shard), time=moment_message(time, "time")),
            what=f"the audit of a window of shard {shard}",
            deadline=self._deadline(timeout_s),
        )
        return translate.window_audit(response)

    async def quarantine_segment(
        self, segment_id: str, *, author: str, reason: str, timeout_s: float | None = None
    ) -> QuarantinedSegment:
        """Sets a segment that cannot be read aside, so that its shard can be folded on.

        **What it held will never count.** The first decision on a segment stays, so the call is
        repeated when an answer is missing; a repetition that comes after the next fold raises
        SegmentUnknown. Raises SegmentReadable if the segment can be read, and SegmentAgreed if a
        fold record names it: then it may not be set aside.

            done = await client.quarantine_segment("5f...", author="oncall", reason="disk failure")
            print(done.events, "events will never count")
        """
        response = await self._connection.read(
            self._connection.rollups.QuarantineSegment,
            pb.QuarantineSegmentRequest(
                segment_id=check_name(segment_id, "segment_id"),
                author=check_name(author, "author"),
                reason=check_name(reason, "reason"),
            ),
            what=f"the quarantine of segment {segment_id!r}",
            deadline=self._deadline(timeout_s),
        )
        return translate.quarantined_segment(response)
