"""Adds as the rules send them, and between them and protobuf."""

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import code_pb2

from counter.clock import NS_PER_S
from counter.v1 import counter_service_pb2 as pb
from tests.stateful.model import Effect, Identity


class Add(NamedTuple):
    """An add, a clear or an adjustment, as it is sent."""

    counter: str
    delta: int | None  # None: a clear
    token: str
    time_ns: int | None  # None: it is left out
    region: str = ""
    note: tuple[str, str] | None = None

    @property
    def identity(self) -> Identity:
        assert self.time_ns is not None
        return Identity(self.time_ns, self.token)

    @property
    def effect(self) -> Effect:
        return Effect(self.delta, self.note)

    def message(self) -> pb.IdempotencyToken:
        message = pb.IdempotencyToken(token=self.token, region=self.region)
        if self.time_ns is not None:
            message.generation_time.CopyFrom(stamp(self.time_ns))
        return message


class Sent(NamedTuple):
    """What was sent before, to be sent or asked about again."""

    namespace: str
    add: Add


class Outcome(NamedTuple):
    """Of one add: OK if there is no reason."""

    reason: str
    duplicate: bool = False


def items(adds: list[Add]) -> list[pb.AddCountItem]:
    return [
        pb.AddCountItem(
            counter_name=each.counter, delta=each.delta, idempotency_token=each.message()
        )
        for each in adds
    ]


def columns(adds: list[Add]) -> pb.AddCountColumns:
    return pb.AddCountColumns(
        counter_name=[each.counter for each in adds],
        delta=[each.delta for each in adds],
        token=[each.token for each in adds],
        generation_time_ns=[each.time_ns for each in adds],
    )


def outcomes_of(messages: Sequence[pb.AddCountOutcome]) -> list[Outcome]:
    for each in messages:
        assert (each.code == code_pb2.OK) == (not each.reason)
        assert each.code != code_pb2.INTERNAL, each
    return [Outcome(each.reason, each.duplicate) for each in messages]


def stamp(time_ns: int) -> Timestamp:
    seconds, nanos = divmod(time_ns, NS_PER_S)
    return Timestamp(seconds=seconds, nanos=nanos)


def nanoseconds(message: Timestamp) -> int:
    return message.seconds * NS_PER_S + message.nanos
