"""Quarantine: an operator's decision that a segment which cannot be read shall not count.

Such a segment stops its shard: what it held may have been acknowledged, so leaving it out silently
would break a promise. The decision is written down here. It takes effect when the next fold record
of the shard says so, and that record is what everybody follows.
"""

import re

import structlog

from counter.clock import Clock
from counter.errors import (
    FoldPending,
    InvalidRequest,
    SegmentAgreed,
    SegmentReadable,
    SegmentUnknown,
    StoreDamaged,
)
from counter.notes import check_note
from counter.rollups import SetAside
from counter.segments import SegmentRef, decode
from counter.storage.ports import FOREVER, EventLog, Ledger
from counter.windows import Layout

_WINDOWS_PER_LOOK = 256
_SEGMENT_ID = re.compile(r"[0-9a-f]{32}", re.IGNORECASE)

log = structlog.get_logger()


class Quarantine:
    def __init__(self, event_log: EventLog, ledger: Ledger, layout: Layout, clock: Clock) -> None:
        self._event_log = event_log
        self._ledger = ledger
        self._layout = layout
        self._clock = clock

    async def set_aside(self, segment_id: str, author: str, reason: str) -> SegmentRef:
        """Writes the decision down; the first one on a segment stays."""
        if not _SEGMENT_ID.fullmatch(segment_id):
            raise InvalidRequest(
                "SEGMENT_MALFORMED",
                "segment_id",
                "segment_id must be 32 hexadecimal digits, as the status of the shard says it",
            )
        check_note(author=author, reason=reason)
        ref = await self._find(bytes.fromhex(segment_id))
        await self._check_unreadable(ref)
        decision = SetAside(ref, author, reason, self._clock.now_ns())
        await self._ledger.set_aside(decision)
        log.warning(
            "a segment is set aside: its events will never count",
            action="segment_set_aside",
            segment_id=segment_id.lower(),
            shard=ref.shard,
            window=ref.window,
            events=ref.event_count,
            author=author,
            reason=reason,
        )
        return ref

    async def _find(self, segment_id: bytes) -> SegmentRef:
        """Among the segments that wait to be folded."""
        named = f"segment {segment_id.hex()}"
        closed_through = (await self._ledger.closed()).through
        for shard, watermark in enumerate(await self._ledger.watermarks()):
            ref = await self._find_in(shard, watermark, closed_through, segment_id)
            if ref is None:
                continue
            if ref.window > closed_through:
                raise FoldPending(
                    f"{named} is in a window that is still open: wait until it is closed",
                    retry_after_ms=self._layout.window_ms,
                )
            for record in await self._ledger.folds(shard, ref.window, ref.window):
                if any(each.segment_id == segment_id for each in record.segments):
                    raise SegmentAgreed(
                        f"{named} is named by a fold record that is agreed on and cannot be "
                        "changed: restore the segment from another replica or a backup"
                    )
            return ref
        raise SegmentUnknown(
            f"{named} is not among those that wait to be folded: check the id; if it is folded by "
            "now there is nothing to decide"
        )

    async def _find_in(
        self, shard: int, watermark: int, closed_through: int, segment_id: bytes
    ) -> SegmentRef | None:
        from_window = watermark + 1
        while True:
            to_window = from_window + _WINDOWS_PER_LOOK - 1
            if to_window >= closed_through:
                to_window = FOREVER  # windows that are open, too: to say so
            for ref in await self._event_log.refs(shard, from_window, to_window):
                if ref.segment_id == segment_id:
                    return ref
            if to_window == FOREVER:
                return None
            from_window = to_window + 1

    async def _check_unreadable(self, ref: SegmentRef) -> None:
        [body] = await self._event_log.bodies([ref])
        try:
            if body is not None:
                decode(body)
        except StoreDamaged:
            return
        named = f"segment {ref.segment_id.hex()} of window {ref.window}, shard {ref.shard}"
        if body is None:
            raise SegmentUnknown(f"{named} has just gone: look at the status of its shard again")
        raise SegmentReadable(
            f"{named} can be read, and its events count: only a segment that cannot be read may "
            "be set aside"
        )
