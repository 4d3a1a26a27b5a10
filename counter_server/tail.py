"""The tail: events that are written but not folded yet, for accurate reads.

A tail read lists the segments after the watermark and fetches the bodies that are new. It serves
all calls that arrived before it began: while one is under way, calls gather for the next. What was
decoded is kept by window until it is folded, up to a number of events; beyond that, segments are
decoded again in each read that needs them.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from counter.background import heard
from counter.events import Event
from counter.metrics import TAIL_EVENTS_KEPT, TAIL_READ_SECONDS, TAIL_SEGMENTS_FETCHED
from counter.rollups import FoldRecord
from counter.segments import SegmentRef, unfolded_events
from counter.storage.ports import FOREVER, CounterKey, EventLog, Ledger

EVENTS_KEPT_MAX = 500_000
_SEGMENTS_PER_FETCH = 64

# The events of one counter in one window, each with the id of its segment.
_Found = list[tuple[bytes, Event]]


@dataclass(slots=True)
class _KeptWindow:
    events: int = 0
    segment_ids: set[bytes] = field(default_factory=set)
    found: defaultdict[CounterKey, _Found] = field(default_factory=lambda: defaultdict(list))


class TailView:
    """What one tail read saw of some counters."""

    def __init__(self, records: list[FoldRecord]) -> None:
        self.recorded_through = records[-1].to_window if records else None
        # Of a recorded window only the segments that its record names count.
        self._named = [
            (each.from_window, each.to_window, {ref.segment_id for ref in each.segments})
            for each in records
        ]
        self._found: defaultdict[CounterKey, dict[int, _Found]] = defaultdict(dict)

    def events_after(self, window: int, key: CounterKey) -> list[Event]:
        """The counter's events of later windows, ready for the fold."""
        events: list[Event] = []
        for of_window, found in self._found.get(key, {}).items():
            if of_window > window:
                found.sort(key=lambda each: each[0])  # stable: the order within a segment stays
                events.extend(event for _, event in found)
        return events

    def counts(self, ref: SegmentRef) -> bool:
        """Of a recorded window only what its record names: what came late, or was set aside
        because it cannot be read, is left alone."""
        return all(
            ref.segment_id in segment_ids
            for from_window, to_window, segment_ids in self._named
            if from_window <= ref.window <= to_window
        )

    def add(self, window: int, key: CounterKey, found: Iterable[tuple[bytes, Event]]) -> None:
        counted = self._counted(window, found)
        if counted:
            self._found[key].setdefault(window, []).extend(counted)

    def _counted(self, window: int, found: Iterable[tuple[bytes, Event]]) -> _Found:
        for from_window, to_window, segment_ids in self._named:
            if from_window <= window <= to_window:
                return [each for each in found if each[0] in segment_ids]
        return list(found)


@dataclass(slots=True)
class _NextRead:
    after_window: int
    keys: set[CounterKey]
    view: "asyncio.Future[TailView]"


class Tail:
    """One per server, for all shards."""

    def __init__(self, log: EventLog, ledger: Ledger, *, shards: int) -> None:
        self._log = log
        self._ledger = ledger
        self._kept: list[dict[int, _KeptWindow]] = [{} for _ in range(shards)]
        self._kept_events = 0
        self._next: list[_NextRead | None] = [None] * shards
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._read_seconds = TAIL_READ_SECONDS.at()
        self._segments_fetched = TAIL_SEGMENTS_FETCHED.at()
        TAIL_EVENTS_KEPT.at().watch(self, lambda tail: tail._kept_events)

    async def read(self, shard: int, after_window: int, keys: set[CounterKey]) -> TailView:
        """The tail after `after_window`, from a read that begins after this call."""
        following = self._next[shard]
        if following is None:
            view = asyncio.get_running_loop().create_future()
            view.add_done_callback(heard)
            following = self._next[shard] = _NextRead(after_window, set(keys), view)
            if shard not in self._reading:
                self._reading[shard] = asyncio.create_task(self._read_while_asked(shard))
        else:
            following.after_window = min(following.after_window, after_window)
            following.keys |= keys
        return await asyncio.shield(following.view)

    async def _read_while_asked(self, shard: int) -> None:
        try:
            while (asked := self._next[shard]) is not None:
                self._next[shard] = None
                try:
                    with self._read_seconds.timed():
                        view = await self._read(shard, asked.after_window, asked.keys)
                    asked.view.set_result(view)
                except Exception as error:
                    asked.view.set_exception(error)
        finally:
            del self._reading[shard]

    async def _read(self, shard: int, after_window: int, keys: set[CounterKey]) -> TailView:
        records = await self._ledger.folds(shard, after_window + 1, FOREVER)
        refs = await self._log.refs(shard, after_window + 1, FOREVER)
        view = TailView(records)
        kept = self._kept[shard]
        for window in [each for each in kept if each <= after_window]:
            self._kept_events -= kept.pop(window).events
        new = [
            ref
            for ref in refs
            if view.counts(ref)
            and (ref.window not in kept or ref.segment_id not in kept[ref.window].segment_ids)
        ]
        async for ref, events in self._decoded(new):
            if self._kept_events + ref.event_count <= EVENTS_KEPT_MAX:
                self._keep(kept.setdefault(ref.window, _KeptWindow()), ref, events)
                continue
            for event in events:
                key = (ref.namespace_id, event.counter)
                if key in keys:
                    view.add(ref.window, key, [(ref.segment_id, event)])
        for window, of_window in kept.items():
            for key in keys & of_window.found.keys():
                view.add(window, key, of_window.found[key])
        return view

    async def _decoded(
        self, refs: list[SegmentRef]
    ) -> AsyncIterator[tuple[SegmentRef, list[Event]]]:
        for start in range(0, len(refs), _SEGMENTS_PER_FETCH):
            fetched = refs[start : start + _SEGMENTS_PER_FETCH]
            self._segments_fetched.add(len(fetched))
            for ref, body in zip(fetched, await self._log.bodies(fetched), strict=True):
                yield ref, unfolded_events(ref, body)

    def _keep(self, window: _KeptWindow, ref: SegmentRef, events: list[Event]) -> None:
        window.segment_ids.add(ref.segment_id)
        window.events += len(events)
        self._kept_events += len(events)
        for event in events:
            window.found[ref.namespace_id, event.counter].append((ref.segment_id, event))
