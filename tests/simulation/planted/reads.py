"""Mistakes in how counts of now are read."""

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec

import counter_server.listing
import counter_server.strategies.rolling_window
from counter.rollups import FoldRecord
from counter_server.listing import Listing
from counter_server.reads import Reads, Row
from counter_server.strategies.logged import Logged
from counter_server.strategies.strategy import Freshness
from counter_server.tail import Tail, TailView
from rollup_worker.rollup import Rollup
from tests.simulation.planted.mistake import Mistake, Patches, slowed


def _watermark_read_after_the_row() -> Patches:
    """A row is stamped with a watermark that was read after it."""
    rows = Reads.rows

    async def swapped(self: Any, namespace: Any, counters: Sequence[str]) -> list[Row]:
        found = await rows(self, namespace, counters)
        watermarks = await self._ledger.watermarks()
        return [row._replace(through=max(row.through, watermarks[row.shard])) for row in found]

    yield patch.object(Reads, "rows", swapped)


def _cache_stamped_too_new() -> Patches:
    """What enters the cache gets the stamp of now, not of when it was read."""
    refresh = Rollup._refresh_cache

    async def fresh(self: Any, record: FoldRecord, rows: Any) -> None:
        later = msgspec.structs.replace(record, to_window=record.to_window + 2)
        await refresh(self, later, rows)

    yield patch.object(Rollup, "_refresh_cache", fresh)


def _tail_counts_everything() -> Patches:
    """An accurate read counts late segments of recorded windows too."""
    yield patch.object(TailView, "counts", lambda self, ref: True)
    yield patch.object(TailView, "_counted", lambda self, window, found: list(found))


def _tail_shared_with_the_past() -> Patches:
    """An accurate read takes the answer of a tail read that began before it."""
    read = Tail.read

    async def shared(self: Any, shard: int, after_window: int, keys: Any) -> TailView:
        now_s = asyncio.get_running_loop().time()
        kept = self.__dict__.setdefault("planted", {})
        key = (shard, frozenset(keys))
        if key in kept and now_s - kept[key][0] < 0.5 and kept[key][2] == after_window:
            view: TailView = kept[key][1]
            return view
        view = await read(self, shard, after_window, keys)
        kept[key] = (now_s, view, after_window)
        return view

    yield patch.object(Tail, "read", shared)


def _at_least_forgotten() -> Patches:
    yield patch.object(Freshness, "oldest_ns", lambda self, now_ns: -(2**62))
    yield patch.object(Logged, "_check_freshness", lambda self, through_ns, freshness: None)


def _rolling_window_with_one_that_left_it() -> Patches:
    """The count has a window more than the answer says."""
    rolling = counter_server.strategies.rolling_window
    hits = rolling.hits

    def wrong(
        namespace: Any, rollup: Any, through_ns: int, now_ns: int, layout: Any, *source: Any
    ) -> Any:
        value = hits(namespace, rollup, through_ns, now_ns, layout, *source)
        if rollup.recent is None:
            return value
        first = layout.window_of(now_ns) - namespace.recent_windows(layout.window_ms)
        return msgspec.structs.replace(value, count=rollup.recent.since(first))

    yield patch.object(rolling, "hits", wrong)
    yield patch.object(counter_server.listing, "hits", wrong)


def _list_stamped_after_it_was_read() -> Patches:
    """A list is complete through watermarks that were read after its rows."""
    merged = Listing._merged

    async def page(self: Any, namespace: Any, prefix: str, size: int, token: str) -> Any:
        after = counter_server.listing._after(namespace, prefix, token) if token else ""
        rows = await merged(self, namespace, prefix, after, (size or 100) + 1)

        async def as_read(*args: Any) -> Any:
            return rows

        with patch.object(self, "_merged", as_read):
            return await _page(self, namespace, prefix, size, token)

    _page = Listing.page
    yield patch.object(Listing, "page", page)


MISTAKES = {
    "watermark read after the row": Mistake(
        plant=_watermark_read_after_the_row, breaks=("I5", "I6"), focus=slowed("watermarks")
    ),
    "cache stamped too new": Mistake(plant=_cache_stamped_too_new, breaks=("I5", "I6")),
    "tail counts everything": Mistake(
        plant=_tail_counts_everything,
        breaks=("I5", "I6"),
        focus=slowed("append_segment", "write_rollup", "advance"),
    ),
    "tail shared with the past": Mistake(plant=_tail_shared_with_the_past, breaks=("I5", "I6")),
    "at_least forgotten": Mistake(plant=_at_least_forgotten, breaks=("I4",)),
    "rolling window with one that left it": Mistake(
        plant=_rolling_window_with_one_that_left_it, breaks=("I5", "I6")
    ),
    "list stamped after it was read": Mistake(
        plant=_list_stamped_after_it_was_read,
        breaks=("I5", "I6"),
        focus=slowed("watermarks"),
    ),
}
