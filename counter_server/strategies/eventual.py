"""eventual: reads are cheap and say how old they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from counter.instruments import CounterSeries
from counter.metrics import CACHE_LOOKUPS, CACHE_RESULTS
from counter.namespaces import Namespace
from counter.rollups import CachedCount
from counter.storage.ports import CountCache
from counter_server.strategies.logged import EventPath, Logged
from counter_server.strategies.strategy import Freshness, Source, Value

_LAYERS = {
    Source.LOCAL_CACHE: "local",
    Source.SHARED_CACHE: "shared",
    Source.ROLLUP: "store",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheLayer:
    cache: CountCache
    source: Source
    ttl_ms: int


class Eventual(Logged):
    """Asks one layer after the other, and each layer only for what the one before lacked."""

    def __init__(self, namespace: Namespace, path: EventPath, layers: Sequence[CacheLayer]) -> None:
        super().__init__(namespace, path)
        self._layers = [layer for layer in layers if layer.ttl_ms > 0]
        sources = [*(layer.source for layer in self._layers), Source.ROLLUP]
        self._lookups = {source: _lookups(_LAYERS[source]) for source in sources}

    async def read(self, counters: Sequence[str], freshness: Freshness) -> list[Value]:
        namespace_id = self.namespace.id
        now_ns = self._admission.now_ns()
        answers: list[Value | None] = [None] * len(counters)
        missing = list(range(len(counters)))
        for depth, layer in enumerate(self._layers):
            names = [counters[at] for at in missing]
            found = await layer.cache.get([(namespace_id, name) for name in names])
            missing = self._take(answers, missing, found, layer.source, freshness, now_ns)
            await self._fill(self._layers[:depth], names, found)
            if not missing:
                return [value for value in answers if value is not None]
        names = [counters[at] for at in missing]
        counts = await self._reads.rolled_up(self.namespace, names)
        await self._fill(self._layers, names, counts)
        missing = self._take(answers, missing, counts, Source.ROLLUP, freshness, now_ns)
        if missing:
            accurate = await self.read_accurately([counters[at] for at in missing], freshness)
            for at, value in zip(missing, accurate, strict=True):
                answers[at] = value
        return [value for value in answers if value is not None]

    def _take(
        self,
        answers: list[Value | None],
        missing: list[int],
        found: Sequence[CachedCount | None],
        source: Source,
        freshness: Freshness,
        now_ns: int,
    ) -> list[int]:
        """Takes what is there and fresh enough; answers with what is still missing."""
        still_missing, absent = [], 0
        oldest_ns = freshness.oldest_ns(now_ns)
        for at, count in zip(missing, found, strict=True):
            if count is None or count.complete_through_ns < oldest_ns:
                still_missing.append(at)
                absent += count is None
            else:
                answers[at] = Value(
                    count.count,
                    count.complete_through_ns,
                    count.epoch,
                    count.cleared_at_ns,
                    source,
                )
        lookups = self._lookups[source]
        lookups["hit"].add(len(missing) - len(still_missing))
        if still_missing:
            lookups["stale"].add(len(still_missing) - absent)
        if absent:
            lookups["miss"].add(absent)
        return still_missing

    async def _fill(
        self,
        layers: Sequence[CacheLayer],
        counters: Sequence[str],
        counts: Sequence[CachedCount | None],
    ) -> None:
        for layer in layers:
            items = [
                ((self.namespace.id, counter), count)
                for counter, count in zip(counters, counts, strict=True)
                if count is not None
            ]
            await layer.cache.put(items, ttl_ms=layer.ttl_ms)


def _lookups(layer: str) -> dict[str, CounterSeries]:
    """By result. The store knows every counter: one that nobody added to is 0."""
    results = CACHE_RESULTS if layer != "store" else ("hit", "stale")
    return {result: CACHE_LOOKUPS.at(layer=layer, result=result) for result in results}
