"""A handler that only parses the batches that Tally gets, and answers that all is well.

What Tally's servers can be compared with: `grpc.aio`, the same messages, and nothing done with
them. It is typed, so gRPC parses every request and serializes an answer.
"""

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import grpc

from benchmarks import plain_server
from counter.v1 import counter_service_pb2 as pb


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


_HANDLERS = {
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

if __name__ == "__main__":
    plain_server.main(_HANDLERS, __doc__)
