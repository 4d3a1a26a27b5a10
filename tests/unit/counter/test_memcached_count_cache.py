"""Beyond the contract: what is in a value, how long it lives, and names of any bytes."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counter.clock import NS_PER_MS, ManualClock, SystemClock
from counter.rollups import CachedCount
from counter.settings import COUNTER_NAME_BYTES_MAX
from counter.storage.memcached import MemcachedCountCache, MemcachedServers, MemcachedSettings
from counter.storage.memcached.connection import Reply
from counter.storage.memcached.count_cache import decoded, encoded
from counter.storage.memcached.keys import counter_key
from counter.storage.memcached.servers import Statement
from tests.backends import memcached_server, start_memcached
from tests.memcached_client import PATIENT_MS, ask, connected

VIEWS = (1, "views")
COUNT = CachedCount(7, 1_700_000_000_000_000_000, 1, 2)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80).filter(
    lambda name: len(name.encode()) <= COUNTER_NAME_BYTES_MAX
)


@pytest.fixture
async def servers() -> AsyncIterator[MemcachedServers]:
    async with connected([memcached_server()], prefix=secrets.token_hex(8)) as opened:
        yield opened


def raw_key(servers: MemcachedServers, key: tuple[int, str] = VIEWS) -> bytes:
    return counter_key(f"{servers.prefix}:c:", key)


async def stored(servers: MemcachedServers) -> bytes:
    """The value as memcached has it."""
    [reply] = await servers.ask("get", [b"any"], [b"mg %b v\r\n" % raw_key(servers)])
    assert reply is not None
    return reply[1]


async def poison(servers: MemcachedServers, value: bytes) -> None:
    command = b"ms %b %d T60\r\n%b\r\n" % (raw_key(servers), len(value), value)
    [reply] = await servers.ask("set", [b"any"], [command])
    assert reply == (b"HD", b"")


@given(
    name=NAMES,
    count=st.integers(-(2**200), 2**200),
    stamp_ns=st.integers(-(2**63), 2**63 - 1),
    epoch=st.integers(0, 2**62),
)
def test_a_value_comes_back_as_it_was(name: str, count: int, stamp_ns: int, epoch: int) -> None:
    value = CachedCount(count, stamp_ns, epoch, stamp_ns)
    assert decoded((1, name), encoded((1, name), value, 12)) == (value, 12)
    # Another counter's value, whatever brought it here, is none.
    assert decoded((2, name), encoded((1, name), value, 12)) is None
    assert decoded((1, name + "x"), encoded((1, name), value, 12)) is None


@given(at=st.integers(0, 200), flip=st.integers(1, 255))
def test_a_value_with_one_byte_changed_is_none(at: int, flip: int) -> None:
    value = bytearray(encoded(VIEWS, COUNT, 1_700_000_000_000))
    value[at % len(value)] ^= flip
    assert decoded(VIEWS, bytes(value)) is None


@pytest.mark.parametrize("cut", range(20))
def test_a_value_that_was_cut_is_none(cut: int) -> None:
    assert decoded(VIEWS, encoded(VIEWS, COUNT, 1_700_000_000_000)[:cut]) is None


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x02" + b"x" * 40, b"\r\nEN\r\n", b"0" * 1_000])
async def test_a_poisoned_value_is_a_miss_and_is_replaced(
    servers: MemcachedServers, value: bytes
) -> None:
    cache = MemcachedCountCache(servers)
    await poison(servers, value)
    assert await cache.get([VIEWS]) == [None]
    await cache.put([(VIEWS, COUNT)], ttl_ms=60_000)
    assert await cache.get([VIEWS]) == [COUNT]


async def test_a_value_of_another_version_is_a_miss_and_is_replaced(
    servers: MemcachedServers,
) -> None:
    cache = MemcachedCountCache(servers)
    await cache.put([(VIEWS, COUNT)], ttl_ms=60_000)
    await poison(servers, b"\x02" + (await stored(servers))[1:])
    assert await cache.get([VIEWS]) == [None]
    await cache.put([(VIEWS, COUNT)], ttl_ms=60_000)
    assert await cache.get([VIEWS]) == [COUNT]


@given(names=st.lists(NAMES, min_size=1, max_size=30, unique=True))
@settings(max_examples=60, deadline=None)
def test_names_of_any_bytes_are_kept_apart(names: list[str]) -> None:
    names += [" ", "\r\n", "\0", "a b", "a\nmn", "\u0085", "é" * 128, "x" * 256, "x" * 255]

    async def there_and_back() -> None:
        async with connected([memcached_server()], prefix=secrets.token_hex(8)) as servers:
            cache = MemcachedCountCache(servers)
            items = {
                (number, name): CachedCount(position, 5, 0, 0)
                for number in (1, 2**62)
                for position, name in enumerate(dict.fromkeys(names), start=number)
            }
            await cache.put(list(items.items()), ttl_ms=60_000)
            assert await cache.get(list(items)) == list(items.values())
            assert await cache.get([(3, name) for name in names]) == [None] * len(names)

    asyncio.run(there_and_back())


async def test_two_fleets_on_one_server_do_not_meet(servers: MemcachedServers) -> None:
    await MemcachedCountCache(servers).put([(VIEWS, COUNT)], ttl_ms=60_000)
    for prefix in ("other", servers.prefix + "2", "eu west", "region " * 40):
        async with connected([memcached_server()], prefix=prefix) as others:
            other = MemcachedCountCache(others)
            assert await other.get([VIEWS]) == [None]
            await other.put([(VIEWS, CachedCount(8, 9, 0, 0))], ttl_ms=60_000)
    assert await MemcachedCountCache(servers).get([VIEWS]) == [COUNT]


async def test_clocks_that_differ_move_the_end_and_nothing_else(
    servers: MemcachedServers,
) -> None:
    now_ns = SystemClock().now_ns()
    ahead = MemcachedCountCache(servers, clock=ManualClock(now_ns + 500 * NS_PER_MS))
    behind = MemcachedCountCache(servers, clock=ManualClock(now_ns))
    await behind.put([(VIEWS, COUNT)], ttl_ms=400)
    assert await ahead.get([VIEWS]) == [None]  # half a second ahead: it ended for this one
    assert await behind.get([VIEWS]) == [COUNT]
    await behind.put([(VIEWS, COUNT)], ttl_ms=600)
    assert await ahead.get([VIEWS]) == [COUNT]


async def test_memcached_forgets_whatever_the_clocks_say(servers: MemcachedServers) -> None:
    stopped = MemcachedCountCache(servers, clock=ManualClock())
    await stopped.put([(VIEWS, COUNT)], ttl_ms=1)
    while await stopped.get([VIEWS]) == [COUNT]:  # noqa: ASYNC110 (the test's time limit ends it)
        await asyncio.sleep(0.05)
    assert await stopped.get([VIEWS]) == [None]


async def test_of_the_same_key_twice_in_one_put_the_newest_stays(
    servers: MemcachedServers,
) -> None:
    cache = MemcachedCountCache(servers)
    older, newer = CachedCount(1, 10, 0, 0), CachedCount(2, 11, 0, 0)
    await cache.put([(VIEWS, newer), (VIEWS, older)], ttl_ms=60_000)
    assert await cache.get([VIEWS]) == [newer]


class Interrupted(MemcachedServers):
    """Lets somebody else do something between reading a present value and replacing it."""

    meanwhile: Coroutine[Any, Any, None]

    async def ask(
        self, statement: Statement, routes: Sequence[bytes], commands: Sequence[bytes]
    ) -> list[Reply | None]:
        if statement == "set":
            await self.meanwhile
        return await super().ask(statement, routes, commands)


async def test_who_writes_meanwhile_is_not_overwritten(servers: MemcachedServers) -> None:
    older, newer, newest = (CachedCount(stamp * 3, stamp, 0, 0) for stamp in (10, 11, 12))
    name = memcached_server().address
    slow = Interrupted(
        MemcachedSettings(servers=(name,), prefix=servers.prefix, timeout_ms=PATIENT_MS)
    )
    await slow.start()
    cache = MemcachedCountCache(servers)
    await cache.put([(VIEWS, older)], ttl_ms=60_000)
    slow.meanwhile = cache.put([(VIEWS, newest)], ttl_ms=60_000)
    await MemcachedCountCache(slow).put([(VIEWS, newer)], ttl_ms=60_000)
    assert await cache.get([VIEWS]) == [newest]
    await slow.close()


async def test_many_writers_at_once_leave_a_whole_value(servers: MemcachedServers) -> None:
    counts = [CachedCount(stamp * 3, stamp, stamp, 0) for stamp in range(1, 101)]
    Random(1).shuffle(counts)
    async with connected([memcached_server()], prefix=servers.prefix) as others:
        caches = [MemcachedCountCache(each) for each in (servers, others)]
        await asyncio.gather(
            *(
                caches[at % 2].put([(VIEWS, count)], ttl_ms=60_000)
                for at, count in enumerate(counts)
            )
        )
        assert (await caches[0].get([VIEWS]))[0] in counts


async def test_thousands_of_keys_in_one_call(servers: MemcachedServers) -> None:
    cache = MemcachedCountCache(servers)
    items = [((1, f"c{at}"), CachedCount(at, at, 0, 0)) for at in range(25_000)]
    await cache.put(items, ttl_ms=60_000)
    found = await cache.get([key for key, _ in items])
    assert found == [count for _, count in items]


async def test_after_a_flush_everything_is_a_miss(servers: MemcachedServers) -> None:
    server = start_memcached()
    try:
        async with connected([server]) as flushed:
            cache = MemcachedCountCache(flushed)
            await cache.put([(VIEWS, COUNT)], ttl_ms=60_000)
            ask(server, b"flush_all\r\n")
            assert await cache.get([VIEWS]) == [None]
    finally:
        server.kill()


@pytest.mark.parametrize("options", [("-m", "2"), ("-m", "2", "-M")], ids=["evicts", "refuses"])
async def test_a_full_server_loses_entries_and_nothing_else(options: tuple[str, ...]) -> None:
    server = start_memcached(*options)
    try:
        async with connected([server]) as servers:
            cache = MemcachedCountCache(servers)
            items = [
                ((1, f"counter {at} {'x' * 200}"), CachedCount(at, at, 0, 0))
                for at in range(60_000)
            ]
            await cache.put(items, ttl_ms=60_000)
            found = await cache.get([key for key, _ in items])
            there = [(each, count) for each, (_, count) in zip(found, items, strict=True) if each]
            assert 0 < len(there) < len(items)
            assert all(each == count for each, count in there)
            assert servers.problem() is None
    finally:
        server.kill()
