"""Reads fold records and their segments again, in pieces of bounded size."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from counter.clock import NS_PER_S, Clock
from counter.digest import Digest, differ
from counter.errors import StoreDamaged
from counter.events import Event
from counter.fold import adjustments
from counter.rollups import FoldRecord
from counter.segments import SegmentRef, decode, slices
from counter.settings import Platform
from counter.storage.ports import FOREVER, EventLog, Ledger
from counter.windows import Layout
from rollup_worker.audit.values import Difference, DifferenceKind

_WINDOWS_PER_LOOK = 512
_EVENTS_PER_SLICE = 2_000
# An audit begins with segments that will be kept for this long still, or a part of log_retention.
_MARGIN_NS_MAX = 60 * NS_PER_S
_MARGIN_OF_RETENTION = 20

GiveWay = Callable[[], Awaitable[None]]


async def give_way() -> None:
    """Lets other work of the process in, between two slices."""
    await asyncio.sleep(0)


class ReadSegment(NamedTuple):
    ref: SegmentRef
    body: bytes
    events: list[Event]


@dataclass(frozen=True, slots=True)
class Unread:
    """A segment that a record names and that cannot be read."""

    ref: SegmentRef
    message: str
    is_lost: bool  # it should be there; else it was simply too old


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordCheck:
    """A record against its segments as they are now."""

    record: FoldRecord
    events: int
    digest: bytes
    unread: tuple[Unread, ...]

    def differences(self) -> list[Difference]:
        """None for segments that are gone because they are old."""
        record = self.record
        found = [difference_of(each) for each in self.unread if each.is_lost]
        if not self.unread and (
            self.events != record.event_count or differ(record.digest, self.digest)
        ):
            found.append(
                Difference(
                    kind=DifferenceKind.SEGMENTS,
                    from_window=record.from_window,
                    to_window=record.to_window,
                    expected=record.event_count,
                    actual=self.events,
                    message=f"the segments of shard {record.shard} have {self.events} events with "
                    f"digest {self.digest.hex()}; their fold record says {record.event_count} "
                    f"with digest {record.digest.hex() or 'unknown'}",
                )
            )
        return found


def difference_of(unread: Unread) -> Difference:
    ref = unread.ref
    return Difference(
        kind=DifferenceKind.SEGMENTS,
        from_window=ref.window,
        to_window=ref.window,
        expected=ref.event_count,
        actual=0,
        message=unread.message,
    )


class AuditLog:
    def __init__(
        self, event_log: EventLog, ledger: Ledger, layout: Layout, platform: Platform, clock: Clock
    ) -> None:
        self._event_log = event_log
        self._ledger = ledger
        self._layout = layout
        self._retention_ns = platform.log_retention_ns
        self._grace_ns = platform.close_grace_ns
        self._clock = clock

    def kept_from(self, *, margin: bool = False) -> int:
        """The first window whose segments must be there.

        A store may count retention from when a segment was written, which is at most the time for
        closing before its window. `margin`: and must still be there in a minute.
        """
        spare_ns = min(_MARGIN_NS_MAX, self._retention_ns // _MARGIN_OF_RETENTION) if margin else 0
        kept_ns = self._clock.now_ns() - self._retention_ns + self._grace_ns + spare_ns
        return max(self._layout.from_window, self._layout.window_of(kept_ns) + 1)

    async def records(
        self, shard: int, from_window: int, to_window: int
    ) -> AsyncIterator[FoldRecord]:
        """Those that touch the windows, in order."""
        while from_window <= to_window:
            looked_to = min(to_window, from_window + _WINDOWS_PER_LOOK - 1)
            found = await self._ledger.folds(shard, from_window, looked_to)
            for record in found:
                yield record
            from_window = max([looked_to, *(record.to_window for record in found)]) + 1

    async def segments(
        self, refs: Sequence[SegmentRef], give_way: GiveWay = give_way
    ) -> AsyncIterator[ReadSegment | Unread]:
        for slice_ in slices(refs, events_max=_EVENTS_PER_SLICE):
            for ref, body in zip(slice_, await self._event_log.bodies(slice_), strict=True):
                yield self._decoded(ref, body)
            await give_way()

    async def check(
        self,
        record: FoldRecord,
        *,
        seen: Callable[[int, Sequence[Event]], None] | None = None,
        give_way: GiveWay = give_way,
    ) -> RecordCheck:
        """Reads all segments of the record again; `seen` gets their namespace ids and events."""
        digest, events = Digest(), 0
        unread: list[Unread] = []
        async for found in self.segments(record.segments, give_way):
            if isinstance(found, Unread):
                unread.append(found)
            else:
                digest.add(found.ref.namespace_id, found.body)
                events += len(found.events)
                if seen is not None:
                    seen(found.ref.namespace_id, found.events)
        return RecordCheck(
            record=record, events=events, digest=digest.value(), unread=tuple(unread)
        )

    async def pending_adjustments(
        self, shard: int, namespace_id: int, counter: str, after_window: int
    ) -> list[Event]:
        """The counter's adjustments in segments that are not folded yet, each once."""
        refs = await self._event_log.refs(shard, after_window + 1, FOREVER)
        of_namespace = [ref for ref in refs if ref.namespace_id == namespace_id]
        events: list[Event] = []
        async for found in self.segments(of_namespace):
            if not isinstance(found, Unread):
                events += [event for event in found.events if event.counter == counter]
        return adjustments(events)

    async def late_segments(self, record: FoldRecord) -> int:
        """Segments of the record's windows that came too late to be named by it."""
        known = {ref.segment_id for ref in record.segments}
        known |= {each.segment.segment_id for each in record.set_aside}
        late, from_window = 0, record.from_window
        while from_window <= record.to_window:
            to_window = min(record.to_window, from_window + _WINDOWS_PER_LOOK - 1)
            refs = await self._event_log.refs(record.shard, from_window, to_window)
            late += sum(ref.segment_id not in known for ref in refs)
            from_window = to_window + 1
        return late

    def _decoded(self, ref: SegmentRef, body: bytes | None) -> ReadSegment | Unread:
        named = f"segment {ref.segment_id.hex()} of window {ref.window}, shard {ref.shard}"
        if body is None:
            # Asked now, not when the audit began: it may take long.
            is_lost = ref.window >= self.kept_from()
            return Unread(ref, f"{named} is named by its fold record but gone", is_lost)
        try:
            return ReadSegment(ref, body, decode(body))
        except StoreDamaged as error:
            return Unread(ref, f"{named} cannot be read: {error.message}", True)
