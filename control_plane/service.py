"""NamespaceService: translates, makes one call, translates back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from control_plane import translate
from control_plane.files.loader import FILES_MAX, Loaded, load_files
from control_plane.files.messages import nearest
from control_plane.files.mistakes import quoted
from control_plane.planning.check import impossible_changes, report
from control_plane.planning.plan import difference, plan
from control_plane.snapshots import Snapshots, Wanted, about_of
from counter.errors import InvalidRequest, NamespaceUnknown, Overloaded
from counter.namespaces import NAMESPACE_NAME_BYTES_MAX, Namespace, Origin, Snapshot
from counter.presence import ProcessReport
from counter.rpc.server import answering_errors
from counter.rpc.values import timestamp
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceServicer

# Parsing YAML is slow (some 100 KB/s) and takes its time from the calls that are served.
LOADS_MAX = 2
LOAD_RETRY_MS = 1_000
FILES_BYTES_MAX = 4 * 1024 * 1024
MISTAKES_SHOWN_MAX = 20
VERSIONS_PAGE_DEFAULT, VERSIONS_PAGE_MAX = 50, 500

Processes = Callable[[], Awaitable[Mapping[str, ProcessReport | None]]]


class NamespaceService(NamespaceServiceServicer):
    def __init__(
        self, snapshots: Snapshots, *, processes: Processes, stopping: asyncio.Event
    ) -> None:
        """`stopping` ends the streams, which would go on for ever."""
        self._snapshots = snapshots
        self._processes = processes
        self._stopping = stopping
        self._loads = 0

    @answering_errors
    async def ListNamespaces(
        self, request: pb.ListNamespacesRequest, context: Any
    ) -> pb.ListNamespacesResponse:
        snapshot = await self._version(request.version)
        return pb.ListNamespacesResponse(
            version=snapshot.version,
            applied_at=timestamp(snapshot.applied_at_ns),
            namespaces=translate.namespaces_message(snapshot),
        )

    @answering_errors
    async def GetNamespace(
        self, request: pb.GetNamespaceRequest, context: Any
    ) -> pb.GetNamespaceResponse:
        _check_name(request.namespace)
        snapshot = await self._version(request.version)
        namespace = translate.namespace_message(_namespace_of(snapshot, request.namespace))
        return pb.GetNamespaceResponse(version=snapshot.version, namespace=namespace)

    @answering_errors
    async def ValidateNamespaces(
        self, request: pb.ValidateNamespacesRequest, context: Any
    ) -> pb.ValidateNamespacesResponse:
        loaded = await self._load(request.files)
        # Namespaces that are live and not among the files are not taken for deleted: it is common
        # to send the one file that changes.
        mistakes = sorted((*loaded.mistakes, *impossible_changes(self._snapshots.current, loaded)))
        return pb.ValidateNamespacesResponse(
            mistakes=[translate.mistake_message(each) for each in mistakes]
        )

    @answering_errors
    async def PlanNamespaces(
        self, request: pb.PlanNamespacesRequest, context: Any
    ) -> pb.PlanNamespacesResponse:
        if bool(request.files) is bool(request.version):
            raise InvalidRequest(
                "NAMESPACES_INVALID", "files", "Say what is wanted: files, or a version."
            )
        base = await self._version(request.base_version, "base_version")
        if request.version:
            _check_version(request.version, "version")
            wanted = await self._snapshots.version(request.version)
            planned, sources = difference(base, wanted), translate.NO_SOURCES
        else:
            loaded = await self._load(request.files)
            if loaded.mistakes:
                return pb.PlanNamespacesResponse(
                    base_version=base.version,
                    mistakes=[translate.mistake_message(each) for each in loaded.mistakes],
                )
            planned, sources = plan(base, loaded.definitions), loaded.sources
        return pb.PlanNamespacesResponse(
            base_version=base.version,
            changes=translate.changes_message(planned, sources),
            consequence=translate.consequence_value(planned.consequence),
        )

    @answering_errors
    async def ApplyNamespaces(
        self, request: pb.ApplyNamespacesRequest, context: Any
    ) -> pb.ApplyNamespacesResponse:
        _check_version(request.expected_version, "expected_version")
        about = about_of(Origin.APPLIED, author=request.author, reason=request.reason)
        loaded = await self._load(request.files)
        if loaded.mistakes:
            raise InvalidRequest("NAMESPACES_INVALID", "files", _report(loaded))
        wanted = Wanted(
            definitions=loaded.definitions, about=about, allow_data_loss=request.allow_data_loss
        )
        snapshot, planned = await self._snapshots.apply(
            wanted, expected_version=request.expected_version
        )
        return pb.ApplyNamespacesResponse(
            version=translate.version_message(snapshot.info),
            changes=translate.changes_message(planned, loaded.sources),
        )

    @answering_errors
    async def RollbackNamespaces(
        self, request: pb.RollbackNamespacesRequest, context: Any
    ) -> pb.RollbackNamespacesResponse:
        _check_version(request.version, "version", least=1)
        _check_version(request.expected_version, "expected_version")
        snapshot, planned = await self._snapshots.rollback(
            request.version,
            expected_version=request.expected_version,
            about=about_of(Origin.ROLLED_BACK, author=request.author, reason=request.reason),
            allow_data_loss=request.allow_data_loss,
        )
        return pb.RollbackNamespacesResponse(
            version=translate.version_message(snapshot.info),
            changes=translate.changes_message(planned),
        )

    @answering_errors
    async def CutoverNamespace(
        self, request: pb.CutoverNamespaceRequest, context: Any
    ) -> pb.CutoverNamespaceResponse:
        _check_name(request.namespace)
        _check_version(request.expected_version, "expected_version", least=1)
        snapshot = await self._snapshots.cutover(
            request.namespace,
            expected_version=request.expected_version,
            about=about_of(Origin.CUT_OVER, author=request.author, reason=request.reason),
        )
        return pb.CutoverNamespaceResponse(version=translate.version_message(snapshot.info))

    @answering_errors
    async def ListVersions(
        self, request: pb.ListVersionsRequest, context: Any
    ) -> pb.ListVersionsResponse:
        _check_version(request.before, "before")
        if not 0 <= request.page_size <= VERSIONS_PAGE_MAX:
            raise InvalidRequest(
                "PAGE_MALFORMED",
                "page_size",
                f"page_size must be from 1 to {VERSIONS_PAGE_MAX}, or 0 for "
                f"{VERSIONS_PAGE_DEFAULT}.",
            )
        found = await self._snapshots.versions(
            before=request.before or None, limit=request.page_size or VERSIONS_PAGE_DEFAULT
        )
        return pb.ListVersionsResponse(versions=[translate.version_message(each) for each in found])

    async def WatchNamespaces(
        self, request: pb.WatchNamespacesRequest, context: Any
    ) -> AsyncIterator[pb.WatchNamespacesResponse]:
        known = request.known_version
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while True:
                later = asyncio.ensure_future(self._snapshots.after(known))
                try:
                    await asyncio.wait((later, stopping), return_when=asyncio.FIRST_COMPLETED)
                    if not later.done():
                        return
                finally:
                    later.cancel()
                snapshot = later.result()
                known = snapshot.version
                yield pb.WatchNamespacesResponse(
                    version=translate.version_message(snapshot.info),
                    namespaces=translate.namespaces_message(snapshot),
                )
        finally:
            stopping.cancel()

    @answering_errors
    async def ListProcesses(
        self, request: pb.ListProcessesRequest, context: Any
    ) -> pb.ListProcessesResponse:
        found = await self._processes()
        return pb.ListProcessesResponse(
            version=self._snapshots.current.version,
            processes=[
                translate.process_message(process, said) for process, said in sorted(found.items())
            ],
        )

    async def _version(self, version: int, field: str = "version") -> Snapshot:
        _check_version(version, field)
        return await self._snapshots.version(version)

    async def _load(self, files: Sequence[pb.NamespaceFile]) -> Loaded:
        """All definitions or all mistakes of the files."""
        _check_files(files)
        if self._loads >= LOADS_MAX:
            raise Overloaded(
                f"The files of {LOADS_MAX} other calls are being read, which is the limit. "
                "Try again in a moment.",
                retry_after_ms=LOAD_RETRY_MS,
            )
        pairs = [(each.path, each.content) for each in files]
        work = asyncio.ensure_future(asyncio.to_thread(load_files, pairs))
        self._loads += 1
        work.add_done_callback(self._loaded)
        # A caller that goes away does not stop the thread, so the thread counts until it ends.
        return await asyncio.shield(work)

    def _loaded(self, _: asyncio.Future[Loaded]) -> None:
        self._loads -= 1


def _check_files(files: Sequence[pb.NamespaceFile]) -> None:
    if not files:
        raise InvalidRequest("BATCH_EMPTY", "files", "There are no files: send some.")
    if len(files) > FILES_MAX:
        raise InvalidRequest(
            "BATCH_TOO_LARGE", "files", f"{len(files)} files are more than {FILES_MAX}."
        )
    if sum(each.ByteSize() for each in files) > FILES_BYTES_MAX:
        raise InvalidRequest(
            "BATCH_TOO_LARGE", "files", f"The files have more than {FILES_BYTES_MAX >> 20} MiB."
        )


def _check_name(name: str) -> None:
    if not name:
        raise InvalidRequest("NAME_EMPTY", "namespace", "The namespace is empty: name one.")
    if len(name.encode()) > NAMESPACE_NAME_BYTES_MAX:
        raise InvalidRequest(
            "NAME_TOO_LONG",
            "namespace",
            f"The namespace {quoted(name)} is longer than {NAMESPACE_NAME_BYTES_MAX} bytes.",
        )


def _check_version(version: int, field: str, *, least: int = 0) -> None:
    if version < least:
        raise InvalidRequest(
            "VERSION_MALFORMED", field, f"{field} must be {least} or more, and is {version}."
        )


def _namespace_of(snapshot: Snapshot, name: str) -> Namespace:
    found = snapshot.namespaces.get(name)
    if found is None:
        meant = nearest(name, snapshot.namespaces)
        advice = f"Did you mean '{meant}'?" if meant else "ListNamespaces tells which there are."
        raise NamespaceUnknown(f"There is no namespace {quoted(name)}. {advice}")
    return found


def _report(loaded: Loaded) -> str:
    shown = report(loaded.mistakes[:MISTAKES_SHOWN_MAX])
    more = len(loaded.mistakes) - MISTAKES_SHOWN_MAX
    rest = f"\n... and {more} more" if more > 0 else ""
    return f"The files have mistakes, and nothing was changed:\n{shown}{rest}"
