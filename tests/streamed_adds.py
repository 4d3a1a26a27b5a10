"""What it takes to send a stream of adds, or to answer one as a scripted server."""

import time

from counter.errors import TallyError
from counter.rpc.status import code_of
from counter.v1 import counter_service_pb2 as pb


def batch_of(counter: str, number: int, adds: int) -> pb.StreamAddCountRequest:
    """So many adds of 1, in columns, each with a token of its own."""
    now_ns = time.time_ns()
    return pb.StreamAddCountRequest(
        sequence_number=number,
        namespace="plays",
        columns=pb.AddCountColumns(
            counter_name=[counter] * adds,
            delta=[1] * adds,
            token=[f"{counter}-{number}-{at}" for at in range(adds)],
            generation_time_ns=[now_ns] * adds,
        ),
    )


def outcome_of(error: TallyError) -> pb.AddCountOutcome:
    outcome = pb.AddCountOutcome(code=code_of(error), reason=error.reason, message=error.message)
    if error.server_time_ns is not None:
        outcome.server_time.FromNanoseconds(error.server_time_ns)
    if error.retry_after_ms is not None:
        outcome.retry_delay.FromMilliseconds(error.retry_after_ms)
    return outcome


def adds_of(batch: pb.StreamAddCountRequest) -> list[pb.AddCountRequest]:
    """The adds of a batch in columns, as if each had been a call."""
    columns = batch.columns
    adds = []
    for name, delta, text, time_ns in zip(
        columns.counter_name, columns.delta, columns.token, columns.generation_time_ns, strict=True
    ):
        add = pb.AddCountRequest(namespace=batch.namespace, counter_name=name, delta=delta)
        add.idempotency_token.token = text
        add.idempotency_token.generation_time.FromNanoseconds(time_ns)
        adds.append(add)
    for add, region in zip(adds, columns.region, strict=False):
        add.idempotency_token.region = region
    return adds
