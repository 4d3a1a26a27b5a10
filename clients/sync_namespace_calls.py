"""The synchronous client's calls on namespaces."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from clients.client import CounterClient
from clients.errors import ClientClosed
from clients.loop_thread import LoopThread
from clients.namespace_calls import VERSIONS_LIMIT_DEFAULT
from clients.namespace_values import (
    ApplyResult,
    Mistake,
    Namespace,
    Namespaces,
    Plan,
    Processes,
    Version,
)


class SyncNamespaceCalls:
    """The part of `SyncCounterClient` that a control plane answers."""

    _client: CounterClient
    _thread: LoopThread

    def namespaces(
        self, *, version: int | None = None, timeout_s: float | None = None
    ) -> Namespaces:
        """All namespaces of the platform, of the live version or of an earlier one.

        names = [namespace.name for namespace in client.namespaces().namespaces]
        """
        return self._thread.run(self._client.namespaces(version=version, timeout_s=timeout_s))

    def get_namespace(
        self, name: str, *, version: int | None = None, timeout_s: float | None = None
    ) -> Namespace:
        """One namespace; raises NamespaceUnknown if there is none of that name.

        namespace = client.get_namespace("video_plays")
        """
        return self._thread.run(
            self._client.get_namespace(name, version=version, timeout_s=timeout_s)
        )

    def validate_namespaces(
        self, files: Mapping[str, str], *, timeout_s: float | None = None
    ) -> list[Mistake]:
        """All mistakes of namespace files, given as path and content; changes nothing.

        mistakes = client.validate_namespaces({"likes.yaml": "namespace: likes"})
        """
        return self._thread.run(self._client.validate_namespaces(files, timeout_s=timeout_s))

    def plan_namespaces(
        self,
        files: Mapping[str, str] | None = None,
        *,
        version: int | None = None,
        base_version: int | None = None,
        timeout_s: float | None = None,
    ) -> Plan:
        """What files, or an earlier version, would change; see `CounterClient.plan_namespaces`.

        print(client.plan_namespaces({"likes.yaml": text}).consequence)
        """
        return self._thread.run(
            self._client.plan_namespaces(
                files, version=version, base_version=base_version, timeout_s=timeout_s
            )
        )

    def apply_namespaces(
        self,
        files: Mapping[str, str],
        *,
        expected_version: int,
        author: str,
        reason: str,
        allow_data_loss: bool = False,
        timeout_s: float | None = None,
    ) -> ApplyResult:
        """Makes these files the next version; see `CounterClient.apply_namespaces`.

        client.apply_namespaces(files, expected_version=7, author="oncall", reason="more history")
        """
        return self._thread.run(
            self._client.apply_namespaces(
                files,
                expected_version=expected_version,
                author=author,
                reason=reason,
                allow_data_loss=allow_data_loss,
                timeout_s=timeout_s,
            )
        )

    def rollback_namespaces(
        self,
        version: int,
        *,
        expected_version: int,
        author: str,
        reason: str,
        allow_data_loss: bool = False,
        timeout_s: float | None = None,
    ) -> ApplyResult:
        """Makes the next version equal to an earlier one; see `CounterClient.rollback_namespaces`.

        client.rollback_namespaces(5, expected_version=7, author="oncall", reason="slow reads")
        """
        return self._thread.run(
            self._client.rollback_namespaces(
                version,
                expected_version=expected_version,
                author=author,
                reason=reason,
                allow_data_loss=allow_data_loss,
                timeout_s=timeout_s,
            )
        )

    def versions(
        self,
        *,
        limit: int = VERSIONS_LIMIT_DEFAULT,
        before: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Version]:
        """The last versions, newest first: who made each, when, why and how.

        print(client.versions(limit=1)[0].author)
        """
        return self._thread.run(
            self._client.versions(limit=limit, before=before, timeout_s=timeout_s)
        )

    def watch_namespaces(self) -> Iterator[Namespaces]:
        """The live version at once, then each that follows; see `CounterClient.watch_namespaces`.

        for namespaces in client.watch_namespaces():
            print(namespaces.version)
        """
        watched = self._client.watch_namespaces()

        async def following() -> Namespaces:
            return await anext(watched)

        async def end() -> None:
            await watched.aclose()  # type: ignore[attr-defined]  # it is a generator

        try:
            while True:
                yield self._thread.run(following())
        finally:
            with suppress(ClientClosed):
                self._thread.run(end())

    def processes(self, *, timeout_s: float | None = None) -> Processes:
        """The live processes of the fleet, which version each runs, and what servers take on.

        print([each.process for each in client.processes().processes])
        """
        return self._thread.run(self._client.processes(timeout_s=timeout_s))
