"""Raw gRPC calls as another team would make them from the contract, with errors taken apart."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter.v1 import namespace_service_pb2_grpc as namespaces_grpc
from counter.v1 import rollup_service_pb2_grpc as rollups_grpc

NS_PER_S = 1_000_000_000
_numbers = itertools.count()


def token(*, age_s: float = 0.0, name: str | None = None, region: str = "") -> pb.IdempotencyToken:
    message = pb.IdempotencyToken(token=name or f"token-{next(_numbers)}", region=region)
    message.generation_time.FromNanoseconds(time.time_ns() - int(age_s * NS_PER_S))
    return message


def fresh_counter(prefix: str = "counter") -> str:
    return f"{prefix}-{next(_numbers)}-{time.time_ns()}"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An error as its caller sees it."""

    code: grpc.StatusCode
    reason: str
    fields: list[str] = field(default_factory=list)
    message: str = ""
    retry_after_s: float | None = None
    server_time_ns: int | None = None


def refusal(call: Callable[[], Any]) -> Refusal:
    try:
        answer = call()
    except grpc.RpcError as error:
        return refusal_of(error)
    raise AssertionError(f"not refused: {answer}")


def reason_of(error: Any) -> str:
    """Why a call was refused; empty if no server said so: the connection broke, or time was up."""
    return "" if rpc_status.from_call(error) is None else refusal_of(error).reason


def refusal_of(error: Any) -> Refusal:
    """Takes an error apart; every error must be a rich one."""
    status = rpc_status.from_call(error)
    assert status is not None, f"no rich error: {error}"
    values: dict[str, Any] = {"code": error.code(), "reason": "", "message": error.details()}
    for detail in status.details:
        for kind in (
            error_details_pb2.ErrorInfo,
            error_details_pb2.BadRequest,
            error_details_pb2.RetryInfo,
        ):
            if not detail.Is(kind.DESCRIPTOR):
                continue
            message = kind()
            detail.Unpack(message)
            if kind is error_details_pb2.ErrorInfo:
                assert message.domain == "counter.v1"
                values["reason"] = message.reason
                if "server_time_ns" in message.metadata:
                    values["server_time_ns"] = int(message.metadata["server_time_ns"])
            elif kind is error_details_pb2.BadRequest:
                values["fields"] = [each.field for each in message.field_violations]
            else:
                values["retry_after_s"] = message.retry_delay.ToNanoseconds() / NS_PER_S
    return Refusal(**values)


class Calls:
    """One channel to one server; each method is one call."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_reconnect_backoff_ms", 200),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self.counters = pb_grpc.CounterServiceStub(self.channel)
        self.namespaces = namespaces_grpc.NamespaceServiceStub(self.channel)
        self.rollups = rollups_grpc.RollupServiceStub(self.channel)

    def __enter__(self) -> "Calls":
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def add(
        self,
        namespace: str,
        counter: str,
        delta: int = 1,
        idempotency_token: pb.IdempotencyToken | None = None,
        *,
        timeout_s: float = 10.0,
    ) -> pb.AddCountResponse:
        request = pb.AddCountRequest(
            namespace=namespace,
            counter_name=counter,
            delta=delta,
            idempotency_token=idempotency_token,
        )
        return self.counters.AddCount(request, timeout=timeout_s)

    def clear(
        self,
        namespace: str,
        counter: str,
        idempotency_token: pb.IdempotencyToken | None = None,
    ) -> pb.ClearCountResponse:
        request = pb.ClearCountRequest(
            namespace=namespace, counter_name=counter, idempotency_token=idempotency_token
        )
        return self.counters.ClearCount(request, timeout=10)

    def get(
        self, namespace: str, counter: str, *, max_staleness_s: float | None = None
    ) -> pb.CountValue:
        request = pb.GetCountRequest(namespace=namespace, counter_name=counter)
        if max_staleness_s is not None:
            request.max_staleness.FromNanoseconds(int(max_staleness_s * NS_PER_S))
        return self.counters.GetCount(request, timeout=10).value

    def accurate(self, namespace: str, counter: str) -> int:
        return self.get(namespace, counter, max_staleness_s=0).count

    def status(
        self, namespace: str, counter: str, idempotency_token: pb.IdempotencyToken
    ) -> pb.TokenStatus:
        request = pb.GetTokenStatusRequest(
            namespace=namespace, counter_name=counter, idempotency_token=idempotency_token
        )
        return self.counters.GetTokenStatus(request, timeout=10).status

    def folded_status(
        self, namespace: str, counter: str, idempotency_token: pb.IdempotencyToken
    ) -> pb.TokenStatus:
        """The token's status once its window is folded."""
        return eventually(
            lambda: self.status(namespace, counter, idempotency_token),
            lambda status: status != pb.TOKEN_STATUS_PENDING,
        )


def eventually(
    ask: Callable[[], Any], wanted: Callable[[Any], bool], *, within_s: float = 60.0
) -> Any:
    """Asks until the answer is wanted; no test waits longer than it has to."""
    ends = time.monotonic() + within_s
    while True:
        answer = ask()
        if wanted(answer):
            return answer
        assert time.monotonic() < ends, f"still {answer}"
        time.sleep(0.05)
