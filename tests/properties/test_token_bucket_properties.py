"""Token buckets, whatever comes when."""

from hypothesis import given
from hypothesis import strategies as st

from counter.clock import NS_PER_S
from counter_server.token_bucket import TokenBucket

RATES = st.integers(1, 100_000_000).flatmap(
    lambda limit: st.integers(1, 64).map(lambda servers: limit / servers)
)
# How long after the call before, in ns, and what it costs.
CALLS = st.lists(
    st.tuples(st.integers(0, 20 * NS_PER_S), st.integers(1, 10_000)), min_size=1, max_size=80
)
# Floats: a billionth of what passed.
ROUNDING = 1e-9


@given(rate_per_s=RATES, calls=CALLS)
def test_no_more_passes_than_the_rate_a_second_and_one_debt(
    rate_per_s: float, calls: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(now_ns=0, rate_per_s=rate_per_s)
    now_ns, passed = 0, []
    for later_ns, cost in calls:
        now_ns += later_ns
        if bucket.wait_ns(now_ns, rate_per_s) == 0:
            bucket.take(cost)
            passed.append((now_ns, cost))
    for first in range(len(passed)):
        total = 0
        for at_ns, cost in passed[first:]:
            # Before its last call: below what the rate and the burst allow. That one is the debt.
            allowed = rate_per_s * (at_ns - passed[first][0]) / NS_PER_S + rate_per_s
            assert total <= allowed * (1 + ROUNDING) + ROUNDING
            total += cost


@given(
    rate_per_s=RATES,
    costs=st.lists(st.integers(1, 10_000), min_size=1, max_size=80),
    slower_ns=st.integers(1, NS_PER_S),
)
def test_a_steady_load_below_the_rate_is_never_refused(
    rate_per_s: float, costs: list[int], slower_ns: int
) -> None:
    """Each call comes when the one before is paid, or a little later."""
    bucket = TokenBucket(now_ns=0, rate_per_s=rate_per_s)
    now_ns = 0
    for cost in costs:
        assert bucket.wait_ns(now_ns, rate_per_s) == 0
        bucket.take(cost)
        now_ns += int(cost / rate_per_s * NS_PER_S) + slower_ns


@given(rate_per_s=RATES, calls=CALLS)
def test_whoever_waits_as_long_as_told_passes_and_not_before(
    rate_per_s: float, calls: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(now_ns=0, rate_per_s=rate_per_s)
    now_ns = 0
    for later_ns, cost in calls:
        now_ns += later_ns
        wait_ns = bucket.wait_ns(now_ns, rate_per_s)
        if wait_ns > 1_000:
            # A microsecond less is too early, but for rates at which it is worth a token.
            assert rate_per_s >= 1_000 or bucket.wait_ns(now_ns + wait_ns - 1_000, rate_per_s) > 0
        now_ns += wait_ns + 1_000  # what is asked for is rounded up to milliseconds
        assert bucket.wait_ns(now_ns, rate_per_s) == 0
        bucket.take(cost)


@given(rates=st.lists(RATES, min_size=1, max_size=40), cost=st.integers(1, 10_000))
def test_a_rate_that_changes_never_lets_more_pass_than_the_highest(
    rates: list[float], cost: int
) -> None:
    bucket = TokenBucket(now_ns=0, rate_per_s=rates[0])
    now_ns = passed = 0
    for rate_per_s in rates:
        now_ns += NS_PER_S // 3
        if bucket.wait_ns(now_ns, rate_per_s) == 0:
            bucket.take(cost)
            passed += cost
    highest = max(rates)
    assert passed <= (highest * now_ns / NS_PER_S + highest) * (1 + ROUNDING) + cost
