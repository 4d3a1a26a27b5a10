"""Requests to a namespace with limits."""

from typing import Any

from counter.metrics import LIMITED
from counter.namespaces import Definition, HistoryStep, Strategy
from counter.namespaces import Limits as NamespaceLimits
from counter.v1 import counter_service_pb2 as pb
from tests.unit.counter_server.served import Served

MINUTES = HistoryStep(step_ms=60_000, retention_ms=86_400_000)


def plays(**limits: Any) -> Definition:
    return Definition(
        name="plays",
        strategy=Strategy.ACCURATE,
        history=(MINUTES,),
        limits=NamespaceLimits(**limits),
    )


def add(counter: str = "views", delta: int = 1) -> pb.AddCountRequest:
    return pb.AddCountRequest(namespace="plays", counter_name=counter, delta=delta)


def batch(*counters: str, delta: int = 1) -> pb.BatchAddCountRequest:
    items = [pb.AddCountItem(counter_name=each, delta=delta) for each in counters]
    return pb.BatchAddCountRequest(namespace="plays", items=items)


def get(counter: str = "views") -> pb.GetCountRequest:
    return pb.GetCountRequest(namespace="plays", counter_name=counter)


def get_all(*counters: str) -> pb.BatchGetCountRequest:
    return pb.BatchGetCountRequest(namespace="plays", counter_name=counters)


def limited(limit: str) -> int:
    return LIMITED.at(limit=limit).value


async def events_written(served: Served) -> int:
    return sum(await served.parts.stored_events())
