"""A stream as its caller sees it, without a network: batches in, answers out."""

import asyncio
from typing import Any

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from tests.tampered import settle
from tests.unit.counter_server.served import Aborted, Context, Served, stamp


class StreamContext(Context):
    def __init__(self) -> None:
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.reads = 0  # begun
        self.written: list[pb.StreamAddCountResponse] = []
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def read(self) -> Any:
        self.reads += 1
        return await self.sent.get()

    async def write(self, response: pb.StreamAddCountResponse) -> None:
        await self.may_write.wait()
        # What goes over the network is this, not the object.
        self.written.append(pb.StreamAddCountResponse.FromString(response.SerializeToString()))


class Stream:
    def __init__(self, served: Served) -> None:
        self.context = StreamContext()
        self.call = asyncio.create_task(served.service.StreamAddCount(None, self.context))

    def send(self, *batches: pb.StreamAddCountRequest) -> None:
        for batch in batches:
            self.context.sent.put_nowait(batch)

    def half_close(self) -> None:
        self.context.sent.put_nowait(grpc.aio.EOF)

    @property
    def answered(self) -> list[int]:
        return [each.sequence_number for each in self.context.written]

    async def answers(self, number: int) -> list[pb.StreamAddCountResponse]:
        """The first so many, waited for."""
        async with asyncio.timeout(30):
            while len(self.context.written) < number:
                assert not self.call.done(), "the stream has ended"
                await asyncio.sleep(0)
        return self.context.written[:number]

    async def end(self) -> list[pb.StreamAddCountResponse]:
        """All answers of a stream that ends with OK."""
        async with asyncio.timeout(30):
            await self.call
        return self.context.written

    async def aborted(self) -> Aborted:
        async with asyncio.timeout(30):
            with pytest.raises(Aborted) as aborted:
                await self.call
        return aborted.value

    async def is_open(self) -> bool:
        """Whether it is, with nothing left to do."""
        await settle()
        return not self.call.done()


def columns(
    served: Served,
    number: int,
    *counters: str,
    namespace: str = "plays",
    delta: int = 1,
    age_ms: int = 0,
    token: str = "t",
) -> pb.StreamAddCountRequest:
    """One add to each counter, with tokens that are different in each batch."""
    time_ns = served.parts.clock.now_ns() - age_ms * 1_000_000
    return pb.StreamAddCountRequest(
        sequence_number=number,
        namespace=namespace,
        columns=pb.AddCountColumns(
            counter_name=counters,
            delta=[delta] * len(counters),
            token=[f"{token}-{number}-{at}" for at in range(len(counters))],
            generation_time_ns=[time_ns] * len(counters),
        ),
    )


def items(
    served: Served, number: int, *counters: str, namespace: str = "plays", made: bool = True
) -> pb.StreamAddCountRequest:
    """The same as items; without tokens if the server is to make them."""
    token = None
    if made:
        token = pb.IdempotencyToken(
            token=f"i-{number}", generation_time=stamp(served.parts.clock.now_ns())
        )
    adds = [
        pb.AddCountItem(counter_name=each, delta=1, idempotency_token=token) for each in counters
    ]
    return pb.StreamAddCountRequest(sequence_number=number, namespace=namespace, items=adds)


def reasons(response: pb.StreamAddCountResponse) -> list[str]:
    """Of each add: why it was refused, or `OK`, or that it is a duplicate."""
    assert not response.all_added
    return [each.reason or ("duplicate" if each.duplicate else "OK") for each in response.outcomes]


async def count(served: Served, counter: str, namespace: str = "plays") -> int:
    request = pb.GetCountRequest(namespace=namespace, counter_name=counter)
    return int((await served.call("GetCount", request)).value.count)
