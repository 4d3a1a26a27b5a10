"""Calls on a namespace's shadow phase: compare, and cut over."""

from collections.abc import AsyncIterator

from clients.changes import send_change
from clients.history_calls import PAGE_SIZE_DEFAULT
from clients.namespace_values import Version
from clients.platform_calls import PlatformCalls
from clients.shadow_values import ShadowCount, ShadowPage
from clients.translate import check_name, optional_ns
from clients.translate_history import check_size
from clients.translate_namespaces import check_version, version
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import namespace_service_pb2 as namespace_pb


class ShadowCalls(PlatformCalls):
    """The part of `CounterClient` that changes a best_effort namespace to another strategy."""

    _namespace: str

    async def compare_shadow(
        self,
        prefix: str = "",
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        timeout_s: float | None = None,
    ) -> AsyncIterator[ShadowCount]:
        """What the namespace and its shadow have counted, by name; reads page after page.

        The counters are those that were added to since the shadow phase began, each from its first
        fold on. Adds in flight are not taken for a difference. The deadline is for each page.
        Raises ShadowOff if the namespace is in no shadow phase.

            async for each in client.compare_shadow():
                print(each.counter, each.count, each.shadow_count, each.difference)
        """
        page_token = ""
        while True:
            page = await self.compare_shadow_page(
                prefix, page_size=page_size, page_token=page_token, timeout_s=timeout_s
            )
            for each in page.counters:
                yield each
            page_token = page.next_page_token
            if not page_token:
                return

    async def compare_shadow_page(
        self,
        prefix: str = "",
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> ShadowPage:
        """One page of `compare_shadow`: up to `page_size` (1 to 1,000) counters, by name.

        page = await client.compare_shadow_page()
        next_page = await client.compare_shadow_page(page_token=page.next_page_token)
        """
        response: pb.CompareShadowResponse = await self._connection.read(
            self._connection.counters.CompareShadow,
            pb.CompareShadowRequest(
                namespace=self._namespace,
                prefix=check_name(prefix, "prefix"),
                page_size=check_size(page_size, "page_size"),
                page_token=check_name(page_token, "page_token"),
            ),
            what=f"the comparison of namespace {self._namespace!r} with its shadow",
            deadline=self._deadline(timeout_s),
        )
        return ShadowPage(
            counters=tuple(
                ShadowCount(
                    counter=each.counter_name, count=each.count, shadow_count=each.shadow_count
                )
                for each in response.counters
            ),
            next_page_token=response.next_page_token,
            complete_through_ns=optional_ns(response, "complete_through"),
        )

    async def cutover_namespace(
        self,
        name: str,
        *,
        expected_version: int,
        author: str,
        reason: str,
        timeout_s: float | None = None,
    ) -> Version:
        """Ends a shadow phase: from the next version on the namespace has its shadow's strategy.

        A control plane answers. The rest is as in `apply_namespaces`; raises ShadowOff if the
        namespace is in no shadow phase. What the shadow lacks by then is lost: compare first.

            live = await client.namespaces()
            await client.cutover_namespace(
                "hits", expected_version=live.version, author="oncall", reason="must be exact"
            )
        """
        response: namespace_pb.CutoverNamespaceResponse = await send_change(
            self._connection,
            self._connection.namespaces.CutoverNamespace,
            namespace_pb.CutoverNamespaceRequest(
                namespace=check_name(name, "namespace"),
                expected_version=check_version(expected_version, "expected_version"),
                author=check_name(author, "author"),
                reason=check_name(reason, "reason"),
            ),
            what=f"the cutover of namespace {name!r}",
            expected_version=expected_version,
            deadline=self._deadline(timeout_s),
        )
        return version(response.version)
