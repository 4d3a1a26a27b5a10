"""Late tokens: events whose window had closed, and what became of them (I7).

Once a window is folded, the fold record names the segments that count; a token is applied if it is
in one of them and is not, for ever, if it is in none. What a folded partition holds never changes,
so a look-up is shared by all who ask, and kept for a while.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum

from cachetools import LRUCache

from counter.background import heard
from counter.clock import Clock
from counter.errors import FoldPending, Overloaded, TallyError, TokenExpired, TokenTooOld
from counter.events import Event
from counter.keys import shards_of
from counter.metrics import LATE_OUTCOMES, LATE_TOKENS
from counter.segments import decode
from counter.storage.ports import EventLog, Ledger
from counter.windows import Layout

LOOKUPS_IN_FLIGHT_MAX = 64  # partitions being read at once; beyond it: RESOURCE_EXHAUSTED
EVENTS_KEPT_MAX = 200_000
_FOLD_POLL_S = 0.1

Partition = tuple[int, int, int]  # namespace id, window, shard
Identity = tuple[str, int, str]  # counter, time, token


def identity(event: Event) -> Identity:
    """What two events agree on if they are one."""
    return event.counter, event.time_ns, event.token


class TokenStatus(Enum):
    PENDING = "pending"
    APPLIED = "applied"
    NOT_APPLIED = "not_applied"


class LateTokens:
    def __init__(self, log: EventLog, ledger: Ledger, layout: Layout, clock: Clock) -> None:
        self._log = log
        self._ledger = ledger
        self._layout = layout
        self._clock = clock
        self._lookups: dict[Partition, asyncio.Task[frozenset[Identity] | None]] = {}
        self._folded: LRUCache[Partition, frozenset[Identity]] = LRUCache(
            EVENTS_KEPT_MAX, getsizeof=lambda identities: len(identities) + 1
        )
        self._counted = {name: LATE_TOKENS.at(outcome=name) for name in LATE_OUTCOMES}

    async def settle(
        self, namespace_id: int, events: Sequence[Event], *, wait_s: float
    ) -> list[bool | TallyError]:
        """Of events of closed windows: True (a duplicate, applied) or the error that says what is.

        Waits up to `wait_s` for folds that are still to come.
        """
        ends_s = asyncio.get_running_loop().time() + wait_s
        by_partition: dict[Partition, list[int]] = {}
        for position, event in enumerate(events):
            by_partition.setdefault(self._partition(namespace_id, event), []).append(position)
        outcomes: list[bool | TallyError] = [False] * len(events)

        async def settle_partition(partition: Partition, positions: list[int]) -> None:
            try:
                identities = await self._wait_for_fold(partition, ends_s)
            except TallyError as error:
                for position in positions:
                    outcomes[position] = error
                return
            for position in positions:
                event = events[position]
                if identity(event) in identities:
                    outcomes[position] = True
                else:
                    outcomes[position] = TokenExpired(
                        "the token came after its window was folded: it was not applied and "
                        "never will be. A new token is safe",
                        server_time_ns=self._clock.now_ns(),
                    )

        await asyncio.gather(*(settle_partition(*each) for each in by_partition.items()))
        for outcome in outcomes:
            self._counted[_outcome_name(outcome)].add()
        return outcomes

    async def status(self, namespace_id: int, event: Event) -> TokenStatus:
        identities = await self._look_up(self._partition(namespace_id, event))
        if identities is None:
            return TokenStatus.PENDING
        if identity(event) in identities:
            return TokenStatus.APPLIED
        return TokenStatus.NOT_APPLIED

    def _partition(self, namespace_id: int, event: Event) -> Partition:
        [shard] = shards_of(namespace_id, [event.counter], self._layout.shards)
        return namespace_id, self._layout.window_of(event.time_ns), shard

    async def _wait_for_fold(self, partition: Partition, ends_s: float) -> frozenset[Identity]:
        time = asyncio.get_running_loop().time
        while True:
            identities = await self._look_up(partition)
            if identities is not None:
                return identities
            left_s = ends_s - time()
            if left_s <= 0:
                raise FoldPending(
                    "the token's window is closed and its fold is still to come: "
                    "retry with the same token",
                    retry_after_ms=int(_FOLD_POLL_S * 1_000),
                )
            await asyncio.sleep(min(_FOLD_POLL_S, left_s))

    async def _look_up(self, partition: Partition) -> frozenset[Identity] | None:
        """The events that count in the partition; None while that is not decided."""
        kept = self._folded.get(partition)
        if kept is not None:
            return kept
        lookup = self._lookups.get(partition)
        if lookup is None:
            if len(self._lookups) >= LOOKUPS_IN_FLIGHT_MAX:
                raise Overloaded(
                    f"{LOOKUPS_IN_FLIGHT_MAX} look-ups of late tokens are under way: "
                    "retry with the same token",
                    retry_after_ms=500,
                )
            lookup = self._lookups[partition] = asyncio.create_task(self._read(partition))
            lookup.add_done_callback(lambda _: self._lookups.pop(partition))
            lookup.add_done_callback(heard)
        # Shielded: one caller that goes away does not end the look-up of the others.
        return await asyncio.shield(lookup)

    async def _read(self, partition: Partition) -> frozenset[Identity] | None:
        namespace_id, window, shard = partition
        if window < self._layout.from_window:
            return frozenset()  # before the store was created, nothing was ever written
        # The watermark first: a record that is missing below it is gone, not still to come.
        watermarks = await self._ledger.watermarks()
        records = await self._ledger.folds(shard, window, window)
        if not records:
            if window <= watermarks[shard]:
                raise self._too_old()
            return None
        refs = [
            ref
            for ref in records[0].segments
            if ref.window == window and ref.namespace_id == namespace_id
        ]
        identities: set[Identity] = set()
        for body in await self._log.bodies(refs):
            if body is None:
                raise self._too_old()
            identities.update(identity(each) for each in decode(body))
        folded = frozenset(identities)
        if len(folded) < EVENTS_KEPT_MAX:
            self._folded[partition] = folded
        return folded

    def _too_old(self) -> TokenTooOld:
        return TokenTooOld(
            "what became of this token is no longer known: it is older than log_retention",
            server_time_ns=self._clock.now_ns(),
        )


def _outcome_name(outcome: bool | TallyError) -> str:
    match outcome:
        case TokenExpired():
            return "expired"
        case TokenTooOld():
            return "too_old"
        case FoldPending():
            return "pending"
        case Overloaded():
            return "overloaded"
        case TallyError():
            return "failed"
    return "duplicate"
