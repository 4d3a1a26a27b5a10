"""Handlers alone: what a call costs beyond the transport."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hot_path.local_server import CallContext, local_server
from benchmarks.hot_path.stages import ROUNDS, least_awaited_us
from benchmarks.requests import add_requests, counter_name
from benchmarks.servers import NAMESPACE
from counter.v1 import counter_service_pb2 as pb

_TOGETHER = 50  # calls, as in the benchmark of calls
_READS = 200
_CACHED = 1_000


async def handler_costs(home: Path) -> dict[tuple[str, str], float]:
    """Microseconds by what is called, and for each of what."""
    async with local_server(home) as server:
        methods, context = server.methods, CallContext()
        names = [counter_name(number) for number in range(_CACHED)]
        get_count = methods["GetCount"].unary_unary
        batch_get = methods["BatchGetCount"].unary_unary
        one = pb.GetCountRequest(namespace=NAMESPACE, counter_name=names[0])
        many = pb.BatchGetCountRequest(namespace=NAMESPACE, counter_name=names).SerializeToString()

        async def read_one() -> None:
            for _ in range(_READS):
                (await get_count(one, context)).SerializeToString()

        async def read_many() -> None:
            request = pb.BatchGetCountRequest.FromString(many)
            (await batch_get(request, context)).SerializeToString()

        await read_many()  # fills the cache
        read_us = await least_awaited_us(read_one, _READS)
        await read_many()
        return {
            (f"AddCount, {_TOGETHER} at once", "call"): await _adds_us(methods["AddCount"]),
            ("GetCount, cached", "call"): read_us,
            (f"BatchGetCount of {_CACHED:,} cached", "counter"): await least_awaited_us(
                read_many, _CACHED, 10 * ROUNDS
            ),
        }


async def _adds_us(handler: object) -> float:
    bodies = add_requests(_CACHED)
    add = handler.unary_unary  # type: ignore[attr-defined]  # what gRPC registers has no types
    least_s = float("inf")
    for _ in range(5 * ROUNDS):
        requests = list(_parsed(bodies))
        began_s = time.process_time()
        await asyncio.gather(*(add(each, CallContext()) for each in requests))
        least_s = min(least_s, time.process_time() - began_s)
    return least_s / _TOGETHER * 1_000_000


def _parsed(bodies: Iterator[bytes]) -> Iterator[pb.AddCountRequest]:
    for _ in range(_TOGETHER):
        yield pb.AddCountRequest.FromString(next(bodies))
