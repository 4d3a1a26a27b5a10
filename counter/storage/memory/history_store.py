from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from counter.clock import NS_PER_MS
from counter.history import Adjustment, HistoryRow
from counter.storage.ports import CounterKey, HistoryKey, HistoryWrite

_step = attrgetter("step")


class MemoryHistoryStore:
    def __init__(self) -> None:
        self._rows: defaultdict[HistoryKey, list[HistoryRow]] = defaultdict(list)  # by step
        self._expires_at_ms: dict[tuple[HistoryKey, int], int] = {}  # by key and step
        self._adjustments: defaultdict[CounterKey, dict[tuple[int, str], Adjustment]]
        self._adjustments = defaultdict(dict)  # then by time and token

    async def write(
        self, rows: Sequence[HistoryWrite], adjustments: Sequence[Adjustment] = ()
    ) -> None:
        for write in rows:
            key, row, _ = write
            self._expires_at_ms[key, row.step] = write.expires_at_ms
            present = self._rows[key]
            at = bisect_left(present, row.step, key=_step)
            written_before = at < len(present) and present[at].step == row.step
            present[at : at + written_before] = [row]
        for each in adjustments:
            of_counter = self._adjustments[each.namespace_id, each.counter]
            of_counter[each.time_ns, each.token] = each

    async def at(self, keys: Sequence[HistoryKey], step: int) -> list[HistoryRow | None]:
        found: list[HistoryRow | None] = []
        for key in keys:
            rows = self._rows.get(key, [])
            end = bisect_right(rows, step, key=_step)
            found.append(rows[end - 1] if end else None)
        return found

    async def between(
        self, key: HistoryKey, from_step: int, to_step: int, *, limit: int
    ) -> list[HistoryRow]:
        rows = self._rows.get(key, [])
        start = bisect_left(rows, from_step, key=_step)
        end = bisect_right(rows, to_step, key=_step)
        return rows[start : min(end, start + limit)]

    async def adjustments(
        self, namespace_id: int, counter: str, from_ns: int, to_ns: int, *, limit: int
    ) -> list[Adjustment]:
        of_counter = self._adjustments.get((namespace_id, counter), {})
        in_order = [each for _, each in sorted(of_counter.items())]
        return [each for each in in_order if from_ns <= each.time_ns <= to_ns][:limit]

    async def drop_expired(self, now_ns: int) -> int:
        now_ms = now_ns // NS_PER_MS
        expired = [each for each, at_ms in self._expires_at_ms.items() if at_ms <= now_ms]
        for key, step in expired:
            del self._expires_at_ms[key, step]
            rows = self._rows[key]
            del rows[bisect_left(rows, step, key=_step)]
            if not rows:
                del self._rows[key]
        return len(expired)
