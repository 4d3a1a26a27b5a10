"""A segment that reaches the log after its window was folded: a write that was held up on its way.

It is not counted, its token is NOT_APPLIED for ever, and a retry of it is told so.
"""

import asyncio
import time
from pathlib import Path

import grpc
import pytest

from counter.clock import NS_PER_S, SystemClock
from counter.events import Event
from counter.settings import Platform
from counter.storage.cassandra import (
    CassandraEventLog,
    CassandraLedger,
    CassandraNamespaceStore,
    CassandraSession,
)
from counter.v1 import counter_service_pb2 as pb
from tests.calls import Calls, eventually, refusal, token
from tests.fleet import ACCEPT_LIMIT_MS, CLOCK_SKEW_MS, WINDOW_MS, Fleet
from tests.stores import segment, shard_of

PLATFORM = Platform(
    region="test",
    window_ms=WINDOW_MS,
    shards=4,
    accept_limit_ms=ACCEPT_LIMIT_MS,
    max_clock_skew_ms=CLOCK_SKEW_MS,
    log_retention_s=3_600,
)


async def land(fleet: Fleet, counter: str, event: Event) -> None:
    """Writes a segment as a server would, past all its checks."""
    session = await CassandraSession.connect(fleet.cluster)
    try:
        snapshot = await CassandraNamespaceStore(session).latest()
        assert snapshot is not None
        namespace_id = snapshot.namespaces["plays"].id
        ledger = CassandraLedger(session, PLATFORM)
        layout = await ledger.open_layout(PLATFORM.layout(time.time_ns()))
        window = layout.window_of(event.time_ns)
        shard = shard_of(namespace_id, counter, layout.shards)
        assert (await ledger.watermarks())[shard] >= window, "it must be folded for this test"
        log = CassandraEventLog(session, ledger, SystemClock(), PLATFORM)
        late = segment([event], window=window, shard=shard, namespace_id=namespace_id)
        closed = await log.append([late])
        assert closed.through >= window
        assert late.ref in await log.refs(shard, window, window), "it is there, and does not count"
    finally:
        await session.close()


@pytest.mark.timeout(240)
async def test_a_segment_that_lands_after_its_fold_is_not_counted(tmp_path: Path) -> None:
    fleet = Fleet.on_one_node(tmp_path)
    try:
        await fleet.apply_schema()
        server, worker, control_plane = map(fleet.add, ("server", "worker", "control-plane"))
        await fleet.start(server, worker, control_plane)
        await asyncio.to_thread(_add, server.address)
        stamp_ns = time.time_ns() - int(1.0 * NS_PER_S)
        with Calls(server.address) as calls:
            eventually(
                lambda: calls.get("plays", "views").complete_through.ToNanoseconds(),
                lambda through_ns: through_ns > stamp_ns,
                within_s=60,
            )
            await land(fleet, "views", Event("views", stamp_ns, "held up", 1_000))
            late = pb.IdempotencyToken(token="held up")
            late.generation_time.FromNanoseconds(stamp_ns)
            assert calls.status("plays", "views", late) == pb.TOKEN_STATUS_NOT_APPLIED
            said = refusal(lambda: calls.add("plays", "views", 1_000, late))
            assert (said.code, said.reason) == (
                grpc.StatusCode.FAILED_PRECONDITION,
                "TOKEN_EXPIRED",
            )
            assert calls.accurate("plays", "views") == 5
            # Later folds do not pick it up.
            later = token()
            calls.add("plays", "views", 2, later)
            value = eventually(
                lambda: calls.get("plays", "views"),
                lambda value: (
                    value.complete_through.ToNanoseconds() >= later.generation_time.ToNanoseconds()
                ),
                within_s=60,
            )
            assert value.count == 7
            assert calls.status("plays", "views", late) == pb.TOKEN_STATUS_NOT_APPLIED
    finally:
        fleet.end()


def _add(address: str) -> None:
    with Calls(address) as calls:
        calls.add("plays", "views", 5, token())
