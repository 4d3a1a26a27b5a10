"""The server's side of a batch of adds, by stage: as columns of a stream, and as items of a call.

Four batches are under way at a time, as in the benchmarks of batches, and share their commits.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from benchmarks.hot_path.local_server import CallContext, LocalServer, local_server
from benchmarks.hot_path.stages import ROUNDS, Stages, least_awaited_us, least_us
from benchmarks.requests import BATCH_ITEMS, Stamper, batch_template, counter_name
from benchmarks.servers import NAMESPACE
from counter.events import Event
from counter.keys import shards_of
from counter.segments import Segment, SegmentRef, encode
from counter.v1 import counter_service_pb2 as pb
from counter_server import translate
from counter_server.columns import columns_of, events_of, size_of

_BATCHES = 12
_TOGETHER = 4  # batches that share a commit
_ADDS = _BATCHES * BATCH_ITEMS

Names = Sequence[Sequence[str]]  # of each batch


async def stream_stages(home: Path, counters: int) -> Stages:
    names = _names(counters)
    async with local_server(home) as server:
        number = itertools.count(1)

        def requests() -> list[bytes]:
            return [_columns(next(number), each) for each in names]

        bodies = requests()
        parsed = [pb.StreamAddCountRequest.FromString(each) for each in bodies]
        columns = [columns_of(each.columns) for each in parsed]
        parts = {
            "protobuf_parse": _each(pb.StreamAddCountRequest.FromString, bodies),
            "protobuf_access": _each(_read_columns, parsed),
            "admission": _each(
                lambda each: events_of(each, server.admission, server.namespace), columns
            ),
        }
        events = [events_of(each, server.admission, server.namespace)[0] for each in columns]
        parts |= await _written(server, events)
        parts["answer"] = _each(lambda _: _all_added().SerializeToString(), parsed)
        serve = server.methods["StreamAddCount"].stream_stream

        async def whole(bodies: list[bytes]) -> None:
            context = _StreamContext(bodies)
            await serve(None, context)
            if context.added != len(bodies):
                raise RuntimeError("a batch was not added as a whole")

        return Stages(whole_us=await _least_whole_us(whole, requests), parts_us=parts)


async def batch_stages(home: Path, counters: int) -> Stages:
    templates = [batch_template([(name, 1) for name in each]) for each in _names(counters)]
    async with local_server(home) as server:
        stamper, admission = Stamper(), server.admission
        bodies = list(stamper.stamped(templates))
        parsed = [pb.BatchAddCountRequest.FromString(each) for each in bodies]
        raw = [translate.raw_adds(each.items)[0] for each in parsed]
        now_ns = admission.now_ns()
        parts = {
            "protobuf_parse": _each(pb.BatchAddCountRequest.FromString, bodies),
            "protobuf_access": _each(lambda each: translate.raw_adds(each.items), parsed),
            "admission": _each(lambda each: admission.events(server.namespace, each, now_ns), raw),
        }
        events = [admission.events(server.namespace, each, now_ns)[0] for each in raw]
        parts |= await _written(server, events)
        parts["answer"] = _each(_item_outcomes, events)
        method = server.methods["BatchAddCount"].unary_unary

        async def call(body: bytes) -> None:
            response = await method(pb.BatchAddCountRequest.FromString(body), CallContext())
            response.SerializeToString()

        async def whole(bodies: list[bytes]) -> None:
            for start in range(0, len(bodies), _TOGETHER):
                await asyncio.gather(*map(call, bodies[start : start + _TOGETHER]))

        least_us_ = await _least_whole_us(whole, lambda: list(stamper.stamped(templates)))
        return Stages(whole_us=least_us_, parts_us=parts)


async def _written(server: LocalServer, batches: list[list[Event]]) -> dict[str, float]:
    """From events to the store."""
    namespace, shards = server.namespace, server.layout.shards
    errors: dict[int, Any] = {}

    async def limit() -> None:
        for events in batches:
            await server.limits.adds(namespace, events, errors)

    hashing_us = _each(
        lambda events: shards_of(namespace.id, [event.counter for event in events], shards), batches
    )
    commits = [
        list(itertools.chain.from_iterable(batches[start : start + _TOGETHER]))
        for start in range(0, len(batches), _TOGETHER)
    ]
    partitions = [_by_shard(server, events) for events in commits]
    segments = [
        [(shard, encode(of_shard), len(of_shard)) for shard, of_shard in each.items()]
        for each in partitions
    ]
    number = itertools.count()
    window = server.layout.window_of(server.admission.now_ns())

    async def append() -> None:
        for commit in segments:
            await server.stores.event_log.append(
                [
                    Segment(
                        SegmentRef(
                            window=window,
                            namespace_id=namespace.id,
                            segment_id=next(number).to_bytes(16, "big"),
                            event_count=size,
                            shard=shard,
                            lane=0,
                        ),
                        body,
                    )
                    for shard, body, size in commit
                ]
            )

    return {
        "limits": await least_awaited_us(limit, _ADDS),
        "hashing": hashing_us,
        "grouping": await _grouping_us(server, batches) - hashing_us,
        "packing": _each(lambda each: [encode(events) for events in each.values()], partitions),
        "append": await least_awaited_us(append, _ADDS),
    }


async def _grouping_us(server: LocalServer, batches: list[list[Event]]) -> float:
    """Group commit up to the write, with the hashing that is a part of it."""
    least_s = float("inf")
    for _ in range(ROUNDS):
        began_s = time.process_time()
        written = [server.commit.write(server.namespace.id, events) for events in batches]
        least_s = min(least_s, time.process_time() - began_s)
        await asyncio.gather(*written)
    return least_s / _ADDS * 1_000_000


def _by_shard(server: LocalServer, events: Sequence[Event]) -> dict[int, list[Event]]:
    names = [event.counter for event in events]
    found: dict[int, list[Event]] = {}
    shards = shards_of(server.namespace.id, names, server.layout.shards)
    for event, shard in zip(events, shards, strict=True):
        found.setdefault(shard, []).append(event)
    return found


def _each(work: Callable[[Any], object], batches: Sequence[Any]) -> float:
    """Of all adds, whatever the pieces are that they come in."""
    return least_us(lambda: [work(each) for each in batches], _ADDS)


async def _least_whole_us(
    whole: Callable[[list[bytes]], Any], requests: Callable[[], list[bytes]]
) -> float:
    """Each round has new tokens, made before its time begins."""
    least_s = float("inf")
    for _ in range(ROUNDS):
        bodies = requests()
        began_s = time.process_time()
        await whole(bodies)
        least_s = min(least_s, time.process_time() - began_s)
    return least_s / _ADDS * 1_000_000


class _StreamContext(CallContext):
    """A stream whose caller has a few batches unanswered at a time."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self.added = 0
        self._bodies: Iterator[bytes] = iter(bodies)
        self._room = asyncio.Semaphore(_TOGETHER)

    async def read(self) -> Any:
        await self._room.acquire()
        body = next(self._bodies, None)
        if body is None:
            return grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
        return pb.StreamAddCountRequest.FromString(body)

    async def write(self, response: pb.StreamAddCountResponse) -> None:
        response.SerializeToString()
        self.added += response.all_added
        self._room.release()


def _columns(number: int, names: Sequence[str]) -> bytes:
    now_ns = time.time_ns()
    return pb.StreamAddCountRequest(
        sequence_number=number,
        namespace=NAMESPACE,
        columns=pb.AddCountColumns(
            counter_name=names,
            delta=[1] * len(names),
            token=[f"{number:08x}{at:06x}" for at in range(len(names))],
            generation_time_ns=range(now_ns, now_ns + len(names)),
        ),
    ).SerializeToString()


def _read_columns(request: pb.StreamAddCountRequest) -> None:
    size_of(request.columns)
    columns_of(request.columns)


def _all_added() -> pb.StreamAddCountResponse:
    return pb.StreamAddCountResponse(sequence_number=1, all_added=True)


def _item_outcomes(events: Sequence[Event]) -> None:
    response = pb.BatchAddCountResponse()
    translate.add_outcomes(response, [False] * len(events), {})
    response.SerializeToString()


def _names(counters: int) -> Names:
    """Batches whose adds are spread evenly over the counters."""
    stride = max(1, counters // _ADDS)
    names = [counter_name(number * stride % counters) for number in range(_ADDS)]
    return [names[start : start + BATCH_ITEMS] for start in range(0, _ADDS, BATCH_ITEMS)]
