"""The synchronous client's calls on a namespace's shadow phase."""

from collections.abc import Iterator

from clients.client import CounterClient
from clients.history_calls import PAGE_SIZE_DEFAULT
from clients.loop_thread import LoopThread
from clients.namespace_values import Version
from clients.shadow_values import ShadowCount, ShadowPage


class SyncShadowCalls:
    """The part of `SyncCounterClient` that changes a best_effort namespace to another strategy."""

    _client: CounterClient
    _thread: LoopThread

    def compare_shadow(
        self,
        prefix: str = "",
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        timeout_s: float | None = None,
    ) -> Iterator[ShadowCount]:
        """What the namespace and its shadow have counted; see `CounterClient.compare_shadow`.

        differing = [each for each in client.compare_shadow() if each.difference]
        """
        page_token = ""
        while True:
            page = self.compare_shadow_page(
                prefix, page_size=page_size, page_token=page_token, timeout_s=timeout_s
            )
            yield from page.counters
            page_token = page.next_page_token
            if not page_token:
                return

    def compare_shadow_page(
        self,
        prefix: str = "",
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> ShadowPage:
        """One page of `compare_shadow`; see `CounterClient.compare_shadow_page`.

        page = client.compare_shadow_page(page_size=100)
        """
        return self._thread.run(
            self._client.compare_shadow_page(
                prefix, page_size=page_size, page_token=page_token, timeout_s=timeout_s
            )
        )

    def cutover_namespace(
        self,
        name: str,
        *,
        expected_version: int,
        author: str,
        reason: str,
        timeout_s: float | None = None,
    ) -> Version:
        """Ends a shadow phase; see `CounterClient.cutover_namespace`.

        client.cutover_namespace("hits", expected_version=7, author="oncall", reason="exact now")
        """
        return self._thread.run(
            self._client.cutover_namespace(
                name,
                expected_version=expected_version,
                author=author,
                reason=reason,
                timeout_s=timeout_s,
            )
        )
