"""Close mark and watermarks, looked at all the time: they never go back (I4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from counter.v1 import rollup_service_pb2 as pb
from counter.v1 import rollup_service_pb2_grpc as pb_grpc
from tests.load import open_channel

_LOOK_EVERY_S = 0.05
_REACHED_WITHIN_S = 300.0


class Marks:
    """By name, in nanoseconds: what was last seen, of whichever worker was asked."""

    def __init__(self) -> None:
        self.last_ns: dict[str, int] = {}
        self.looks = 0

    def take(self, status: pb.GetRollupStatusResponse) -> None:
        seen_ns = {"closed_through": status.closed_through.ToNanoseconds()}
        for shard in status.shards:
            seen_ns[f"watermark of shard {shard.shard}"] = shard.watermark.ToNanoseconds()
        for name, mark_ns in seen_ns.items():
            before_ns = self.last_ns.get(name, mark_ns)
            assert mark_ns >= before_ns, f"{name} went back from {before_ns} to {mark_ns} (I4)"
            self.last_ns[name] = mark_ns
        self.looks += 1

    async def reach(self, name: str, mark_ns: int) -> None:
        """Waits until the mark is seen there."""
        async with asyncio.timeout(_REACHED_WITHIN_S):
            while self.last_ns.get(name, 0) < mark_ns:  # noqa: ASYNC110 (it is polled anyway)
                await asyncio.sleep(_LOOK_EVERY_S)


@asynccontextmanager
async def watched_marks(*workers: str) -> AsyncIterator[Marks]:
    """Meanwhile the marks are asked for, of one worker after the other, and checked. A worker that
    is away is asked again; in the end something must have been seen."""
    marks = Marks()
    channels = [open_channel(address) for address in workers]
    stubs = [pb_grpc.RollupServiceStub(channel) for channel in channels]

    async def watch() -> None:
        while True:
            for stub in stubs:
                try:
                    marks.take(await stub.GetRollupStatus(pb.GetRollupStatusRequest(), timeout=5))
                except grpc.aio.AioRpcError:
                    pass
                await asyncio.sleep(_LOOK_EVERY_S)

    watching = asyncio.create_task(watch())
    try:
        yield marks
        if watching.done():
            watching.result()
        assert marks.looks > 0
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        for channel in channels:
            await channel.close()
