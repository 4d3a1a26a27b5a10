"""The one table from errors to gRPC statuses, and the rich details that go with them."""

from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from counter import errors
from counter.rpc.values import duration_of

DOMAIN = "counter.v1"

# The first class that fits decides, so subclasses come before their parents.
_CODES: tuple[tuple[type[errors.TallyError], int], ...] = (
    (errors.InvalidRequest, code_pb2.INVALID_ARGUMENT),
    (errors.NotFound, code_pb2.NOT_FOUND),
    (errors.Refused, code_pb2.FAILED_PRECONDITION),
    (errors.OutOfRange, code_pb2.OUT_OF_RANGE),
    (errors.Conflict, code_pb2.ABORTED),
    (errors.Overloaded, code_pb2.RESOURCE_EXHAUSTED),
    (errors.Unavailable, code_pb2.UNAVAILABLE),
    (errors.StoreDamaged, code_pb2.DATA_LOSS),
    (errors.TallyError, code_pb2.INTERNAL),
)


def code_of(error: errors.TallyError) -> int:
    return next(code for kind, code in _CODES if isinstance(error, kind))


def status_of(error: errors.TallyError) -> status_pb2.Status:
    status = status_pb2.Status(code=code_of(error), message=error.message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    if error.server_time_ns is not None:
        info.metadata["server_time_ns"] = str(error.server_time_ns)
    status.details.append(_packed(info))
    if isinstance(error, errors.InvalidRequest):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=error.message, reason=error.reason
        )
        status.details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    if error.retry_after_ms is not None:
        delay = error_details_pb2.RetryInfo(retry_delay=duration_of(error.retry_after_ms))
        status.details.append(_packed(delay))
    return status


def _packed(
    message: error_details_pb2.ErrorInfo
    | error_details_pb2.BadRequest
    | error_details_pb2.RetryInfo,
) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
