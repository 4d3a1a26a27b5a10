"""Calls on the platform itself: which namespaces there are, how far the rollups have come."""

from collections.abc import Mapping

from clients import translate
from clients.connection import Connection, Deadline
from clients.platform_values import Mistake, Namespace, Namespaces, RollupStatus
from clients.translate import check_name
from counter.v1 import namespace_service_pb2 as namespace_pb
from counter.v1 import rollup_service_pb2 as rollup_pb


class PlatformCalls:
    """The part of `CounterClient` that does not depend on its namespace."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def namespaces(self, *, timeout_s: float | None = None) -> Namespaces:
        """All namespaces of the platform, of one version.

        for namespace in (await client.namespaces()).namespaces:
            print(namespace.name, namespace.strategy)
        """
        response = await self._connection.read(
            self._connection.namespaces.ListNamespaces,
            namespace_pb.ListNamespacesRequest(),
            what="the list of namespaces",
            deadline=self._deadline(timeout_s),
        )
        return translate.namespaces(response)

    async def get_namespace(self, name: str, *, timeout_s: float | None = None) -> Namespace:
        """One namespace; raises NamespaceUnknown if there is none of that name.

        namespace = await client.get_namespace("video_plays")
        """
        response: namespace_pb.GetNamespaceResponse = await self._connection.read(
            self._connection.namespaces.GetNamespace,
            namespace_pb.GetNamespaceRequest(namespace=check_name(name, "namespace")),
            what=f"the read of namespace {name!r}",
            deadline=self._deadline(timeout_s),
        )
        return translate.namespace(response.namespace)

    async def validate_namespaces(
        self, files: Mapping[str, str], *, timeout_s: float | None = None
    ) -> list[Mistake]:
        """All mistakes of namespace files, given as path and content; changes nothing.

        mistakes = await client.validate_namespaces({"likes.yaml": "namespace: likes"})
        """
        response: namespace_pb.ValidateNamespacesResponse = await self._connection.read(
            self._connection.namespaces.ValidateNamespaces,
            namespace_pb.ValidateNamespacesRequest(
                files=[
                    namespace_pb.NamespaceFile(path=path, content=content)
                    for path, content in files.items()
                ]
            ),
            what=f"the check of {len(files)} namespace files",
            deadline=self._deadline(timeout_s),
        )
        return [translate.mistake(mistake) for mistake in response.mistakes]

    async def rollup_status(self, *, timeout_s: float | None = None) -> RollupStatus:
        """How far the folding of events into rollups has come.

        status = await client.rollup_status()
        print(status.folded_through, status.problem)
        """
        response = await self._connection.read(
            self._connection.rollups.GetRollupStatus,
            rollup_pb.GetRollupStatusRequest(),
            what="the status of the rollups",
            deadline=self._deadline(timeout_s),
        )
        return translate.rollup_status(response)

    def _deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline(self._timeout_s if timeout_s is None else timeout_s)
