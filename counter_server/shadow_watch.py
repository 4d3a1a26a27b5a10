"""Compares the shadows of all namespaces in the background, and publishes how far they differ.

Page after page, one every few seconds: a little work, whatever the number of counters. When all
namespaces are through, what was found becomes the gauges, and it begins again.
"""

import asyncio

import structlog

from counter.errors import TallyError
from counter.metrics import (
    SHADOW_ADDS,
    SHADOW_COMPARED,
    SHADOW_DIFFERENCE,
    SHADOW_DIFFERENT,
    SHADOW_RESULTS,
)
from counter.namespaces import Namespace
from counter_server.comparison import Comparison
from counter_server.registry import Registry
from counter_server.strategies.shadow import Shadow

COUNTERS_PER_LOOK = 500
_LOOK_EVERY_S = 10.0

log = structlog.get_logger()


class ShadowWatch:
    def __init__(self, registry: Registry, comparison: Comparison) -> None:
        self._registry = registry
        self._comparison = comparison
        self._left: list[Namespace] = []  # of this round, the current one last
        self._page_token = ""
        self._different = self._difference = 0  # of this round, so far
        # Of the last round: how many differed, and by how much in all. None: there was none yet.
        self.found: tuple[int, int] | None = None
        for result in SHADOW_RESULTS:
            SHADOW_ADDS.at(result=result)  # shown from 0 on, also before the first phase
        self._equal_counters = SHADOW_COMPARED.at(result="equal")
        self._different_counters = SHADOW_COMPARED.at(result="different")
        SHADOW_DIFFERENT.at().watch(self, lambda watch: watch.found and watch.found[0])
        SHADOW_DIFFERENCE.at().watch(self, lambda watch: watch.found and watch.found[1])

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                await self.look()
            except TallyError as error:
                log.warning(
                    "shadows could not be compared",
                    action="shadow_not_compared",
                    problem=error.message,
                )

    async def look(self) -> None:
        """Compares the next page. If that fails, the same page is next again."""
        if not self._left:
            self._begin_round()
        while self._left:
            namespace = self._left[-1]
            strategy = self._registry.strategies.get(namespace.name)
            if isinstance(strategy, Shadow) and strategy.namespace.id == namespace.id:
                await self._compare_page(strategy)
                break
            self._end_namespace()  # its shadow phase ended meanwhile
        if not self._left:
            self.found = (self._different, self._difference)

    def _begin_round(self) -> None:
        strategies = self._registry.strategies.values()
        self._left = [each.namespace for each in strategies if isinstance(each, Shadow)]
        self._different = self._difference = 0

    async def _compare_page(self, strategy: Shadow) -> None:
        page = await self._comparison.page(strategy, "", COUNTERS_PER_LOOK, self._page_token)
        differences = [each.difference for each in page.counters if each.difference]
        self._equal_counters.add(len(page.counters) - len(differences))
        self._different_counters.add(len(differences))
        self._different += len(differences)
        self._difference += sum(map(abs, differences))
        self._page_token = page.next_token
        if not page.next_token:
            self._end_namespace()

    def _end_namespace(self) -> None:
        self._left.pop()
        self._page_token = ""
