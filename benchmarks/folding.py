"""Waits until a server has folded what was sent to it."""

import asyncio
import time

from google.protobuf.timestamp_pb2 import Timestamp

from benchmarks.servers import Server
from counter.clock import NS_PER_S
from counter.v1 import rollup_service_pb2 as pb
from counter.v1 import rollup_service_pb2_grpc as pb_grpc

_FOLDED_WITHIN_S = 300.0
_POLL_S = 0.1


async def rollup_status(server: Server) -> pb.GetRollupStatusResponse:
    stub = pb_grpc.RollupServiceStub(server.channel)
    response: pb.GetRollupStatusResponse = await stub.GetRollupStatus(pb.GetRollupStatusRequest())
    return response


def fold_lag_s(status: pb.GetRollupStatusResponse) -> float:
    """How old the newest event is that is folded in every shard."""
    return time.time() - _ns(status.folded_through) / NS_PER_S


async def folded(server: Server, through_ns: int) -> pb.GetRollupStatusResponse:
    """Returns once every event with a time up to `through_ns` is in its rollup."""
    ends_s = time.monotonic() + _FOLDED_WITHIN_S
    while time.monotonic() < ends_s:
        status = await rollup_status(server)
        if _ns(status.folded_through) >= through_ns:
            return status
        await asyncio.sleep(_POLL_S)
    raise RuntimeError(
        f"not folded within {_FOLDED_WITHIN_S:.0f} s; folds are {fold_lag_s(status):.0f} s behind, "
        f"problem: {status.problem or 'none'}"
    )


def _ns(stamp: Timestamp) -> int:
    return stamp.seconds * NS_PER_S + stamp.nanos
