"""The service as a caller sees it, without a network: requests in, responses or statuses out."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2, status_pb2

from counter.clock import NS_PER_S
from counter.namespaces import Definition, Snapshot, next_snapshot
from counter.namespaces import Strategy as StrategyName
from counter_server.adjustments import Adjustments
from counter_server.batches import Batches
from counter_server.comparison import Comparison
from counter_server.count_at import CountsAt
from counter_server.count_history import CountHistories
from counter_server.limits import Limits
from counter_server.listing import Listing
from counter_server.ranking import Rankings
from counter_server.registry import Registry
from counter_server.service import CounterService, Questions
from counter_server.strategies import Accurate, BestEffort, RollingWindow
from counter_server.streams import STREAM_AGE_S, UNREAD_S_MAX, Streams
from tests.unit.counter_server.parts import Parts


class Aborted(Exception):
    def __init__(self, status: Any) -> None:
        super().__init__(status.details)
        self.code = status.code.name
        self.message = status.details
        for key, packed in status.trailing_metadata:
            assert key == "grpc-status-details-bin"
            self.details = status_pb2.Status.FromString(packed).details

    @property
    def reason(self) -> str:
        info = error_details_pb2.ErrorInfo()
        assert self.details[0].Unpack(info)
        return str(info.reason)

    @property
    def field(self) -> str:
        mistake = error_details_pb2.BadRequest()
        assert self.details[1].Unpack(mistake)
        return str(mistake.field_violations[0].field)

    @property
    def retry_after_ms(self) -> int:
        retry = error_details_pb2.RetryInfo()
        assert self.details[-1].Unpack(retry)
        return int(retry.retry_delay.ToMilliseconds())


class Context:
    def time_remaining(self) -> float | None:
        return None

    async def abort_with_status(self, status: Any) -> None:
        raise Aborted(status)


class Servers:
    """How many servers a test says there are."""

    alive = 1


@dataclass
class Served:
    parts: Parts
    service: CounterService
    registry: Registry
    limits: Limits
    stopping: asyncio.Event  # ends the streams

    async def call(self, rpc: str, request: Any) -> Any:
        return await getattr(self.service, rpc)(request, Context())

    async def aborted(self, rpc: str, request: Any) -> Aborted:
        with pytest.raises(Aborted) as aborted:
            await self.call(rpc, request)
        return aborted.value

    async def refused(self, rpc: str, request: Any) -> tuple[str, str]:
        aborted = await self.aborted(rpc, request)
        assert aborted.code == "INVALID_ARGUMENT"
        return aborted.reason, aborted.field

    async def switch(self, *definitions: Definition) -> Snapshot:
        """Stores and serves the next version of the namespaces."""
        snapshot = next_snapshot(self.parts.snapshot, definitions, applied_at_ns=0)
        assert await self.parts.stores.namespace_store.put(snapshot)
        self.parts.snapshot = snapshot
        self.limits.check(snapshot)
        self.registry.switch(snapshot)
        self.limits.switch(snapshot)
        return snapshot

    def ago(self, seconds: float) -> Timestamp:
        return stamp(self.parts.clock.now_ns() - int(seconds * NS_PER_S))


def stamp(time_ns: int) -> Timestamp:
    seconds, nanos = divmod(time_ns, NS_PER_S)
    return Timestamp(seconds=seconds, nanos=nanos)


def serve(
    parts: Parts,
    limits: Limits,
    *,
    age_s: float = STREAM_AGE_S,
    unread_s_max: float = UNREAD_S_MAX,
) -> Served:
    """All parts of the service over those of a server; its namespaces come with `switch`."""
    path, stores = parts.path(), parts.stores
    registry = Registry(
        {
            StrategyName.ACCURATE: (Accurate, partial(Accurate, path=path)),
            StrategyName.ROLLING_WINDOW: (RollingWindow, partial(RollingWindow, path=path)),
            StrategyName.BEST_EFFORT: (
                BestEffort,
                partial(BestEffort, counters=stores.best_effort_counters),
            ),
        },
        frozenset({"event_log", "ledger", "rollup_store", "best_effort_counters"}),
    )
    listing = Listing(stores.ledger, stores.rollup_store, parts.layout, parts.clock)
    questions = Questions(
        counts_at=CountsAt(parts.reads, stores.history_store, parts.layout),
        count_histories=CountHistories(parts.reads, stores.history_store, parts.layout),
        listing=listing,
        comparison=Comparison(listing),
        rankings=Rankings(
            stores.ledger, stores.rollup_store, stores.history_store, parts.layout, parts.clock
        ),
    )
    batches, stopping = Batches(registry, parts.admission, limits), asyncio.Event()
    streams = Streams(batches, stopping=stopping, age_s=age_s, unread_s_max=unread_s_max)
    service = CounterService(
        registry,
        parts.admission,
        questions,
        Adjustments(parts.admission),
        limits,
        batches,
        streams,
    )
    return Served(parts, service, registry, limits, stopping)
