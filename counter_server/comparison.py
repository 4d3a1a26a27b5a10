"""CompareShadow: what a namespace and its shadow have counted, counter by counter.

Adds go on while counts are read, and none of the two can be read as of a moment. So a difference
that is only adds in flight must be told from one that will stay. An add is in the old count first,
in the shadow's soon after, and never in the shadow's alone. Therefore, where all adds are in both,

    the old count, and then, when writes had time to end, the shadow's, and then the old again

do not get smaller (as long as nobody subtracts): the shadow's is between the two others, and is
taken for equal. Otherwise the nearer of the two others is answered. What is shown as a difference
then is all of the true one where nobody adds in between, and never more than that, as long as the
shadow is fast enough for answers to wait for it. Where it is not, writes of other servers may still
be under way: whoever acts on a difference looks again some seconds later.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from counter.errors import ShadowOff
from counter_server.listing import Listing
from counter_server.strategies.shadow import WAIT_S_MAX, Shadow
from counter_server.strategies.strategy import ANY_FRESHNESS, Strategy

# How long writes of other servers get to end: longer than answers wait for them.
_SETTLE_S = WAIT_S_MAX + 0.25


@dataclass(frozen=True, slots=True)
class ComparedCounter:
    counter: str
    count: int  # of the old strategy
    shadow_count: int

    @property
    def difference(self) -> int:
        """What the shadow lacks; negative: what it has more."""
        return self.count - self.shadow_count


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedPage:
    counters: list[ComparedCounter]
    next_token: str  # empty: this was the last page
    complete_through_ns: int  # every event of the shadow up to here is folded


class Comparison:
    def __init__(self, listing: Listing, *, settle_s: float = _SETTLE_S) -> None:
        self._listing = listing
        self._settle_s = settle_s

    async def page(self, strategy: Strategy, prefix: str, size: int, token: str) -> ComparedPage:
        """A page of the counters that the shadow knows; see `Listing.page`."""
        if not isinstance(strategy, Shadow):
            raise ShadowOff(
                f"namespace {strategy.namespace.name} is in no shadow phase: there is nothing to "
                "compare"
            )
        page = await self._listing.page(strategy.shadow.namespace, prefix, size, token)
        names = [entry.counter for entry in page.entries]
        compared = await self._compared(strategy, names) if names else []
        return ComparedPage(
            counters=compared,
            next_token=page.next_token,
            complete_through_ns=page.complete_through_ns,
        )

    async def _compared(self, strategy: Shadow, names: Sequence[str]) -> list[ComparedCounter]:
        before = await _old_counts(strategy, names)
        shadow = await _shadow_counts(strategy, names)
        found = [ComparedCounter(*each) for each in zip(names, before, shadow, strict=True)]
        again = [at for at, each in enumerate(found) if each.difference]
        if again:
            names = [names[at] for at in again]
            await asyncio.gather(strategy.settled(), asyncio.sleep(self._settle_s))
            shadow = await _shadow_counts(strategy, names)
            after = await _old_counts(strategy, names)
            for at, name, shadow_count, last in zip(again, names, shadow, after, strict=True):
                low, high = sorted((before[at], last))
                count = min(max(shadow_count, low), high)
                found[at] = ComparedCounter(name, count, shadow_count)
        return found


async def _old_counts(strategy: Shadow, names: Sequence[str]) -> list[int]:
    return [value.count for value in await strategy.old.read(names, ANY_FRESHNESS)]


async def _shadow_counts(strategy: Shadow, names: Sequence[str]) -> list[int]:
    return [value.count for value in await strategy.shadow.read_accurately(names)]
