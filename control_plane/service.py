"""NamespaceService: says which namespaces there are, and checks new ones. Translates, no more."""

import asyncio
from typing import Any

from google.protobuf.duration_pb2 import Duration

from control_plane.check import check_changes
from control_plane.loader import FILES_MAX, Loaded, load_files
from control_plane.messages import nearest
from control_plane.mistakes import Mistake, quoted
from control_plane.snapshots import Snapshots
from counter.errors import InvalidRequest, NamespaceUnknown, Overloaded
from counter.namespaces import NAMESPACE_NAME_BYTES_MAX, Namespace, Snapshot
from counter.rpc.server import answering_errors
from counter.rpc.values import duration_of, timestamp
from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceServicer

# Parsing YAML is slow (some 100 KB/s) and takes its time from the calls that are served.
VALIDATIONS_MAX = 2
VALIDATION_RETRY_MS = 1_000
VALIDATION_BYTES_MAX = 4 * 1024 * 1024


class NamespaceService(NamespaceServiceServicer):
    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._validations = 0

    @answering_errors
    async def ListNamespaces(
        self, request: pb.ListNamespacesRequest, context: Any
    ) -> pb.ListNamespacesResponse:
        return list_namespaces(self._snapshots.current)

    @answering_errors
    async def GetNamespace(
        self, request: pb.GetNamespaceRequest, context: Any
    ) -> pb.GetNamespaceResponse:
        return get_namespace(self._snapshots.current, request)

    @answering_errors
    async def ValidateNamespaces(
        self, request: pb.ValidateNamespacesRequest, context: Any
    ) -> pb.ValidateNamespacesResponse:
        if self._validations >= VALIDATIONS_MAX:
            raise Overloaded(
                f"{VALIDATIONS_MAX} other validations are running, which is the limit. "
                "Try again in a moment.",
                retry_after_ms=VALIDATION_RETRY_MS,
            )
        work = asyncio.ensure_future(
            asyncio.to_thread(validate_namespaces, self._snapshots.current, request)
        )
        self._validations += 1
        work.add_done_callback(self._validated)
        # A caller that goes away does not stop the thread, so the thread counts until it ends.
        return await asyncio.shield(work)

    def _validated(self, _: asyncio.Future[pb.ValidateNamespacesResponse]) -> None:
        self._validations -= 1


def list_namespaces(snapshot: Snapshot) -> pb.ListNamespacesResponse:
    return pb.ListNamespacesResponse(
        version=snapshot.version,
        applied_at=timestamp(snapshot.applied_at_ns),
        namespaces=[_namespace(each) for _, each in sorted(snapshot.namespaces.items())],
    )


def get_namespace(snapshot: Snapshot, request: pb.GetNamespaceRequest) -> pb.GetNamespaceResponse:
    name = request.namespace
    if not name:
        raise InvalidRequest("NAME_EMPTY", "namespace", "The namespace is empty: name one.")
    if len(name.encode()) > NAMESPACE_NAME_BYTES_MAX:
        raise InvalidRequest(
            "NAME_TOO_LONG",
            "namespace",
            f"The namespace {quoted(name)} is longer than {NAMESPACE_NAME_BYTES_MAX} bytes.",
        )
    found = snapshot.namespaces.get(name)
    if found is None:
        meant = nearest(name, snapshot.namespaces)
        advice = f"Did you mean '{meant}'?" if meant else "ListNamespaces tells which there are."
        raise NamespaceUnknown(f"There is no namespace {quoted(name)}. {advice}")
    return pb.GetNamespaceResponse(version=snapshot.version, namespace=_namespace(found))


def validate_namespaces(
    snapshot: Snapshot, request: pb.ValidateNamespacesRequest
) -> pb.ValidateNamespacesResponse:
    if not request.files:
        raise InvalidRequest("BATCH_EMPTY", "files", "There are no files to check: send some.")
    if len(request.files) > FILES_MAX:
        raise InvalidRequest(
            "BATCH_TOO_LARGE",
            "files",
            f"{len(request.files)} files are more than {FILES_MAX}: send fewer at a time.",
        )
    if request.ByteSize() > VALIDATION_BYTES_MAX:
        raise InvalidRequest(
            "BATCH_TOO_LARGE",
            "files",
            f"The files have more than {VALIDATION_BYTES_MAX >> 20} MiB: send fewer at a time.",
        )
    loaded = load_files((each.path, each.content) for each in request.files)
    return pb.ValidateNamespacesResponse(
        mistakes=[_mistake(each) for each in _all_mistakes(snapshot, loaded)]
    )


def _all_mistakes(snapshot: Snapshot, loaded: Loaded) -> list[Mistake]:
    # Namespaces that are live and not among the files are not taken for deleted: it is common to
    # send the one file that changes.
    return sorted((*loaded.mistakes, *check_changes(snapshot, loaded)))


def _mistake(each: Mistake) -> pb.Mistake:
    return pb.Mistake(
        path=each.path,
        line=each.line,
        column=each.column,
        field=each.field,
        message=each.message,
        hint=each.hint,
    )


def _namespace(each: Namespace) -> pb.Namespace:
    dedupe_ttl: Duration | None = None
    if each.dedupe_ttl_ms is not None:
        dedupe_ttl = duration_of(each.dedupe_ttl_ms)
    rolling_window: pb.RollingWindowSettings | None = None
    if each.rolling_window_ms is not None:
        rolling_window = pb.RollingWindowSettings(length=duration_of(each.rolling_window_ms))
    return pb.Namespace(
        name=each.name,
        id=each.id,
        description=each.description,
        owner=each.owner,
        strategy=counter_pb.Strategy.Value(f"STRATEGY_{each.strategy.name}"),
        cardinality=pb.Cardinality.Value(f"CARDINALITY_{each.cardinality.name}"),
        max_delta=each.max_delta,
        cache=pb.CacheSettings(
            ttl=duration_of(each.cache_ttl_ms), local_ttl=duration_of(each.cache_local_ttl_ms)
        ),
        dedupe_ttl=dedupe_ttl,
        history=[
            pb.HistoryStep(step=duration_of(step.step_ms), retention=duration_of(step.retention_ms))
            for step in each.history
        ],
        rolling_window=rolling_window,
    )
