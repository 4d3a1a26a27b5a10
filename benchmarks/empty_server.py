"""An empty grpc.aio handler, as a user would write it: what everything else is compared with.

It is typed like the real methods, so gRPC parses the request and serializes an answer; it runs in
one process on uvloop, with the limits, health and reflection that every server of Tally has. Its
answers are empty: an AddCount of it has nothing to say, and a BatchAddCount of it only parses.
"""

import argparse
import asyncio
import signal
from typing import Any

import grpc
import uvloop
from google.protobuf.message import Message

from counter.rpc.server import RpcServer
from counter.v1 import counter_service_pb2 as pb

_SERVICE = "counter.v1.CounterService"
_METHODS: dict[str, tuple[type[Message], type[Message]]] = {
    "AddCount": (pb.AddCountRequest, pb.AddCountResponse),
    "GetCount": (pb.GetCountRequest, pb.GetCountResponse),
    "BatchAddCount": (pb.BatchAddCountRequest, pb.BatchAddCountResponse),
}


def _handler(request_type: type[Message], response_type: type[Message]) -> Any:
    async def answer(request: Message, context: Any) -> Message:
        return response_type()

    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=request_type.FromString,
        response_serializer=response_type.SerializeToString,
    )


async def _serve(listen: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = RpcServer()
    handlers = {name: _handler(*types) for name, types in _METHODS.items()}
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
