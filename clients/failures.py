"""Why one attempt failed, in one form, whether a whole call failed or one item of a batch."""

from collections.abc import Iterable
from dataclasses import dataclass

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from clients import errors
from clients.times import ns_of_duration, ns_of_timestamp
from counter.clock import NS_PER_S
from counter.v1 import counter_service_pb2 as pb

# The domain of the ErrorInfo that Tally's own servers send.
ERROR_DOMAIN = "counter.v1"
_DETAILS_KEY = "grpc-status-details-bin"
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

_BY_REASON: dict[str, type[errors.CounterError]] = {
    "NAMESPACE_UNKNOWN": errors.NamespaceUnknown,
    "ADDS_LIMITED": errors.NamespaceLimited,
    "READS_LIMITED": errors.NamespaceLimited,
    "COUNTERS_LIMITED": errors.NamespaceLimited,
    "TOKEN_EXPIRED": errors.TokenExpired,
    "TOKEN_TOO_OLD": errors.TokenTooOld,
    "TOKEN_FROM_FUTURE": errors.TokenFromFuture,
    "WRONG_REGION": errors.WrongRegion,
    "STRATEGY_UNSUPPORTED": errors.Unsupported,
    "HISTORY_OFF": errors.HistoryOff,
    "HISTORY_TOO_OLD": errors.HistoryTooOld,
    "AUDIT_WITHOUT_BASE": errors.AuditWithoutBase,
    "NAMESPACES_INVALID": errors.NamespacesInvalid,
    "VERSION_UNKNOWN": errors.VersionUnknown,
    "VERSION_CONFLICT": errors.VersionConflict,
    "CHANGE_IMPOSSIBLE": errors.ChangeImpossible,
    "DATA_LOSS_NOT_ALLOWED": errors.DataLossRefused,
    "SHADOW_OFF": errors.ShadowOff,
    "SEGMENT_READABLE": errors.SegmentReadable,
    "SEGMENT_AGREED": errors.SegmentAgreed,
    "SEGMENT_UNKNOWN": errors.SegmentUnknown,
    "SEGMENT_DAMAGED": errors.SegmentDamaged,
}

# For reasons that this version does not know, and for answers that are not from a Tally server.
_BY_CODE: dict[grpc.StatusCode, tuple[type[errors.CounterError], str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (errors.InvalidRequest, "INVALID"),
    grpc.StatusCode.NOT_FOUND: (errors.NotFound, "NOT_FOUND"),
    grpc.StatusCode.UNAUTHENTICATED: (errors.NotPermitted, "NOT_PERMITTED"),
    grpc.StatusCode.PERMISSION_DENIED: (errors.NotPermitted, "NOT_PERMITTED"),
    grpc.StatusCode.FAILED_PRECONDITION: (errors.Refused, "REFUSED"),
    grpc.StatusCode.OUT_OF_RANGE: (errors.Refused, "REFUSED"),
    grpc.StatusCode.UNIMPLEMENTED: (errors.Unsupported, "UNIMPLEMENTED"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (errors.Overloaded, "OVERLOADED"),
    grpc.StatusCode.UNAVAILABLE: (errors.Unavailable, "NO_ANSWER"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (errors.Unavailable, "NO_ANSWER"),
    grpc.StatusCode.ABORTED: (errors.Unavailable, "NO_ANSWER"),
    grpc.StatusCode.CANCELLED: (errors.Unavailable, "NO_ANSWER"),
}
# An outcome of a batch names no field, but each of its reasons is about one.
_FIELDS: dict[str, str] = {
    "NAME_EMPTY": "counter_name",
    "NAME_TOO_LONG": "counter_name",
    "NAME_NOT_ALLOWED": "counter_name",
    "DELTA_ZERO": "delta",
    "DELTA_TOO_LARGE": "delta",
    "TOKEN_MALFORMED": "idempotency_token",
}
# Where no Tally server gave the reason, this is what a broken connection can look like.
_BROKEN = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    code: grpc.StatusCode
    message: str = ""
    # The server's stable reason. Empty: no Tally server said this, so it proves nothing about
    # what was written (a proxy, a broken connection, a limit of gRPC itself).
    reason: str = ""
    field: str = ""
    server_time_ns: int | None = None
    retry_after_s: float | None = None


def failure_of_call(error: grpc.aio.AioRpcError) -> Failure:
    """Reads the google.rpc.Status in the trailing metadata; without one, the code and message."""
    reason = field = ""
    server_time_ns: int | None = None
    retry_after_s: float | None = None
    for detail in _status_of(error).details:
        info = error_details_pb2.ErrorInfo()
        bad_request = error_details_pb2.BadRequest()
        retry_info = error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
            reason = info.reason
            stamp = info.metadata.get("server_time_ns", "")
            server_time_ns = int(stamp) if stamp.isdecimal() else None
        elif detail.Unpack(bad_request) and bad_request.field_violations:
            field = bad_request.field_violations[0].field
        elif detail.Unpack(retry_info):
            retry_after_s = ns_of_duration(retry_info.retry_delay) / NS_PER_S
    return Failure(
        code=error.code(),
        message=error.details() or "",
        reason=reason,
        field=field,
        server_time_ns=server_time_ns,
        retry_after_s=retry_after_s,
    )


def failure_of_outcome(outcome: pb.AddCountOutcome) -> Failure | None:
    """Why an item of a batch failed; None if it did not."""
    if outcome.code == 0:
        return None
    return Failure(
        code=_CODES.get(outcome.code, grpc.StatusCode.UNKNOWN),
        message=outcome.message,
        reason=outcome.reason,
        field=_FIELDS.get(outcome.reason, ""),
        server_time_ns=(
            ns_of_timestamp(outcome.server_time) if outcome.HasField("server_time") else None
        ),
        retry_after_s=(
            ns_of_duration(outcome.retry_delay) / NS_PER_S
            if outcome.HasField("retry_delay")
            else None
        ),
    )


def error_of(failure: Failure) -> errors.CounterError:
    """The typed error for a failure: by its reason if that is known, else by its code."""
    kind, default_reason = _BY_CODE.get(failure.code, (errors.Internal, "INTERNAL"))
    if failure.code in _BROKEN and not failure.reason:
        kind, default_reason = errors.Unavailable, "NO_ANSWER"
    kind = _BY_REASON.get(failure.reason, kind)
    reason = failure.reason or default_reason
    message = failure.message or f"the server answered {failure.code.name} without a message"
    if failure.code is grpc.StatusCode.UNIMPLEMENTED and not failure.reason:
        message = (
            f"the server has no such method ({message}): is it a Tally server of this version?"
        )
    if issubclass(kind, errors.InvalidRequest):
        return kind(message, reason=reason, code=failure.code, field=failure.field)
    return kind(message, reason=reason, code=failure.code)


def _status_of(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    # grpc_status would raise where the details are damaged or disagree with the code. Here the
    # code has to be reported whatever came with it, so unreadable details count as none.
    # The stubs describe the metadata of the synchronous API; here it is pairs.
    metadata: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                break
    return status_pb2.Status()
