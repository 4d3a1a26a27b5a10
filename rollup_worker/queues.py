"""What waits to be folded: one entry per shard, however much has piled up.

Windows that close while a shard waits are merged into its entry ("closed through W"), and one pass
takes as many of them as fit. So memory does not grow with the backlog, and its depth is known: the
closed windows after the watermark.

The shard with the oldest unfolded window goes first: it is the one that decides how old the oldest
answers are, and how close the log is to being forgotten unfolded (I8).

Windows of all shards close at the same moment. A worker that keeps up folds one shard after the
other then: all at once would be done a little sooner, and every so many seconds would take the
store away from those who add. Only shards that are behind are folded at once.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# A shard that keeps up has one closed window to fold, until its turn comes.
_BEHIND_WINDOWS = 2


class Turn(NamedTuple):
    """A shard's turn to be folded."""

    shard: int
    closed_through: int


@dataclass(slots=True)
class _Entry:
    closed_through: int
    watermark: int  # as last known
    # A pass found nothing left to do up to here: more must close before the next one.
    done_through: int = -1
    is_folding: bool = False
    not_before_s: float = 0.0

    @property
    def is_waiting(self) -> bool:
        return not self.is_folding and self._windows > 0

    @property
    def is_behind(self) -> bool:
        return self._windows >= _BEHIND_WINDOWS

    @property
    def _windows(self) -> int:
        return self.closed_through - max(self.watermark, self.done_through)


class Queues:
    def __init__(
        self, *, passes_max: int, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`passes_max`: turns given out at once, to shards that are behind; change it with
        `allow`."""
        self._passes_max = passes_max
        self._monotonic_s = monotonic_s
        self._entries: dict[int, _Entry] = {}
        self._owned: frozenset[int] = frozenset()
        self._folding = 0
        self._closed = False
        self._changed = asyncio.Event()

    # What there is to do.

    def offer(
        self, shards: Collection[int], closed_through: int, watermarks: Sequence[int]
    ) -> None:
        """These shards, and no others, are to be folded up to `closed_through`.

        Neither mark goes back: what is known already stays if it is more.
        """
        self._owned = frozenset(shards)
        for shard in [each for each in self._entries if each not in self._owned]:
            self._forget(shard)
        for shard in self._owned:
            entry = self._entries.get(shard)
            if entry is None:
                self._entries[shard] = _Entry(closed_through, watermarks[shard])
            else:
                entry.closed_through = max(entry.closed_through, closed_through)
                entry.watermark = max(entry.watermark, watermarks[shard])
        self._changed.set()

    def allow(self, passes_max: int) -> None:
        """Turns under way are not taken back when it shrinks."""
        assert passes_max > 0, passes_max
        self._passes_max = passes_max
        self._changed.set()

    def close(self) -> None:
        """No turn is given out any more; `take` answers None."""
        self._closed = True
        self._changed.set()

    # Turns.

    async def take(self) -> Turn | None:
        """The next turn, as soon as there is one; None when the queues are closed.

        Every turn ends with `finish` or `rest`.
        """
        while not self._closed:
            turn = self.pick()
            if turn is not None:
                return turn
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), self._seconds_to_wait())
            except TimeoutError:
                pass  # a shard has rested long enough
        return None

    def pick(self) -> Turn | None:
        """The next turn, if there is one now."""
        if self._closed:
            return None
        now_s = self._monotonic_s()
        ready = [
            (self._entries[shard].watermark, shard)
            for shard in self._may_begin()
            if self._entries[shard].not_before_s <= now_s
        ]
        if not ready:
            return None
        _, shard = min(ready)
        entry = self._entries[shard]
        entry.is_folding = True
        self._folding += 1
        return Turn(shard, entry.closed_through)

    def finish(self, turn: Turn, *, folded_through: int, has_more: bool) -> None:
        """Ends a turn. Without `has_more` the shard waits until more windows close."""
        entry = self._end(turn)
        entry.watermark = max(entry.watermark, folded_through)
        if not has_more:
            entry.done_through = max(entry.done_through, turn.closed_through)
        entry.not_before_s = 0.0

    def rest(self, turn: Turn, seconds: float) -> None:
        """Ends a turn that failed: the shard has no other for so long."""
        self._end(turn).not_before_s = self._monotonic_s() + seconds

    # What there is to know.

    def depth(self, shard: int) -> int | None:
        """Closed windows of the shard that are not folded; None if it is not to be folded here."""
        entry = self._entries.get(shard)
        if entry is None or shard not in self._owned:
            return None
        return max(0, entry.closed_through - entry.watermark)

    def resting(self) -> int:
        """How many shards wait because their last pass failed."""
        now_s = self._monotonic_s()
        return sum(entry.not_before_s > now_s for entry in list(self._entries.values()))

    def _may_begin(self) -> list[int]:
        """The shards that wait and could be folded now, but for their rest."""
        if self._folding >= self._passes_max:
            return []
        return [
            shard
            for shard, entry in self._entries.items()
            if entry.is_waiting and (entry.is_behind or not self._folding)
        ]

    def _end(self, turn: Turn) -> _Entry:
        entry = self._entries[turn.shard]
        assert entry.is_folding, turn
        entry.is_folding = False
        self._folding -= 1
        if turn.shard not in self._owned:  # another worker's by now
            self._forget(turn.shard)
        self._changed.set()
        return entry

    def _forget(self, shard: int) -> None:
        """One that is being folded stays until its turn ends."""
        if not self._entries[shard].is_folding:
            del self._entries[shard]

    def _seconds_to_wait(self) -> float | None:
        """Until a shard has rested long enough; None if that would change nothing."""
        ends_s = [self._entries[shard].not_before_s for shard in self._may_begin()]
        return max(0.0, min(ends_s) - self._monotonic_s()) if ends_s else None
