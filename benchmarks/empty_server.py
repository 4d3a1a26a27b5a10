"""An empty grpc.aio handler, as a user would write it: what everything else is compared with.

It is typed like the real methods, so gRPC parses the request and serializes an answer. Its answers
are empty: an AddCount of it has nothing to say, and a BatchAddCount of it only parses.
"""

from typing import Any

import grpc
from google.protobuf.message import Message

from benchmarks import plain_server
from counter.v1 import counter_service_pb2 as pb

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


if __name__ == "__main__":
    plain_server.main({name: _handler(*types) for name, types in _METHODS.items()}, __doc__)
