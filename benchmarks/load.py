"""The client: a closed loop of raw calls on one channel.

Requests are bytes before the call and answers stay bytes, so that the client's own work, which
shares the machine with the server, is as small and as equal between the servers as it can be.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from benchmarks.figures import percentile_ms
from benchmarks.servers import Server

Call = Callable[[bytes], Awaitable[bytes]]
_SERVICE = "/counter.v1.CounterService/"


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one stretch of load came to."""

    elapsed_s: float
    cpu_s: float  # of the server
    latencies_s: list[float]
    responses: list[bytes]

    @property
    def calls(self) -> int:
        return len(self.latencies_s)

    @property
    def calls_per_s(self) -> float:
        return self.calls / self.elapsed_s

    @property
    def cpu_us_per_call(self) -> float:
        return self.cpu_s / self.calls * 1_000_000

    def latencies(self) -> dict[str, float]:
        return {
            "p50_ms": percentile_ms(self.latencies_s, 50),
            "p99_ms": percentile_ms(self.latencies_s, 99),
        }


def merged(loads: list[Load]) -> Load:
    """Several stretches as one, without their responses."""
    return Load(
        elapsed_s=sum(load.elapsed_s for load in loads),
        cpu_s=sum(load.cpu_s for load in loads),
        latencies_s=[each for load in loads for each in load.latencies_s],
        responses=[],
    )


def call_of(server: Server, method: str) -> Call:
    """A unary call of CounterService that takes and gives bytes."""
    multicallable = server.channel.unary_unary(
        _SERVICE + method, request_serializer=bytes, response_deserializer=bytes
    )

    async def call(request: bytes) -> bytes:
        response: bytes = await multicallable(request)
        return response

    return call


async def drive(
    server: Server,
    call: Call,
    requests: Iterator[bytes],
    *,
    in_flight: int,
    seconds: float | None = None,
) -> Load:
    """Keeps `in_flight` calls under way for `seconds`, or until there are no more requests."""
    latencies_s: list[float] = []
    responses: list[bytes] = []
    now_s = time.perf_counter
    cpu_before_s = server.cpu_s()
    start_s = now_s()
    ends_s = float("inf") if seconds is None else start_s + seconds

    async def loop() -> None:
        while (began_s := now_s()) < ends_s:
            request = next(requests, None)
            if request is None:
                return
            response = await call(request)
            latencies_s.append(now_s() - began_s)
            responses.append(response)

    await asyncio.gather(*(loop() for _ in range(in_flight)))
    return Load(
        elapsed_s=now_s() - start_s,
        cpu_s=server.cpu_s() - cpu_before_s,
        latencies_s=latencies_s,
        responses=responses,
    )
