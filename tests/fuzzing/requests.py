"""Targets: calls as they come over the wire. Each is answered, or refused with a reason.

The first byte says which call, the second which namespace, the rest is the message. The service is
the real one on stores in memory; only gRPC itself is left out.
"""

import asyncio
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2

from counter.clock import ManualClock
from counter.errors import InvalidRequest
from counter.namespaces import (
    EMPTY,
    Definition,
    HistoryStep,
    Limits,
    Namespace,
    Strategy,
    next_snapshot,
)
from counter.settings import Platform
from counter.v1 import counter_service_pb2 as pb
from counter_server import comparison, listing
from counter_server.app import CounterServer
from counter_server.commit import CommitLimits
from tests.fuzzing.target import Target
from tests.stateful.quiet import no_waiting_for_folds, nothing_in_the_background
from tests.stores import memory, server_stores
from tests.unit.counter_server.served import Aborted, Context

MINUTES = HistoryStep(step_ms=60_000, retention_ms=7 * 86_400_000)
DEFINITIONS = [
    Definition(name="plays", strategy=Strategy.EVENTUAL, history=(MINUTES,)),
    Definition(name="quotas", strategy=Strategy.ACCURATE, limits=Limits(names="[a-z]+")),
    Definition(name="hits", strategy=Strategy.BEST_EFFORT, shadow=Strategy.EVENTUAL),
    Definition(name="recent", strategy=Strategy.ROLLING_WINDOW, rolling_window_ms=60_000),
]
# Then it begins anew: what was added does not pile up.
CALLS_PER_SERVICE = 1_000
CALLS = (
    "AddCount",
    "AddAndGetCount",
    "GetCount",
    "ClearCount",
    "BatchAddCount",
    "BatchGetCount",
    "GetTokenStatus",
    "GetCountAt",
    "GetCountHistory",
    "ListCounters",
    "TopCounters",
    "AdjustCount",
    "CompareShadow",
)


class _StreamContext(Context):
    """One batch, and the end of the stream."""

    def __init__(self, batch: pb.StreamAddCountRequest) -> None:
        self._sent = [batch]
        self.answers: list[pb.StreamAddCountResponse] = []

    async def read(self) -> Any:
        return self._sent.pop() if self._sent else grpc.aio.EOF

    async def write(self, response: pb.StreamAddCountResponse) -> None:
        self.answers.append(response)


class _Served:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.service: Any
        self._calls = 0

    async def _start(self) -> None:
        clock = ManualClock()
        platform = Platform(region="here")
        async with memory(Path(), clock) as stores:
            layout = await stores.ledger.open_layout(platform.layout(clock.now_ns()))
        server = CounterServer(
            server_stores(stores, clock),
            platform=platform,
            layout=layout,
            clock=clock,
            limits=CommitLimits(),
        )
        server.switch(next_snapshot(EMPTY, DEFINITIONS, applied_at_ns=0))
        added = "counter_server.app.pb_grpc.add_CounterServiceServicer_to_server"
        with nothing_in_the_background(), patch(added) as add:
            await server.start(Mock(stopping=asyncio.Event()), AsyncExitStack())
        [self.service, _] = add.call_args.args

    def call(self, rpc: str, request: Any, context: Any) -> Any:
        """The answer; None if it was refused. A refusal says why."""

        async def call() -> Any:
            if self._calls % CALLS_PER_SERVICE == 0:
                await self._start()
            self._calls += 1
            return await getattr(self.service, rpc)(request, context)

        try:
            with no_waiting_for_folds(), _no_waiting_for_shadows():
                return self.loop.run_until_complete(call())
        except Aborted as aborted:
            refusal = aborted
        assert refusal.reason, refusal
        assert refusal.code not in ("INTERNAL", "UNKNOWN", "DATA_LOSS"), refusal
        return None


def _no_waiting_for_shadows() -> Any:
    """A shadow that differs is looked at again after some time."""
    return patch.object(comparison.Comparison.__init__, "__kwdefaults__", {"settle_s": 0.0})


@cache
def _served() -> _Served:
    return _Served()


def _any_call(data: bytes) -> None:
    if len(data) < 2:
        return
    rpc = CALLS[data[0] % len(CALLS)]
    try:
        request = getattr(pb, f"{rpc}Request").FromString(data[2:])
    except DecodeError:
        return  # gRPC refuses it
    if data[1] < len(DEFINITIONS):
        request.namespace = DEFINITIONS[data[1]].name
    answer = _served().call(rpc, request, Context())
    if answer is not None:
        _check_wire(answer)
    if rpc == "BatchAddCount" and answer is not None:
        assert len(answer.outcomes) == len(request.items)


def _stream_batch(data: bytes) -> None:
    """One outcome for each add, whatever is in the columns; or the end of the stream, with why."""
    try:
        batch = pb.StreamAddCountRequest.FromString(data[1:])
    except DecodeError:
        return
    if data and data[0] < len(DEFINITIONS):
        batch.namespace = DEFINITIONS[data[0]].name
    context = _StreamContext(batch)
    _served().call("StreamAddCount", batch, context)
    if not context.answers:
        return
    [answer] = context.answers
    _check_wire(answer)
    assert answer.sequence_number == batch.sequence_number
    size = len(batch.items) or len(batch.columns.counter_name)
    assert answer.all_added or len(answer.outcomes) == size
    assert all(each.code != code_pb2.INTERNAL for each in answer.outcomes), answer


def _page_token(data: bytes) -> None:
    """Any text is a token that was answered with, or refused."""
    namespace: Namespace = next_snapshot(EMPTY, DEFINITIONS, applied_at_ns=0).namespaces["plays"]
    text = data.decode(errors="replace")
    try:
        after = listing._after(namespace, "", text)
    except InvalidRequest:
        pass
    else:
        assert listing._after(namespace, "", listing._token(namespace, "", after)) == after
    if text:
        assert listing._after(namespace, text, listing._token(namespace, text, text)) == text


def _check_wire(answer: Any) -> None:
    assert type(answer).FromString(answer.SerializeToString()) == answer


TARGETS = [
    Target("calls", _any_call, "counter_server.translate:timestamp_ns"),
    Target("stream_batches", _stream_batch, "counter_server.batches:columns_of"),
    Target("page_tokens", _page_token, "counter_server.listing:binascii"),
]
