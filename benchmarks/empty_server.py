"""An empty grpc.aio handler, as a user would write it: what everything else is compared with.

It is typed like the real AddCount, so gRPC parses the request and serializes an answer; it runs in
one process on uvloop, with the limits, health and reflection that every server of Tally has.
"""

import argparse
import asyncio
import signal
from typing import Any

import grpc
import uvloop

from counter.rpc.server import RpcServer
from counter.v1 import counter_service_pb2 as pb

_SERVICE = "counter.v1.CounterService"


async def _add_count(request: pb.AddCountRequest, context: Any) -> pb.AddCountResponse:
    return pb.AddCountResponse()


async def _serve(listen: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = RpcServer()
    handler = grpc.unary_unary_rpc_method_handler(
        _add_count,
        request_deserializer=pb.AddCountRequest.FromString,
        response_serializer=pb.AddCountResponse.SerializeToString,
    )
    server.services.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"AddCount": handler}),)
    )
    await server.start(listen, (_SERVICE,))
    await server.set_serving("", serving=True)
    await stop.wait()
    await server.stop(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    uvloop.run(_serve(parser.parse_args().listen))
