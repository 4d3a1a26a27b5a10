"""Membership: who beats is alive, who leaves or falls silent is not."""

import asyncio

from counter.clock import ManualClock
from tests.stores import Stores


async def test_nobody_is_alive_at_first(stores: Stores) -> None:
    assert await stores.membership.live() == []


async def test_members_that_beat_are_alive_and_sorted(stores: Stores) -> None:
    for member in ("worker b", "worker a", "wörker ✓", "worker b"):
        await stores.membership.beat(member, ttl_s=60)
    assert await stores.membership.live() == ["worker a", "worker b", "wörker ✓"]


async def test_who_leaves_is_gone_and_may_come_back(stores: Stores) -> None:
    await stores.membership.beat("a", ttl_s=60)
    await stores.membership.beat("b", ttl_s=60)
    await stores.membership.leave("a")
    await stores.membership.leave("never there")
    assert await stores.membership.live() == ["b"]
    await stores.membership.beat("a", ttl_s=60)
    assert await stores.membership.live() == ["a", "b"]


async def test_who_falls_silent_is_forgotten(stores: Stores, clock: ManualClock) -> None:
    await stores.membership.beat("silent", ttl_s=1)
    await stores.membership.beat("alive", ttl_s=600)
    assert "alive" in await stores.membership.live()
    clock.advance_ms(1_001)  # for stores that live by the tests' clock; others take a second
    while await stores.membership.live() != ["alive"]:  # noqa: ASYNC110 (no event tells)
        await asyncio.sleep(0.05)
