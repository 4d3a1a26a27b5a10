"""Reads below the caches: a counter's rollup, alone or with the tail.

The order of the steps is what makes an answer honest (I5). The watermark is read *before* the row,
so the row holds at least everything up to it. For an accurate answer the fold records and the tail
are read after the row, so nothing that was folded in between is missed: windows after the row's
end come from the tail, and of a window that has a record only the segments that it names count.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from counter.background import heard
from counter.fold import FoldCounts, fold
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.metrics import ACCURATE_READS
from counter.namespaces import Namespace
from counter.rollups import ZERO, CachedCount, Rollup, RollupKey
from counter.storage.ports import CounterKey, Ledger, RollupStore
from counter.windows import Layout
from counter_server.tail import Tail


class Row(NamedTuple):
    rollup: Rollup  # ZERO: the counter has none
    through: int  # the window that it is complete through
    shard: int


class Reads:
    def __init__(self, ledger: Ledger, rollups: RollupStore, tail: Tail, layout: Layout) -> None:
        self._ledger = ledger
        self._rollups = rollups
        self._tail = tail
        self._layout = layout
        self._accurate_reads = ACCURATE_READS.at()
        self._under_way: dict[CounterKey, asyncio.Task[dict[CounterKey, CachedCount]]] = {}

    async def rolled_up(self, namespace: Namespace, counters: Sequence[str]) -> list[CachedCount]:
        """What is folded: cheap, and as complete as its stamp says.

        A counter that is being read for somebody else is not read again: an answer that began a
        moment earlier is as true, by its own stamp. So however many ask for a counter that has just
        left the caches, the store is asked once. (Watermark and row are shared as one: a row that
        was asked for before the watermark could be older than its stamp.)
        """
        keys: list[CounterKey] = [(namespace.id, counter) for counter in counters]
        unread = [key for key in keys if key not in self._under_way]
        if unread:
            reading = asyncio.create_task(self._read_rolled_up(namespace, unread))
            reading.add_done_callback(heard)
            self._under_way.update(dict.fromkeys(unread, reading))
        found: dict[CounterKey, CachedCount] = {}
        for each in {self._under_way[key] for key in keys}:
            # Shielded: a caller that goes away does not take the answer from the others.
            found |= await asyncio.shield(each)
        return [found[key] for key in keys]

    async def accurate(self, namespace: Namespace, counters: Sequence[str]) -> list[CachedCount]:
        """Rollup and tail: includes every event that was acknowledged before the call."""
        rollups = await self.with_tail(namespace, counters)
        return [self._count(rollup, rollup.through_window) for rollup in rollups]

    async def with_tail(self, namespace: Namespace, counters: Sequence[str]) -> list[Rollup]:
        """The same as rollups, complete through their through_window."""
        self._accurate_reads.add(len(counters))
        recent_windows = namespace.recent_windows(self._layout.window_ms)
        rows = await self.rows(namespace, counters)
        keys: list[CounterKey] = [(namespace.id, counter) for counter in counters]
        by_shard: dict[int, list[int]] = {}
        for position, row in enumerate(rows):
            by_shard.setdefault(row.shard, []).append(position)
        answers: list[Rollup] = [ZERO] * len(counters)
        ignored = FoldCounts()

        async def answer_shard(shard: int, positions: list[int]) -> None:
            after = min(rows[position].through for position in positions)
            view = await self._tail.read(shard, after, {keys[each] for each in positions})
            for position in positions:
                rollup, through, _ = rows[position]
                events = view.events_after(through, keys[position])
                if view.recorded_through is not None:
                    through = max(through, view.recorded_through)
                answers[position] = fold(
                    rollup,
                    events,
                    through,
                    ignored,
                    window_ns=self._layout.window_ns,
                    recent_windows=recent_windows,
                )

        await asyncio.gather(*(answer_shard(*each) for each in by_shard.items()))
        return answers

    async def rows(self, namespace: Namespace, counters: Sequence[str]) -> list[Row]:
        """In the order of the counters."""
        buckets = ROLLUP_BUCKETS[namespace.cardinality]
        prefix = namespace_prefix(namespace.id)
        hashes = [counter_hash(prefix, counter) for counter in counters]
        keys = [
            RollupKey(namespace.id, hashed % buckets, counter)
            for hashed, counter in zip(hashes, counters, strict=True)
        ]
        watermarks = await self._ledger.watermarks()
        rows = await self._rollups.read(keys)
        answer = []
        for hashed, row in zip(hashes, rows, strict=True):
            shard = hashed % self._layout.shards
            rollup = row or ZERO
            answer.append(Row(rollup, max(watermarks[shard], rollup.through_window), shard))
        return answer

    async def _read_rolled_up(
        self, namespace: Namespace, keys: Sequence[CounterKey]
    ) -> dict[CounterKey, CachedCount]:
        try:
            rows = await self.rows(namespace, [counter for _, counter in keys])
        finally:
            for key in keys:
                self._under_way.pop(key, None)
        counts = (self._count(row.rollup, row.through) for row in rows)
        return dict(zip(keys, counts, strict=True))

    def _count(self, rollup: Rollup, through_window: int) -> CachedCount:
        return CachedCount(
            rollup.count,
            self._layout.complete_through_ns(through_window),
            rollup.epoch,
            rollup.cleared_at_ns,
        )
