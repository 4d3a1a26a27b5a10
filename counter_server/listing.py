"""ListCounters: the counters of a namespace by name, in pages.

A namespace's rollups lie in buckets by the hash of the counter's name, each sorted by name. A page
is a merge of all of them: some rows of each bucket, and more of those that run out. The watermarks
are read before the rows, so a counter with an event up to the oldest of them has its row by then,
and each value is as complete as its stamp says (I5).
"""

import asyncio
import base64
import binascii
import heapq
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from xxhash import xxh3_64_digest

from counter.clock import Clock
from counter.errors import InvalidRequest
from counter.keys import ROLLUP_BUCKETS, namespace_prefix, shards_of
from counter.namespaces import Namespace, Strategy
from counter.rollups import Rollup
from counter.storage.ports import Ledger, RollupStore
from counter.windows import Layout
from counter_server.states import check_rolled_up
from counter_server.strategies.rolling_window import hits
from counter_server.strategies.strategy import Source, Value

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000
BUCKETS_AT_ONCE_MAX = 16
# Of each bucket, at least so many rows at once: names are spread unevenly over small pages.
_ROWS_PER_BUCKET_MIN = 8

_TOKEN_VERSION = b"\x01"
_TOKEN_HEADER_BYTES = 9


class Entry(NamedTuple):
    counter: str
    value: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    entries: list[Entry]
    next_token: str  # empty: this was the last page
    complete_through_ns: int


class Listing:
    def __init__(self, ledger: Ledger, rollups: RollupStore, layout: Layout, clock: Clock) -> None:
        self._ledger = ledger
        self._rollups = rollups
        self._layout = layout
        self._clock = clock

    async def page(self, namespace: Namespace, prefix: str, size: int, token: str) -> Page:
        """`size` 0 is PAGE_SIZE_DEFAULT; an empty token begins at the beginning."""
        check_rolled_up(namespace, "keeps no list of its counters")
        if not 0 <= size <= PAGE_SIZE_MAX:
            raise InvalidRequest(
                "PAGE_MALFORMED", "page_size", f"page_size must be 1 to {PAGE_SIZE_MAX}"
            )
        size = size or PAGE_SIZE_DEFAULT
        after = _after(namespace, prefix, token) if token else ""
        watermarks = await self._ledger.watermarks()
        # One more than asked for tells whether there is a next page.
        found = await self._merged(namespace, prefix, after, size + 1)
        now_ns = self._clock.now_ns()
        listed = found[:size]
        shards = shards_of(namespace.id, [name for name, _ in listed], self._layout.shards)
        entries = [
            Entry(name, rolled_up_value(namespace, rollup, watermarks[shard], now_ns, self._layout))
            for (name, rollup), shard in zip(listed, shards, strict=True)
        ]
        is_last = len(found) <= size
        return Page(
            entries=entries,
            next_token="" if is_last else _token(namespace, prefix, listed[-1][0]),
            complete_through_ns=self._layout.complete_through_ns(min(watermarks)),
        )

    async def _merged(
        self, namespace: Namespace, prefix: str, after: str, number: int
    ) -> list[tuple[str, Rollup]]:
        """The first `number` counters after a name. Python orders strings as UTF-8 bytes do."""
        buckets = ROLLUP_BUCKETS[namespace.cardinality]
        at_once = min(number, max(_ROWS_PER_BUCKET_MIN, -(-2 * number // buckets)))
        waiting: list[deque[tuple[str, Rollup]]] = [deque() for _ in range(buckets)]
        limit = asyncio.Semaphore(BUCKETS_AT_ONCE_MAX)
        exhausted = [False] * buckets

        async def fetch(bucket: int, after: str) -> None:
            async with limit:
                rows = await self._rollups.page(
                    namespace.id, bucket, prefix=prefix, after=after, limit=at_once
                )
                await asyncio.sleep(0)
            waiting[bucket].extend(rows)
            exhausted[bucket] = len(rows) < at_once

        await asyncio.gather(*(fetch(bucket, after) for bucket in range(buckets)))
        heap = [(rows[0][0], bucket) for bucket, rows in enumerate(waiting) if rows]
        heapq.heapify(heap)
        found: list[tuple[str, Rollup]] = []
        while heap and len(found) < number:
            name, bucket = heapq.heappop(heap)
            found.append(waiting[bucket].popleft())
            if not waiting[bucket] and not exhausted[bucket]:
                await fetch(bucket, name)
            if waiting[bucket]:
                heapq.heappush(heap, (waiting[bucket][0][0], bucket))
        return found


def rolled_up_value(
    namespace: Namespace, rollup: Rollup, watermark: int, now_ns: int, layout: Layout
) -> Value:
    """What GetCount would say if it looked at the rollup alone."""
    complete_through_ns = layout.complete_through_ns(max(watermark, rollup.through_window))
    if namespace.strategy is Strategy.ROLLING_WINDOW:
        return hits(namespace, rollup, complete_through_ns, now_ns, layout, Source.ROLLUP)
    return Value(
        rollup.count, complete_through_ns, rollup.epoch, rollup.cleared_at_ns, Source.ROLLUP
    )


def _token(namespace: Namespace, prefix: str, after: str) -> str:
    raw = _TOKEN_VERSION + _listing_digest(namespace, prefix) + after.encode()
    return base64.urlsafe_b64encode(raw).decode()


def _after(namespace: Namespace, prefix: str, token: str) -> str:
    """The name after which the page begins."""
    try:
        raw = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        after = raw[_TOKEN_HEADER_BYTES:].decode()
    except (binascii.Error, UnicodeError) as error:
        raise _unreadable_token() from error
    if raw[:1] != _TOKEN_VERSION or not after:
        raise _unreadable_token()
    if raw[1:_TOKEN_HEADER_BYTES] != _listing_digest(namespace, prefix):
        raise InvalidRequest(
            "PAGE_MALFORMED",
            "page_token",
            "page_token is of another namespace or prefix: send it with those it came from",
        )
    return after


def _listing_digest(namespace: Namespace, prefix: str) -> bytes:
    return xxh3_64_digest(namespace_prefix(namespace.id) + prefix.encode())


def _unreadable_token() -> InvalidRequest:
    return InvalidRequest(
        "PAGE_MALFORMED",
        "page_token",
        "page_token cannot be read: send one as it was answered, or begin without one",
    )
