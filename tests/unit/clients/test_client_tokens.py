"""The client's tokens follow the platform's clock and keep their order."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from clients.tokens import ClientTokens
from counter.clock import NS_PER_MS, NS_PER_S, ManualClock

HOUR_NS = 3_600 * NS_PER_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tokens(clock: ManualClock) -> ClientTokens:
    return ClientTokens(clock)


def correct(tokens: ClientTokens, clock: ManualClock, server_time_ns: int) -> None:
    now_ns = clock.now_ns()
    tokens.correct(server_time_ns, sent_at_ns=now_ns, received_at_ns=now_ns)


def test_times_strictly_increase_on_a_clock_that_stands_still(tokens: ClientTokens) -> None:
    made = [tokens.next() for _ in range(100)]
    times = [token.generation_time_ns for token in made]
    assert times == sorted(set(times))
    assert len({token.token for token in made}) == 100


def test_a_clock_behind_is_corrected(tokens: ClientTokens, clock: ManualClock) -> None:
    tokens.next()
    correct(tokens, clock, clock.now_ns() + HOUR_NS)
    assert tokens.next().generation_time_ns == clock.now_ns() + HOUR_NS


def test_a_clock_ahead_is_corrected_although_times_never_go_back_by_themselves(
    tokens: ClientTokens, clock: ManualClock
) -> None:
    refused = tokens.next()
    correct(tokens, clock, clock.now_ns() - HOUR_NS)
    following = tokens.next()
    assert following.generation_time_ns == clock.now_ns() - HOUR_NS
    assert following.token != refused.token
    assert tokens.next().generation_time_ns > following.generation_time_ns


def test_going_back_stops_at_what_may_have_been_applied(
    tokens: ClientTokens, clock: ManualClock
) -> None:
    applied = tokens.next()
    tokens.used(applied)
    tokens.next()
    correct(tokens, clock, clock.now_ns() - HOUR_NS)
    assert tokens.next().generation_time_ns == applied.generation_time_ns + 1


def test_an_offset_that_fits_is_kept(tokens: ClientTokens, clock: ManualClock) -> None:
    sent_at_ns = clock.now_ns()
    clock.advance_ms(5_000)
    tokens.correct(
        sent_at_ns + 3_000 * NS_PER_MS, sent_at_ns=sent_at_ns, received_at_ns=clock.now_ns()
    )
    assert tokens.offset_ns == 0


def test_several_refusals_at_once_go_back_once(tokens: ClientTokens, clock: ManualClock) -> None:
    for _ in range(3):
        tokens.next()
    server_time_ns = clock.now_ns() - HOUR_NS
    times = []
    for _ in range(3):
        correct(tokens, clock, server_time_ns)
        times.append(tokens.next().generation_time_ns)
        clock.advance_ms(1)
        server_time_ns += NS_PER_MS
    assert times == sorted(set(times))


def test_threads_never_share_a_time(tokens: ClientTokens) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: tokens.next(), range(5_000)))
    assert len({token.generation_time_ns for token in made}) == 5_000
