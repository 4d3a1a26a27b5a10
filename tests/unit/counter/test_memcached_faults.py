"""Memcached servers that die, hang, trickle and come back: real ones, and some that are none."""

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs

from counter.errors import StoreUnavailable
from counter.metrics import STORE_ERRORS
from counter.rollups import CachedCount
from counter.storage.memcached import (
    MemcachedBestEffortCounters,
    MemcachedCountCache,
    MemcachedServers,
    MemcachedSettings,
)
from counter.storage.ports import BestEffortAdd
from tally.dev.memcached import Memcached
from tests.backends import start_memcached
from tests.memcached_client import ask, connected

KEYS = [(1, f"c{at}") for at in range(300)]
COUNTS = [CachedCount(at, 10 + at, 0, 0) for at in range(300)]
ITEMS = list(zip(KEYS, COUNTS, strict=True))
ADDS = [BestEffortAdd(key, 1, None) for key in KEYS]
MISSES = [None] * len(KEYS)
# Short enough for a test that waits for it, long enough for a busy machine.
TIMEOUT_MS = 300


@pytest.fixture
def three() -> Iterator[list[Memcached]]:
    servers = [start_memcached() for _ in range(3)]
    yield servers
    for server in servers:
        server.resume()
        server.kill()


@pytest.fixture
def one(three: list[Memcached]) -> Memcached:
    return three[0]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (the test's time limit ends it)
        await asyncio.sleep(0.005)


def timeouts() -> int:
    return STORE_ERRORS.at(store="memcached", kind="timeout").value


def connections_of(server: Memcached) -> int:
    [line] = [each for each in ask(server, b"stats\r\n").split(b"\r\n") if b"curr_conn" in each]
    return int(line.split()[-1])


async def test_a_start_without_any_server_serves_misses_and_takes_them_up_later(
    one: Memcached,
) -> None:
    one.kill()
    with capture_logs() as logs:
        async with connected([one]) as servers:
            cache, counters = MemcachedCountCache(servers), MemcachedBestEffortCounters(servers)
            assert one.address in str(servers.problem())
            await cache.put(ITEMS, ttl_ms=60_000)
            assert await cache.get(KEYS) == MISSES
            outcomes = await counters.apply(ADDS, dedupe_ttl_ms=0)
            assert all(isinstance(each, StoreUnavailable) for each in outcomes)
            one.start()
            await until(lambda: servers.problem() is None)
            await cache.put(ITEMS, ttl_ms=60_000)
            assert await cache.get(KEYS) == COUNTS
    assert [each["action"] for each in logs] == ["memcached_ejected", "memcached_back"]


async def test_a_killed_server_is_a_miss_and_is_taken_back(one: Memcached) -> None:
    with capture_logs() as logs:
        async with connected([one]) as servers:
            cache = MemcachedCountCache(servers)
            before = timeouts()
            for _ in range(3):
                await cache.put(ITEMS, ttl_ms=60_000)
                assert await cache.get(KEYS) == COUNTS
                one.kill()
                assert await cache.get(KEYS) == MISSES
                await cache.put(ITEMS, ttl_ms=60_000)
                await until(lambda: servers.problem() is not None)
                assert await cache.get(KEYS) == MISSES
                one.start()
                await until(lambda: servers.problem() is None)
                assert await cache.get(KEYS) == MISSES  # it lost everything
            assert timeouts() == before  # nobody waited: a lost connection is noticed at once
    assert [each["action"] for each in logs] == ["memcached_ejected", "memcached_back"] * 3
    assert {each["server"] for each in logs} == {one.address}


@pytest.mark.parametrize("connections", [1, 3])
async def test_a_hung_server_slows_down_few_calls_and_is_taken_back(
    one: Memcached, connections: int
) -> None:
    with capture_logs() as logs:
        async with connected(
            [one], timeout_ms=TIMEOUT_MS, connections_per_server=connections
        ) as servers:
            cache = MemcachedCountCache(servers)
            await cache.put(ITEMS, ttl_ms=60_000)
            before = timeouts()
            one.pause()
            calls = 0
            while servers.problem() is None:
                assert await cache.get(KEYS[:5]) == [None] * 5
                calls += 1
            assert calls <= connections
            assert "within the time limit" in str(servers.problem())
            for _ in range(500):
                assert await cache.get(KEYS[:5]) == [None] * 5
            assert timeouts() - before == calls  # the 500 did not wait
            one.resume()
            await until(lambda: servers.problem() is None)
            assert await cache.get(KEYS) == COUNTS  # it had them all the time
    assert [each["action"] for each in logs] == ["memcached_ejected", "memcached_back"]


async def test_it_is_logged_once_however_often_it_is_tried(one: Memcached) -> None:
    tried = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tried
        tried += 1
        writer.close()

    with capture_logs() as logs:
        async with connected([one]) as servers:
            one.kill()
            host, port = one.address.split(":")
            async with await asyncio.start_server(refuse, host, int(port)):
                await until(lambda: tried >= 3)
            one.start()
            await until(lambda: servers.problem() is None)
    assert [each["action"] for each in logs] == ["memcached_ejected", "memcached_back"]


async def test_calls_at_once_wait_for_a_hung_server_together(one: Memcached) -> None:
    async with connected([one], timeout_ms=TIMEOUT_MS) as servers:
        cache = MemcachedCountCache(servers)
        await cache.put(ITEMS, ttl_ms=60_000)
        one.pause()
        calls = [asyncio.create_task(cache.get(KEYS[:1])) for _ in range(200)]
        await until(lambda: servers.problem() is not None)
        await asyncio.sleep(0)
        assert all(call.done() for call in calls)
        assert [call.result() for call in calls] == [[None]] * 200


@pytest.mark.parametrize("how", ["killed", "hung"])
async def test_without_one_of_three_the_others_serve_and_nothing_moves(
    three: list[Memcached], how: str
) -> None:
    async with connected(three, timeout_ms=TIMEOUT_MS) as servers:
        cache, counters = MemcachedCountCache(servers), MemcachedBestEffortCounters(servers)
        await cache.put(ITEMS, ttl_ms=60_000)
        assert await cache.get(KEYS) == COUNTS
        assert await counters.apply(ADDS, dedupe_ttl_ms=0) == [(1, False)] * len(ADDS)
        if how == "killed":
            three[1].kill()
        else:
            three[1].pause()
        await cache.get(KEYS)
        await until(lambda: servers.problem() is not None)
        assert three[1].address in str(servers.problem())

        lost = [each is None for each in await cache.get(KEYS)]
        assert 50 < sum(lost) < 150
        for (key, count), gone in zip(ITEMS, lost, strict=True):
            assert await cache.get([key]) == [None if gone else count]
        # Neither side of the others' keys moved, and these are not put elsewhere.
        await cache.put(ITEMS, ttl_ms=60_000)
        assert [each is None for each in await cache.get(KEYS)] == lost

        outcomes = await counters.apply(ADDS, dedupe_ttl_ms=0)
        away = [isinstance(each, StoreUnavailable) for each in outcomes]
        assert 50 < sum(away) < 150
        assert [each for each in outcomes if not isinstance(each, StoreUnavailable)] == [
            (2, False)
        ] * away.count(False)
        there = [key for key, gone in zip(KEYS, away, strict=True) if not gone]
        assert await counters.read(there) == [2] * len(there)
        with pytest.raises(StoreUnavailable, match=three[1].address):
            await counters.read(KEYS)  # not a 0 among them

        if how == "killed":
            three[1].start()
        else:
            three[1].resume()
        await until(lambda: servers.problem() is None)
        await cache.put(ITEMS, ttl_ms=60_000)
        assert await cache.get(KEYS) == COUNTS


async def test_an_add_that_was_not_answered_is_not_acknowledged(one: Memcached) -> None:
    async with connected([one], timeout_ms=TIMEOUT_MS) as servers:
        counters = MemcachedBestEffortCounters(servers)
        assert await counters.apply(ADDS[:1], dedupe_ttl_ms=0) == [(1, False)]
        one.pause()
        [outcome] = await counters.apply(ADDS[:1], dedupe_ttl_ms=0)
        assert isinstance(outcome, StoreUnavailable)
        with pytest.raises(StoreUnavailable):
            await counters.read(KEYS[:1])
        one.resume()
        await until(lambda: servers.problem() is None)
        # It lay in the server's socket: it may be counted in the end, as its caller was told.
        [count] = await counters.read(KEYS[:1])
        assert count in (1, 2)


async def test_a_busy_process_does_not_take_its_server_for_dead(one: Memcached) -> None:
    async with connected([one], timeout_ms=TIMEOUT_MS) as servers:
        cache = MemcachedCountCache(servers)
        await cache.put(ITEMS, ttl_ms=60_000)
        for _ in range(3):
            asked = asyncio.create_task(cache.get(KEYS))
            await asyncio.sleep(0)  # it is under way
            time.sleep(4 * TIMEOUT_MS / 1_000)  # noqa: ASYNC251 (the loop stands still)
            assert await asked == COUNTS
        assert servers.problem() is None


async def test_a_server_that_trickles_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"mn\r\n"
        writer.write(b"MN\r\n")
        while await reader.readline():
            writer.write(b"EN\r\n")  # one of hundreds of answers, and the next one in a while
            await asyncio.sleep(0.01)
        writer.close()

    trickling = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = trickling.sockets[0].getsockname()[1]
    async with trickling:
        settings = MemcachedSettings(
            servers=(f"127.0.0.1:{port}",), timeout_ms=50, probe_interval_ms=60_000
        )
        servers = MemcachedServers(settings)
        await servers.start()
        assert await MemcachedCountCache(servers).get(KEYS) == MISSES
        await until(lambda: servers.problem() is not None)
        assert "too slowly" in str(servers.problem())
        await servers.close()


async def test_more_than_fits_is_refused_and_not_queued(one: Memcached) -> None:
    async with connected([one]) as servers:
        cache = MemcachedCountCache(servers)
        await cache.put(ITEMS, ttl_ms=60_000)
        keys = KEYS * 30
        found = await asyncio.gather(*(cache.get(keys) for _ in range(12)))
        answered = [None not in each for each in found]
        assert True in answered
        assert False in answered
        assert servers.problem() is None
        assert await cache.get(KEYS) == COUNTS


async def test_a_caller_that_goes_away_does_not_mix_up_the_others(one: Memcached) -> None:
    async with connected([one]) as servers:
        cache = MemcachedCountCache(servers)
        await cache.put(ITEMS, ttl_ms=60_000)
        for at in range(100):
            gone = asyncio.create_task(cache.get(KEYS[at : at + 3]))
            stays = asyncio.create_task(cache.get(KEYS[at + 100 : at + 102]))
            await asyncio.sleep(0)
            gone.cancel()
            assert await stays == COUNTS[at + 100 : at + 102]


async def test_a_close_leaves_nothing_behind(one: Memcached) -> None:
    before = asyncio.all_tasks()
    alone = connections_of(one)
    async with connected([one], connections_per_server=3) as servers:
        await until(lambda: connections_of(one) == alone + 3)
        cache = MemcachedCountCache(servers)
        under_way = asyncio.create_task(cache.get(KEYS))
        await asyncio.sleep(0)
    assert await under_way == MISSES
    assert await cache.get(KEYS) == MISSES
    assert asyncio.all_tasks() == before
    await until(lambda: connections_of(one) == alone)


async def test_a_name_with_several_addresses(one: Memcached) -> None:
    """localhost is ::1 and 127.0.0.1 on most machines, and memcached is only at the latter."""
    name = f"localhost:{one.address.split(':')[1]}"
    assert socket.gethostbyname("localhost") == "127.0.0.1"
    servers = MemcachedServers(MemcachedSettings(servers=(name,), timeout_ms=5_000))
    await servers.start()
    cache = MemcachedCountCache(servers)
    await cache.put(ITEMS, ttl_ms=60_000)
    assert await cache.get(KEYS) == COUNTS
    await servers.close()


@pytest.mark.parametrize(
    "scenario",
    [
        test_a_killed_server_is_a_miss_and_is_taken_back,
        partial(test_a_hung_server_slows_down_few_calls_and_is_taken_back, connections=1),
        test_a_busy_process_does_not_take_its_server_for_dead,
        test_a_caller_that_goes_away_does_not_mix_up_the_others,
        test_a_close_leaves_nothing_behind,
    ],
    ids=["killed", "hung", "busy", "cancelled", "closed"],
)
def test_the_same_on_the_loop_of_the_programs(
    one: Memcached, scenario: Callable[[Memcached], Coroutine[Any, Any, None]]
) -> None:
    """uvloop runs timers and answers in another order than asyncio."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario(one))
