"""Token buckets and the shares that servers have of a limit."""

import pytest

from counter.clock import NS_PER_MS, NS_PER_S, ManualClock
from counter.errors import AddsLimited, ReadsLimited
from counter_server.rate_limit import Fleet, RateLimit
from counter_server.token_bucket import TokenBucket
from tests.unit.counter_server.served import Servers


def test_a_full_bucket_has_one_second_in_it() -> None:
    bucket = TokenBucket(now_ns=0, rate_per_s=10)
    for _ in range(10):
        assert bucket.wait_ns(0, 10) == 0
        bucket.take(1)
    assert bucket.wait_ns(0, 10) > 0


def test_it_never_has_more_than_one_second_in_it() -> None:
    bucket = TokenBucket(now_ns=0, rate_per_s=10)
    now_ns = 3_600 * NS_PER_S
    for _ in range(10):
        assert bucket.wait_ns(now_ns, 10) == 0
        bucket.take(1)
    assert bucket.wait_ns(now_ns, 10) > 0


def test_a_call_larger_than_the_bucket_passes_and_is_paid_by_those_who_come_next() -> None:
    bucket = TokenBucket(now_ns=0, rate_per_s=10)
    assert bucket.wait_ns(0, 10) == 0
    bucket.take(1_000)
    wait_ns = bucket.wait_ns(0, 10)
    assert wait_ns == pytest.approx(99 * NS_PER_S, abs=2)
    assert bucket.wait_ns(98 * NS_PER_S, 10) == pytest.approx(NS_PER_S, abs=2)
    assert bucket.wait_ns(wait_ns, 10) == 0


def test_less_than_one_per_second() -> None:
    bucket = TokenBucket(now_ns=0, rate_per_s=0.25)
    passed = []
    for ms in range(0, 20_000, 130):
        if bucket.wait_ns(ms * NS_PER_MS, 0.25) == 0:
            bucket.take(1)
            passed.append(ms)
    assert passed == [0, 3_120, 7_020, 11_050, 15_080, 19_110]


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(now_ns=NS_PER_S, rate_per_s=10)
    assert bucket.wait_ns(NS_PER_S, 10) == 0
    bucket.take(20)
    assert bucket.wait_ns(0, 10) == pytest.approx(NS_PER_S, abs=2)


@pytest.fixture
def fleet(clock: ManualClock, servers: Servers) -> Fleet:
    return Fleet(servers_alive=lambda: servers.alive, monotonic_ns=clock.now_ns)


def passing(limit: RateLimit) -> int:
    """How many calls of one pass now."""
    passed = 0
    while limit.refusal() is None:
        limit.take(1)
        passed += 1
    return passed


def test_a_server_allows_its_share(fleet: Fleet, clock: ManualClock, servers: Servers) -> None:
    servers.alive = 4
    limit = RateLimit("plays", "adds", 100, AddsLimited, fleet)
    assert passing(limit) == 25
    clock.advance_ms(400)
    assert passing(limit) == pytest.approx(10, abs=1)


def test_the_share_follows_the_number_of_servers_at_once(
    fleet: Fleet, clock: ManualClock, servers: Servers
) -> None:
    limit = RateLimit("plays", "adds", 100, AddsLimited, fleet)
    servers.alive = 10  # the full bucket was that of a server alone
    assert passing(limit) == 10
    servers.alive = 2
    clock.advance_ms(60_000)
    assert passing(limit) == 50
    servers.alive = 0  # cannot be, but must not divide by it
    clock.advance_ms(60_000)
    assert passing(limit) == 100


def test_the_refusal_says_which_limit_and_when_to_come_again(
    fleet: Fleet, clock: ManualClock, servers: Servers
) -> None:
    servers.alive = 3
    limit = RateLimit("plays", "reads", 1_000_000, ReadsLimited, fleet)
    limit.take(400_000)
    refusal = limit.refusal()
    assert isinstance(refusal, ReadsLimited)
    assert refusal.message == (
        "namespace plays takes 1000000 reads per second in all, 333333.33 on each of 3 servers "
        "(limits.reads_per_s), which are used up: send the same again after 0.201 s, send less, "
        "or ask its owner for a higher limit"
    )
    assert refusal.retry_after_ms == 201
    clock.advance_ms(201)
    assert limit.refusal() is None


def test_a_server_alone_does_not_speak_of_shares(fleet: Fleet) -> None:
    limit = RateLimit("plays", "adds", 5, AddsLimited, fleet)
    limit.take(5)
    refusal = limit.refusal()
    assert refusal is not None
    assert "takes 5 adds per second (limits.adds_per_s), which are used up" in refusal.message
    assert refusal.retry_after_ms == 1
