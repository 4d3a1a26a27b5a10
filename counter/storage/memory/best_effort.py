import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from counter.clock import NS_PER_MS
from counter.storage.ports import BestEffortAdd, CounterKey


class MemoryBestEffortCounters:
    """Counters and remembered tokens in this process; both bounded, the oldest go first."""

    def __init__(
        self,
        *,
        counters_max: int = 1_000_000,
        tokens_max: int = 1_000_000,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._counters_max = counters_max
        self._tokens_max = tokens_max
        self._monotonic_ns = monotonic_ns
        self._counts: OrderedDict[CounterKey, int] = OrderedDict()
        self._tokens: OrderedDict[tuple[CounterKey, str], int] = OrderedDict()

    async def apply(
        self, adds: Sequence[BestEffortAdd], *, dedupe_ttl_ms: int
    ) -> list[tuple[int, bool]]:
        now_ns = self._monotonic_ns()
        results = []
        for key, delta, dedupe_key in adds:
            count = self._counts.get(key, 0)
            seen = dedupe_key is not None and self._tokens.get((key, dedupe_key), 0) > now_ns
            if not seen:
                count = 0 if delta is None else count + delta
                self._counts[key] = count
                if dedupe_key is not None:
                    self._tokens.pop((key, dedupe_key), None)
                    self._tokens[key, dedupe_key] = now_ns + dedupe_ttl_ms * NS_PER_MS
            results.append((count, seen))
        while len(self._counts) > self._counters_max:
            self._counts.popitem(last=False)
        while len(self._tokens) > self._tokens_max:
            self._tokens.popitem(last=False)
        return results

    async def read(self, keys: Sequence[CounterKey]) -> list[int]:
        return [self._counts.get(key, 0) for key in keys]
