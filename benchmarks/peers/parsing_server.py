"""A handler that only parses the batches that Tally gets, and answers that all is well.

What Tally's servers can be compared with: the same gRPC, the same event loop, the same messages,
and nothing done with them. It is typed, so gRPC parses every request and serializes an answer.
"""

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import grpc
import uvloop

from counter.rpc.server import RpcServer
from counter.v1 import counter_service_pb2 as pb

_SERVICE = "counter.v1.CounterService"


@lru_cache(maxsize=10_000)
def _all_ok(items: int) -> pb.BatchAddCountResponse:
    return pb.BatchAddCountResponse(outcomes=[pb.AddCountOutcome()] * items)


async def _add_count(request: pb.AddCountRequest, context: Any) -> pb.AddCountResponse:
    return pb.AddCountResponse(idempotency_token=request.idempotency_token)


async def _batch_add_count(
    request: pb.BatchAddCountRequest, context: Any
) -> pb.BatchAddCountResponse:
    return _all_ok(len(request.items))


async def _stream_add_count(
    requests: AsyncIterator[pb.StreamAddCountRequest], context: Any
) -> AsyncIterator[pb.StreamAddCountResponse]:
    async for request in requests:
        number = request.sequence_number
        if request.items:
            outcomes = _all_ok(len(request.items)).outcomes
            yield pb.StreamAddCountResponse(sequence_number=number, outcomes=outcomes)
        else:
            yield pb.StreamAddCountResponse(sequence_number=number, all_added=True)


async def _serve(listen: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = RpcServer()
    handlers = {
        "AddCount": grpc.unary_unary_rpc_method_handler(
            _add_count,
            request_deserializer=pb.AddCountRequest.FromString,
            response_serializer=pb.AddCountResponse.SerializeToString,
        ),
        "BatchAddCount": grpc.unary_unary_rpc_method_handler(
            _batch_add_count,
            request_deserializer=pb.BatchAddCountRequest.FromString,
            response_serializer=pb.BatchAddCountResponse.SerializeToString,
        ),
        "StreamAddCount": grpc.stream_stream_rpc_method_handler(
            _stream_add_count,
            request_deserializer=pb.StreamAddCountRequest.FromString,
            response_serializer=pb.StreamAddCountResponse.SerializeToString,
        ),
    }
    server.services.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, handlers),)
    )
    await server.start(listen, (_SERVICE,))
    await server.set_serving("", serving=True)
    await stop.wait()
    await server.stop(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    uvloop.run(_serve(parser.parse_args().listen))
