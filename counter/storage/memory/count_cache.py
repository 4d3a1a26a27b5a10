import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from counter.clock import NS_PER_MS
from counter.rollups import CachedCount
from counter.storage.ports import CounterKey


class MemoryCountCache:
    """Bounded: beyond `entries_max` the entry that was put first goes first.

    Entries live for moments, so the oldest is also the nearest to its end; keeping track of use
    would cost every read more than it saves.
    """

    def __init__(
        self, *, entries_max: int = 100_000, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._entries_max = entries_max
        self._monotonic_ns = monotonic_ns
        # Not a plain dict: finding the first entry of one that lost its first ones is a search.
        self._entries: OrderedDict[CounterKey, tuple[CachedCount, int]] = OrderedDict()

    async def get(self, keys: Sequence[CounterKey]) -> list[CachedCount | None]:
        if not self._entries:
            return [None] * len(keys)
        now_ns = self._monotonic_ns()
        return [
            entry[0] if entry is not None and entry[1] > now_ns else None
            for entry in map(self._entries.get, keys)
        ]

    async def put(self, items: Sequence[tuple[CounterKey, CachedCount]], *, ttl_ms: int) -> None:
        ends_ns = self._monotonic_ns() + ttl_ms * NS_PER_MS
        entries = self._entries
        for key, count in items:
            present = entries.pop(key, None)
            if present is not None and present[0].complete_through_ns > count.complete_through_ns:
                count = present[0]  # somebody who read later was here first
            entries[key] = (count, ends_ns)
        while len(entries) > self._entries_max:
            entries.popitem(last=False)
