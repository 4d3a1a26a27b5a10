"""Failures are read from whatever comes back, also from servers that are not Tally's."""

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from clients import errors
from clients.failures import Failure, error_of, failure_of_call, failure_of_outcome
from counter import errors as server_errors
from counter.rpc.status import code_of, status_of
from counter.v1 import counter_service_pb2 as pb

CODES = {code.value[0]: code for code in grpc.StatusCode}


def failure_from(*metadata: tuple[str, str | bytes], code: int = 14) -> Failure:
    error = grpc.aio.AioRpcError(
        CODES[code], grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), "what happened", None
    )
    return failure_of_call(error)


def failure_with(status: status_pb2.Status) -> Failure:
    details = ("grpc-status-details-bin", status.SerializeToString())
    return failure_from(("other", "text"), details, code=status.code)


def test_everything_that_a_server_says_is_read() -> None:
    error = server_errors.TokenExpired("late", retry_after_ms=1_500, server_time_ns=2**62 + 1)
    failure = failure_with(status_of(error))
    assert failure.reason == "TOKEN_EXPIRED"
    assert failure.server_time_ns == 2**62 + 1
    assert failure.retry_after_s == 1.5


@pytest.mark.parametrize(
    "details", [b"\xff\xff\xff", b"", status_pb2.Status(code=5).SerializeToString()]
)
def test_unreadable_details_leave_the_code(details: bytes) -> None:
    failure = failure_from(("grpc-status-details-bin", details))
    assert failure == Failure(code=grpc.StatusCode.UNAVAILABLE, message="what happened")


def test_the_reason_of_another_domain_is_not_ours() -> None:
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.ErrorInfo(reason="OVERLOADED", domain="proxy.example"))
    assert failure_with(status_pb2.Status(code=8, details=[packed])).reason == ""


def test_a_time_that_is_no_number_is_ignored() -> None:
    packed = any_pb2.Any()
    info = error_details_pb2.ErrorInfo(reason="TOKEN_EXPIRED", domain="counter.v1")
    info.metadata["server_time_ns"] = "soon"
    packed.Pack(info)
    assert failure_with(status_pb2.Status(code=9, details=[packed])).server_time_ns is None


def test_an_outcome_reads_like_a_call() -> None:
    assert failure_of_outcome(pb.AddCountOutcome(duplicate=True)) is None
    outcome = pb.AddCountOutcome(code=11, reason="TOKEN_FROM_FUTURE", message="early")
    outcome.server_time.FromNanoseconds(123)
    outcome.retry_delay.FromMilliseconds(250)
    assert failure_of_outcome(outcome) == Failure(
        code=grpc.StatusCode.OUT_OF_RANGE,
        reason="TOKEN_FROM_FUTURE",
        message="early",
        server_time_ns=123,
        retry_after_s=0.25,
    )
    strange = failure_of_outcome(pb.AddCountOutcome(code=99))
    assert strange is not None
    assert strange.code is grpc.StatusCode.UNKNOWN


def _kinds(kind: type[server_errors.TallyError]) -> list[type[server_errors.TallyError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _kinds(child))]


def _raised(kind: type[server_errors.TallyError]) -> server_errors.TallyError:
    if issubclass(kind, server_errors.InvalidRequest):
        return server_errors.InvalidRequest("NAME_EMPTY", "counter_name", "no name")
    if issubclass(kind, server_errors.SegmentDamaged):
        return kind("what happened", segment_id=bytes(16))
    return kind("what happened")


@pytest.mark.parametrize("kind", _kinds(server_errors.TallyError))
def test_every_error_of_the_servers_has_a_class(kind: type[server_errors.TallyError]) -> None:
    error = _raised(kind)
    typed = error_of(failure_with(status_of(error)))
    assert typed.reason == error.reason
    assert typed.code is CODES[code_of(error)]
    # The trees agree wherever they use the same word.
    if expected := getattr(errors, kind.__name__, None):
        assert isinstance(typed, expected)
    else:
        assert isinstance(typed, errors.Overloaded | errors.Unavailable | errors.Refused) or (
            type(typed) is errors.Internal
        )


@pytest.mark.parametrize("reason", sorted(server_errors.INVALID_REASONS))
def test_every_reason_of_an_invalid_request_comes_through(reason: str) -> None:
    typed = error_of(failure_with(status_of(server_errors.InvalidRequest(reason, "f", "wrong"))))
    assert isinstance(typed, errors.InvalidRequest)
    assert (typed.reason, typed.field) == (reason, "f")


def test_a_broken_connection_is_unavailable_but_a_servers_mistake_is_internal() -> None:
    broken = Failure(code=grpc.StatusCode.UNKNOWN, message="stream removed")
    assert isinstance(error_of(broken), errors.Unavailable)
    mistake = Failure(code=grpc.StatusCode.INTERNAL, reason="INTERNAL", message="a bug")
    assert isinstance(error_of(mistake), errors.Internal)
    assert "DATA_LOSS" in error_of(Failure(code=grpc.StatusCode.DATA_LOSS)).message
