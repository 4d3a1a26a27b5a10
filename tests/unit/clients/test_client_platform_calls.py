"""Namespaces and rollup status, as the servers of the contract answer them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_status import rpc_status

from clients import (
    Cardinality,
    HistoryStep,
    Mistake,
    Namespace,
    NamespaceUnknown,
    RollupStatus,
    ShardStatus,
    Strategy,
    WorkerStatus,
)
from counter.errors import NamespaceUnknown as ServerNamespaceUnknown
from counter.rpc.status import status_of
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import namespace_service_pb2 as namespace_pb
from counter.v1 import namespace_service_pb2_grpc as namespace_grpc
from counter.v1 import rollup_service_pb2 as rollup_pb
from counter.v1 import rollup_service_pb2_grpc as rollup_grpc

STAMP = Timestamp(seconds=1_700_000_000, nanos=5)
PLAYS = namespace_pb.Namespace(
    name="plays",
    id=3,
    owner="playback-team",
    strategy=pb.STRATEGY_BEST_EFFORT,
    cardinality=namespace_pb.CARDINALITY_HIGH,
    max_delta=10,
    cache=namespace_pb.CacheSettings(
        ttl=Duration(seconds=5), local_ttl=Duration(nanos=500_000_000)
    ),
    dedupe_ttl=Duration(seconds=60),
    history=[
        namespace_pb.HistoryStep(step=Duration(seconds=60), retention=Duration(seconds=604_800))
    ],
    rolling_window=namespace_pb.RollingWindowSettings(length=Duration(seconds=300)),
)


class Namespaces(namespace_grpc.NamespaceServiceServicer):
    async def ListNamespaces(self, request: Any, context: Any) -> Any:
        return namespace_pb.ListNamespacesResponse(
            version=4, applied_at=STAMP, namespaces=[PLAYS, namespace_pb.Namespace(name="bare")]
        )

    async def GetNamespace(self, request: Any, context: Any) -> Any:
        if request.namespace != "plays":
            error = ServerNamespaceUnknown(f"no namespace {request.namespace!r}")
            await context.abort_with_status(rpc_status.to_status(status_of(error)))
        return namespace_pb.GetNamespaceResponse(version=4, namespace=PLAYS)

    async def ValidateNamespaces(self, request: Any, context: Any) -> Any:
        mistakes = [
            namespace_pb.Mistake(
                path=file.path, line=1, column=2, field="f", message=file.content, hint="h"
            )
            for file in request.files
        ]
        return namespace_pb.ValidateNamespacesResponse(mistakes=mistakes)


class Rollups(rollup_grpc.RollupServiceServicer):
    async def GetRollupStatus(self, request: Any, context: Any) -> Any:
        shard = rollup_pb.ShardStatus(
            shard=1,
            watermark=STAMP,
            lag=Duration(seconds=2),
            folded_events=3,
            duplicate_events=4,
            conflicting_events=5,
            last_pass_events=6,
            last_pass_time=Duration(nanos=1_500_000),
            owner="worker 1",
            queue_depth=7,
            batch_counters=100,
            problem="stuck",
        )
        worker = rollup_pb.WorkerStatus(
            member="worker 1", shards=[1, 2], passes_in_parallel=4, problem="slow"
        )
        return rollup_pb.GetRollupStatusResponse(
            region="eu",
            window=Duration(seconds=1),
            folded_through=STAMP,
            shards=[shard],
            workers=[worker],
        )


@pytest.fixture
async def target() -> AsyncIterator[str]:
    server = grpc.aio.server()
    namespace_grpc.add_NamespaceServiceServicer_to_server(Namespaces(), server)
    rollup_grpc.add_RollupServiceServicer_to_server(Rollups(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_namespaces(client: Any) -> None:
    snapshot = await client("namespaces")
    assert snapshot.version == 4
    assert snapshot.applied_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    plays, bare = snapshot.namespaces
    assert plays == await client("get_namespace", "plays")
    assert plays == Namespace(
        name="plays",
        id=3,
        description="",
        owner="playback-team",
        strategy=Strategy.BEST_EFFORT,
        cardinality=Cardinality.HIGH,
        max_delta=10,
        cache_ttl_ms=5_000,
        cache_local_ttl_ms=500,
        dedupe_ttl_ms=60_000,
        history=(HistoryStep(step_ms=60_000, retention_ms=604_800_000),),
        rolling_window_ms=300_000,
    )
    assert (bare.strategy, bare.dedupe_ttl_ms) == (None, None)
    assert (bare.history, bare.rolling_window_ms) == ((), None)


async def test_an_unknown_namespace(client: Any) -> None:
    with pytest.raises(NamespaceUnknown, match="'other'"):
        await client("get_namespace", "other")


async def test_mistakes_come_back_for_every_file(client: Any) -> None:
    assert await client("validate_namespaces", {"a.yaml": "bad", "b.yaml": "worse"}) == [
        Mistake(path="a.yaml", line=1, column=2, field="f", message="bad", hint="h"),
        Mistake(path="b.yaml", line=1, column=2, field="f", message="worse", hint="h"),
    ]


async def test_rollup_status(client: Any) -> None:
    status = await client("rollup_status")
    stamp_ns = 1_700_000_000_000_000_005
    assert status == RollupStatus(
        region="eu",
        window_ms=1_000,
        closed_through_ns=None,
        folded_through_ns=stamp_ns,
        shards=(
            ShardStatus(
                shard=1,
                watermark_ns=stamp_ns,
                lag_ms=2_000,
                owner="worker 1",
                queue_depth=7,
                batch_counters=100,
                problem="stuck",
                folded_events=3,
                duplicate_events=4,
                conflicting_events=5,
                last_pass_events=6,
                last_pass_ms=1.5,
            ),
        ),
        problem="",
        workers=(
            WorkerStatus(member="worker 1", shards=(1, 2), passes_in_parallel=4, problem="slow"),
        ),
    )
    assert status.closed_through is None
    assert status.folded_through == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
