"""The standard health service, asked without its generated stubs, which the SDK does not need.

A HealthCheckRequest is a message with one string in field 1, and its response one with a number
in field 1: on the wire they are protobuf's StringValue and UInt32Value.
"""

import grpc
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

METHOD = "/grpc.health.v1.Health/Check"
COUNTERS = "counter.v1.CounterService"
NAMESPACES = "counter.v1.NamespaceService"
ROLLUPS = "counter.v1.RollupService"
# The empty name is the process as a whole.
SERVICES = ("", COUNTERS, NAMESPACES, ROLLUPS)
SERVING = "serving"
# The programs of a fleet have one service each.
ELSEWHERE = "not in this process"
_STATUSES = {0: "unknown", 1: SERVING, 2: "not serving", 3: ELSEWHERE}


def ask_health(server: str, *, timeout_s: float) -> dict[str, str]:
    """The health of each service, in words; what the call itself answered if that failed."""
    answers: dict[str, str] = {}
    for service in SERVICES:
        answer = _check(server, service, timeout_s)
        if isinstance(answer, int):
            answers[service] = _STATUSES.get(answer, f"status {answer}")
        elif answer is grpc.StatusCode.NOT_FOUND:
            answers[service] = ELSEWHERE
        else:
            answers[service] = f"no answer ({answer.name})"
    return answers


def offers(server: str, service: str, *, timeout_s: float) -> bool:
    """Whether the process has the service; True if that cannot be told."""
    return _check(server, service, timeout_s) is not grpc.StatusCode.NOT_FOUND


def answers_at_all(server: str, *, timeout_s: float) -> bool:
    """Whether a gRPC server is there, whatever it says; waits for one that is just starting."""
    return _check(server, "", timeout_s) not in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    )


def _check(server: str, service: str, timeout_s: float) -> int | grpc.StatusCode:
    """The number that the health service answered, or the status of a call that failed."""
    with grpc.insecure_channel(server) as channel:
        call = channel.unary_unary(
            METHOD,
            request_serializer=StringValue.SerializeToString,
            response_deserializer=UInt32Value.FromString,
        )
        try:
            answer: UInt32Value = call(
                StringValue(value=service), timeout=timeout_s, wait_for_ready=True
            )
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return answer.value
