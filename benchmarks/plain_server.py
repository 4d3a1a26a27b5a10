"""A server as a user would write it, on `grpc.aio`: what Tally's own servers are compared with.

One process on uvloop, with the limits that a server of Tally has, and health, so that it is known
when it is ready.
"""

import argparse
import asyncio
import signal
from typing import Any

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from counter.rpc.server import CONCURRENT_CALLS_MAX, MESSAGE_BYTES_MAX, METADATA_BYTES_MAX

_SERVICE = "counter.v1.CounterService"


async def _serve(listen: str, handlers: dict[str, Any]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = grpc.aio.server(
        maximum_concurrent_rpcs=CONCURRENT_CALLS_MAX,
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_metadata_size", METADATA_BYTES_MAX),
        ],
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    healthy = health.aio.HealthServicer()  # type: ignore[attr-defined]
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    server.add_insecure_port(listen)
    await server.start()
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    await stop.wait()
    await server.stop(0)


def main(handlers: dict[str, Any], description: str | None) -> None:
    """Serves these methods of CounterService until SIGTERM."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    uvloop.run(_serve(parser.parse_args().listen, handlers))
