"""Membership: who beats is alive, who leaves or falls silent is not; what it said last is read."""

import asyncio

from counter.clock import ManualClock
from tests.stores import Stores


async def names(stores: Stores) -> list[str]:
    return [member for member, _ in await stores.membership.live()]


async def test_nobody_is_alive_at_first(stores: Stores) -> None:
    assert await stores.membership.live() == []


async def test_members_that_beat_are_alive_and_sorted(stores: Stores) -> None:
    for member in ("worker b", "worker a", "wörker ✓", "worker b"):
        await stores.membership.beat(member, b"", ttl_s=60)
    assert await names(stores) == ["worker a", "worker b", "wörker ✓"]


async def test_each_has_the_report_of_its_last_beat(stores: Stores) -> None:
    every_byte = bytes(range(256)) * 400
    for member, report in (("a", b"old"), ("b", every_byte), ("c", b""), ("a", b"new")):
        await stores.membership.beat(member, report, ttl_s=60)
    assert await stores.membership.live() == [("a", b"new"), ("b", every_byte), ("c", b"")]
    await stores.membership.leave("a")
    await stores.membership.beat("a", b"", ttl_s=60)
    assert (await stores.membership.live())[0] == ("a", b"")


async def test_who_leaves_is_gone_and_may_come_back(stores: Stores) -> None:
    await stores.membership.beat("a", b"", ttl_s=60)
    await stores.membership.beat("b", b"", ttl_s=60)
    await stores.membership.leave("a")
    await stores.membership.leave("never there")
    assert await names(stores) == ["b"]
    await stores.membership.beat("a", b"", ttl_s=60)
    assert await names(stores) == ["a", "b"]


async def test_who_falls_silent_is_forgotten(stores: Stores, clock: ManualClock) -> None:
    await stores.membership.beat("silent", b"", ttl_s=1)
    await stores.membership.beat("alive", b"", ttl_s=600)
    assert "alive" in await names(stores)
    clock.advance_ms(1_001)  # for stores that live by the tests' clock; others take a second
    while await names(stores) != ["alive"]:  # noqa: ASYNC110 (no event tells)
        await asyncio.sleep(0.05)


async def test_groups_do_not_see_each_other(stores: Stores) -> None:
    await stores.membership.beat("a worker", b"its shards", ttl_s=60)
    assert await stores.processes.live() == []
    await stores.processes.beat("a worker", b"its version", ttl_s=60)
    await stores.processes.beat("a server", b"its traffic", ttl_s=60)
    assert await stores.membership.live() == [("a worker", b"its shards")]
    both = [("a server", b"its traffic"), ("a worker", b"its version")]
    assert await stores.processes.live() == both
    await stores.membership.leave("a worker")
    await stores.membership.leave("a server")
    assert await stores.membership.live() == []
    assert await stores.processes.live() == both
