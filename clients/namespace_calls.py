"""Calls on namespaces: which there are, what a change would do, changing them, who runs them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc

from clients import translate_namespaces as translate
from clients.changes import send_change
from clients.connection import Deadline, Method
from clients.failures import Failure, error_of, failure_of_call
from clients.namespace_values import (
    ApplyResult,
    Mistake,
    Namespace,
    Namespaces,
    Plan,
    Processes,
    Version,
)
from clients.platform_calls import PlatformCalls
from clients.retry import after_read
from clients.translate import check_name
from clients.translate_namespaces import check_version, file_messages
from counter.v1 import namespace_service_pb2 as pb

VERSIONS_LIMIT_DEFAULT = 50
# What the platform answers at most at a time.
VERSIONS_PER_CALL_MAX = 500
# A watch has no deadline: its waits between two streams are those of a call with much time left.
_PATIENCE_S = 60.0


class NamespaceCalls(PlatformCalls):
    """The part of `CounterClient` that a control plane answers; in a fleet, give its address."""

    async def namespaces(
        self, *, version: int | None = None, timeout_s: float | None = None
    ) -> Namespaces:
        """All namespaces of the platform, of the live version or of an earlier one.

        for namespace in (await client.namespaces()).namespaces:
            print(namespace.name, namespace.strategy)
        """
        response = await self._connection.read(
            self._connection.namespaces.ListNamespaces,
            pb.ListNamespacesRequest(version=check_version(version or 0)),
            what="the list of namespaces",
            deadline=self._deadline(timeout_s),
        )
        return translate.namespaces(response)

    async def get_namespace(
        self, name: str, *, version: int | None = None, timeout_s: float | None = None
    ) -> Namespace:
        """One namespace, as it is or as it was in an earlier version.

        Raises NamespaceUnknown if there is none of that name.

            namespace = await client.get_namespace("video_plays")
        """
        response: pb.GetNamespaceResponse = await self._connection.read(
            self._connection.namespaces.GetNamespace,
            pb.GetNamespaceRequest(
                namespace=check_name(name, "namespace"), version=check_version(version or 0)
            ),
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
        response: pb.ValidateNamespacesResponse = await self._connection.read(
            self._connection.namespaces.ValidateNamespaces,
            pb.ValidateNamespacesRequest(files=file_messages(files)),
            what=f"the check of {len(files)} namespace files",
            deadline=self._deadline(timeout_s),
        )
        return [translate.mistake(mistake) for mistake in response.mistakes]

    async def plan_namespaces(
        self,
        files: Mapping[str, str] | None = None,
        *,
        version: int | None = None,
        base_version: int | None = None,
        timeout_s: float | None = None,
    ) -> Plan:
        """What files, or an earlier `version`, would change, and what comes of it.

        The files are all namespaces, given as path and content: one that is live and not among
        them would be deleted. They are compared with the live version, or with `base_version`.
        Changes nothing.

            plan = await client.plan_namespaces({"likes.yaml": text})
            for change in plan.changes:
                print(change.action, change.namespace, change.consequence)
        """
        if (files is None) == (version is None):
            raise TypeError("plan_namespaces takes either files or a version")
        response = await self._connection.read(
            self._connection.namespaces.PlanNamespaces,
            pb.PlanNamespacesRequest(
                files=file_messages(files or {}),
                version=check_version(version or 0),
                base_version=check_version(base_version or 0, "base_version"),
            ),
            what="the plan of namespaces",
            deadline=self._deadline(timeout_s),
        )
        return translate.plan(response)

    async def apply_namespaces(
        self,
        files: Mapping[str, str],
        *,
        expected_version: int,
        author: str,
        reason: str,
        allow_data_loss: bool = False,
        timeout_s: float | None = None,
    ) -> ApplyResult:
        """Makes these files the next version, if the live one is still `expected_version`.

        That is the `base_version` of the plan that you agreed to. The files are all namespaces: one
        that is live and not among them is deleted. Author and reason stay with the version.
        Raises VersionConflict if another version was applied meanwhile, NamespacesInvalid,
        ChangeImpossible, DataLossRefused, and ChangeUnknown if an answer was lost and it cannot be
        told whether this was applied. Then `versions` tells.

            plan = await client.plan_namespaces(files)
            await client.apply_namespaces(
                files, expected_version=plan.base_version, author="oncall", reason="more history"
            )
        """
        return await self._change(
            self._connection.namespaces.ApplyNamespaces,
            pb.ApplyNamespacesRequest(
                files=file_messages(files),
                expected_version=check_version(expected_version, "expected_version"),
                author=check_name(author, "author"),
                reason=check_name(reason, "reason"),
                allow_data_loss=allow_data_loss,
            ),
            "the change of namespaces",
            timeout_s,
        )

    async def rollback_namespaces(
        self,
        version: int,
        *,
        expected_version: int,
        author: str,
        reason: str,
        allow_data_loss: bool = False,
        timeout_s: float | None = None,
    ) -> ApplyResult:
        """Makes the next version equal to an earlier one, as carefully as `apply_namespaces`.

        Namespaces that were deleted since have their counts again.

            plan = await client.plan_namespaces(version=5)
            await client.rollback_namespaces(
                5, expected_version=plan.base_version, author="oncall", reason="reads were slow"
            )
        """
        return await self._change(
            self._connection.namespaces.RollbackNamespaces,
            pb.RollbackNamespacesRequest(
                version=check_version(version),
                expected_version=check_version(expected_version, "expected_version"),
                author=check_name(author, "author"),
                reason=check_name(reason, "reason"),
                allow_data_loss=allow_data_loss,
            ),
            f"the rollback to version {version}",
            timeout_s,
        )

    async def versions(
        self,
        *,
        limit: int = VERSIONS_LIMIT_DEFAULT,
        before: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Version]:
        """The last versions, newest first: who made each, when, why and how.

        The first one is live, unless you asked for those `before` a version.

            for version in await client.versions(limit=10):
                print(version.version, version.applied_at, version.author, version.reason)
        """
        if limit < 1:
            raise ValueError(f"limit must be 1 or more, not {limit!r}")
        deadline = self._deadline(timeout_s)
        found: list[Version] = []
        before = check_version(before or 0, "before")
        while len(found) < limit:
            size = min(limit - len(found), VERSIONS_PER_CALL_MAX)
            response: pb.ListVersionsResponse = await self._connection.read(
                self._connection.namespaces.ListVersions,
                pb.ListVersionsRequest(page_size=size, before=before),
                what="the list of versions",
                deadline=deadline,
            )
            found += (translate.version(each) for each in response.versions)
            if len(response.versions) < size:
                break
            before = found[-1].version
        return found

    async def watch_namespaces(self) -> AsyncIterator[Namespaces]:
        """The namespaces of the live version at once, then those of each one that follows.

        Whoever is slow misses versions in between, never the latest. A broken stream is opened
        again, for ever; it ends with the client.

            async for namespaces in client.watch_namespaces():
                print(namespaces.version, namespaces.about.author, namespaces.about.reason)
        """
        known_version = 0
        failures = 0
        while True:
            self._connection.check_open()
            failure = Failure(code=grpc.StatusCode.UNAVAILABLE, message="the stream ended")
            call: Any = self._connection.namespaces.WatchNamespaces(
                pb.WatchNamespacesRequest(known_version=known_version)
            )
            try:
                async for response in call:
                    failures = 0
                    if response.version.version > known_version:
                        known_version = response.version.version
                        yield translate.watched_namespaces(response)
            except grpc.aio.AioRpcError as error:
                failure = failure_of_call(error)
            except asyncio.CancelledError:
                # As in Connection.attempt: raised for our task, and for a channel that was closed.
                task = asyncio.current_task()
                if not self._connection.closed or task is None or task.cancelling():
                    raise
            finally:
                call.cancel()
            self._connection.check_open()
            failures += 1
            delay_s = after_read(
                failures, failure, remaining_s=_PATIENCE_S, random=self._connection.random
            )
            if delay_s is None:
                raise error_of(failure)
            await self._connection.pause(delay_s)

    async def processes(self, *, timeout_s: float | None = None) -> Processes:
        """The live processes of the fleet, which version each runs, and what servers take on.

        fleet = await client.processes()
        print(sum(each.version == fleet.version for each in fleet.processes), "are up to date")
        """
        response = await self._connection.read(
            self._connection.namespaces.ListProcesses,
            pb.ListProcessesRequest(),
            what="the list of processes",
            deadline=self._deadline(timeout_s),
        )
        return translate.processes(response)

    async def _change(
        self,
        method: Method,
        request: pb.ApplyNamespacesRequest | pb.RollbackNamespacesRequest,
        what: str,
        timeout_s: float | None,
    ) -> ApplyResult:
        deadline: Deadline = self._deadline(timeout_s)
        response = await send_change(
            self._connection,
            method,
            request,
            what=what,
            expected_version=request.expected_version,
            deadline=deadline,
        )
        return translate.apply_result(response)
