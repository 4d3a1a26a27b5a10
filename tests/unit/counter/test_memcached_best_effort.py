"""Beyond the contract: exact sums from several clients, the limits of 64 bits, tokens, damage."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counter.errors import StoreDamaged, StoreUnavailable
from counter.storage.memcached import MemcachedBestEffortCounters, MemcachedServers
from counter.storage.memcached.best_effort import CALL_LIMIT, COUNT_LIMIT
from counter.storage.memcached.keys import counter_key
from counter.storage.ports import BestEffortAdd
from tests.backends import memcached_server, start_memcached
from tests.memcached_client import ask, connected

VIEWS = (1, "views")
BIAS = 2**62


@pytest.fixture
async def servers() -> AsyncIterator[MemcachedServers]:
    async with connected([memcached_server()], prefix=secrets.token_hex(8)) as opened:
        yield opened


async def put_number(servers: MemcachedServers, number: bytes) -> None:
    key = counter_key(f"{servers.prefix}:n:", VIEWS)
    command = b"ms %b %d T0\r\n%b\r\n" % (key, len(number), number)
    assert await servers.ask("set", [key], [command]) == [(b"HD", b"")]


async def number_of(servers: MemcachedServers) -> int:
    key = counter_key(f"{servers.prefix}:n:", VIEWS)
    [reply] = await servers.ask("get", [key], [b"mg %b v\r\n" % key])
    assert reply is not None
    return int(reply[1]) - BIAS


async def test_adds_from_two_clients_at_once_are_all_counted(servers: MemcachedServers) -> None:
    keys = [(1, f"c{at}") for at in range(20)]
    async with connected([memcached_server()], prefix=servers.prefix) as others:
        clients = [MemcachedBestEffortCounters(each) for each in (servers, others)]
        # All of them make the counters that are not there yet.
        calls = [
            clients[at % 2].apply(
                [BestEffortAdd(key, at % 7 - 2, None) for key in keys], dedupe_ttl_ms=0
            )
            for at in range(300)
        ]
        await asyncio.gather(*calls)
        wanted = sum(at % 7 - 2 for at in range(300))
        assert await clients[0].read(keys) == [wanted] * len(keys)


async def test_every_add_of_one_has_another_count(servers: MemcachedServers) -> None:
    async with connected([memcached_server()], prefix=servers.prefix) as others:
        clients = [MemcachedBestEffortCounters(each) for each in (servers, others)]
        adds = [BestEffortAdd(VIEWS, 1, None)] * 5
        answers = await asyncio.gather(
            *(clients[at % 2].apply(adds, dedupe_ttl_ms=0) for at in range(100))
        )
    counts = [outcome for answer in answers for outcome in answer]
    assert len(counts) == 500
    assert set(counts) == {(count, False) for count in range(1, 501)}


async def test_many_adds_to_one_counter_are_one_command() -> None:
    server = start_memcached()
    try:
        async with connected([server]) as servers:
            counters = MemcachedBestEffortCounters(servers)
            keys = [(1, f"c{at}") for at in range(3)]
            await counters.apply([BestEffortAdd(key, 1, None) for key in keys], dedupe_ttl_ms=0)
            adds = [BestEffortAdd(keys[at % 3], at, None) for at in range(1, 1_001)]
            outcomes = await counters.apply(adds, dedupe_ttl_ms=0)
        stats = ask(server, b"stats\r\n").split(b"\r\n")
    finally:
        server.kill()
    counts = Counter(dict.fromkeys(keys, 1))
    for (key, delta, _), outcome in zip(adds, outcomes, strict=True):
        counts[key] += delta or 0
        assert outcome == (counts[key], False)
    assert b"STAT incr_hits 3" in stats  # the first call made them


@given(
    calls=st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 2),
                st.one_of(st.none(), st.integers(-100, 100)),
                st.one_of(st.none(), st.integers(0, 3)),
            ),
            max_size=12,
        ),
        max_size=6,
    )
)
@settings(max_examples=80, deadline=None)
def test_it_counts_like_plain_numbers(
    calls: list[list[tuple[int, int | None, int | None]]],
) -> None:
    async def compare() -> None:
        counts: Counter[int] = Counter()
        tokens = set()
        async with connected([memcached_server()], prefix=secrets.token_hex(8)) as servers:
            counters = MemcachedBestEffortCounters(servers)
            for call in calls:
                adds, wanted = [], []
                for name, delta, token in call:
                    dedupe_key = None if token is None else f"t{token}"
                    adds.append(BestEffortAdd((1, f"c {name}"), delta, dedupe_key))
                    seen = token is not None and (name, token) in tokens
                    if not seen:
                        counts[name] = 0 if delta is None else counts[name] + delta
                        tokens.add((name, token))
                    wanted.append((counts[name], seen))
                assert await counters.apply(adds, dedupe_ttl_ms=60_000) == wanted
            keys = [(1, f"c {name}") for name in range(3)]
            assert await counters.read(keys) == [counts[name] for name in range(3)]

    asyncio.run(compare())


@pytest.mark.parametrize("sign", [1, -1])
async def test_a_count_stops_at_its_limit(servers: MemcachedServers, sign: int) -> None:
    counters = MemcachedBestEffortCounters(servers)
    await put_number(servers, str(BIAS + sign * (COUNT_LIMIT - 1)).encode())
    adds = [BestEffortAdd(VIEWS, sign, None)] * 3
    outcomes = await counters.apply(adds, dedupe_ttl_ms=0)
    assert outcomes == [(sign * COUNT_LIMIT, False)] * 3
    assert await number_of(servers) == sign * COUNT_LIMIT
    # It is no dead end: the other way is open.
    back = await counters.apply([BestEffortAdd(VIEWS, -sign, None)], dedupe_ttl_ms=0)
    assert back == [(sign * (COUNT_LIMIT - 1), False)]


@pytest.mark.parametrize("sign", [1, -1])
async def test_what_one_call_adds_is_cut_off(servers: MemcachedServers, sign: int) -> None:
    counters = MemcachedBestEffortCounters(servers)
    delta = sign * 2**53
    adds = [BestEffortAdd(VIEWS, delta, None)] * 200
    outcomes = await counters.apply(adds, dedupe_ttl_ms=0)
    assert outcomes[:64] == [(delta * at, False) for at in range(1, 65)]
    assert outcomes[63:] == [(sign * CALL_LIMIT, False)] * 137
    assert await counters.read([VIEWS]) == [sign * CALL_LIMIT]
    for _ in range(20):
        outcomes = await counters.apply(adds, dedupe_ttl_ms=0)
    assert outcomes[-1] == (sign * COUNT_LIMIT, False)
    assert await counters.read([VIEWS]) == [sign * COUNT_LIMIT]


@pytest.mark.parametrize("number", [0, 2**64 - 1])
async def test_a_number_far_beyond_is_shown_as_the_limit(
    servers: MemcachedServers, number: int
) -> None:
    counters = MemcachedBestEffortCounters(servers)
    await put_number(servers, str(number).encode())
    sign = 1 if number else -1
    assert await counters.read([VIEWS]) == [sign * COUNT_LIMIT]


@pytest.mark.parametrize("value", [b"", b"many", b"-5", b"1.5", b"12 34"])
async def test_what_is_no_number_is_damage_until_a_clear(
    servers: MemcachedServers, value: bytes
) -> None:
    counters = MemcachedBestEffortCounters(servers)
    await put_number(servers, value)
    with pytest.raises(StoreDamaged, match="no number"):
        await counters.read([VIEWS])
    if value != b"12 34":  # which memcached takes for 12
        [outcome] = await counters.apply([BestEffortAdd(VIEWS, 1, None)], dedupe_ttl_ms=0)
        assert isinstance(outcome, StoreDamaged)
    cleared = [BestEffortAdd(VIEWS, None, None), BestEffortAdd(VIEWS, 1, None)]
    assert await counters.apply(cleared, dedupe_ttl_ms=0) == [(0, False), (1, False)]


async def test_a_token_is_remembered_for_its_time_and_then_forgotten(
    servers: MemcachedServers,
) -> None:
    counters = MemcachedBestEffortCounters(servers)
    add = BestEffortAdd(VIEWS, 1, "token")
    assert await counters.apply([add], dedupe_ttl_ms=1_000) == [(1, False)]
    stored_at = time.monotonic()
    while await counters.apply([add], dedupe_ttl_ms=1_000) == [(1, True)]:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert time.monotonic() - stored_at >= 1.0  # not before its time
    assert await counters.read([VIEWS]) == [2]


async def test_tokens_of_two_counters_do_not_meet(servers: MemcachedServers) -> None:
    counters = MemcachedBestEffortCounters(servers)
    adds = [BestEffortAdd((1, "a"), 1, "bc"), BestEffortAdd((1, "ab"), 1, "c")]
    adds += [BestEffortAdd((2, "a"), 1, "bc"), BestEffortAdd((1, "a"), 1, "b c\r\n\0")]
    outcomes = await counters.apply(adds, dedupe_ttl_ms=60_000)
    assert outcomes == [(1, False), (1, False), (1, False), (2, False)]


async def test_a_thousand_adds_with_tokens_and_their_repetition(
    servers: MemcachedServers,
) -> None:
    counters = MemcachedBestEffortCounters(servers)
    adds = [BestEffortAdd((1, f"c{at % 400}"), -1, f"t{at}") for at in range(12_000)]
    outcomes = await counters.apply(adds, dedupe_ttl_ms=60_000)
    assert outcomes == [(-1 - at // 400, False) for at in range(12_000)]
    again = await counters.apply(adds, dedupe_ttl_ms=60_000)
    assert again == [(-30, True)] * 12_000


async def test_a_server_that_is_full_and_refuses_acknowledges_nothing() -> None:
    server = start_memcached("-m", "2", "-M")
    try:
        async with connected([server]) as servers:
            counters = MemcachedBestEffortCounters(servers)
            adds = [BestEffortAdd((1, f"{at}{'x' * 180}"), 1, None) for at in range(40_000)]
            outcomes = await counters.apply(adds, dedupe_ttl_ms=0)
            refused = [each for each in outcomes if isinstance(each, StoreUnavailable)]
            assert 0 < len(refused) < len(adds)
            assert "Out of memory" in refused[0].message
            taken = [
                add.key for add, each in zip(adds, outcomes, strict=True) if each == (1, False)
            ]
            assert len(taken) + len(refused) == len(adds)
            assert await counters.read(taken) == [1] * len(taken)
            # What was refused for sure was not done: its token is free for another attempt.
            add = BestEffortAdd(adds[outcomes.index(refused[0])].key, 1, "t")
            for _ in range(2):
                [outcome] = await counters.apply([add], dedupe_ttl_ms=60_000)
                assert isinstance(outcome, StoreUnavailable)
            ask(server, b"flush_all\r\n")
            assert await counters.apply([add], dedupe_ttl_ms=60_000) == [(1, False)]
    finally:
        server.kill()


async def test_after_a_flush_counters_start_again(servers: MemcachedServers) -> None:
    server = start_memcached()
    try:
        async with connected([server]) as flushed:
            counters = MemcachedBestEffortCounters(flushed)
            add = BestEffortAdd(VIEWS, 5, "t")
            assert await counters.apply([add], dedupe_ttl_ms=60_000) == [(5, False)]
            ask(server, b"flush_all\r\n")
            assert await counters.read([VIEWS]) == [0]
            assert await counters.apply([add], dedupe_ttl_ms=60_000) == [(5, False)]
    finally:
        server.kill()


async def test_memory_that_held_other_values_before_does_not_matter(
    servers: MemcachedServers,
) -> None:
    """Of numbers from 2^63 on, memcached looks for a minus sign, and beyond their end."""
    counters = MemcachedBestEffortCounters(servers)
    keys = [(1, f"c{at:04d}") for at in range(200)]
    routes = [counter_key(f"{servers.prefix}:n:", key) for key in keys]
    for size in range(20, 60, 4):  # so that some take the room that counters take
        others = [b"ms %b-%d %d\r\n%b\r\n" % (each, size, size, b"-" * size) for each in routes]
        await servers.ask("set", routes, others)
        await servers.ask("set", routes, [b"md %b-%d\r\n" % (each, size) for each in routes])
    for delta, wanted in ((1, 1), (None, 0), (2, 2), (3, 5)):
        adds = [BestEffortAdd(key, delta, None) for key in keys]
        assert await counters.apply(adds, dedupe_ttl_ms=0) == [(wanted, False)] * len(keys)
