"""What reads promise: own adds at once, convergence without help, honest freshness."""

import time

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from tests.calls import NS_PER_S, Calls, eventually, fresh_counter, refusal, token
from tests.processes import FAST_CONVERGENCE_S

FOLD_PASS_S = 2.0  # generous: the machine is shared


@pytest.mark.parametrize("namespace", ["quotas", "plays"])
def test_own_adds_are_read_back_at_once(calls: Calls, namespace: str) -> None:
    counter = fresh_counter()
    for expected in range(1, 30):
        calls.add(namespace, counter, 1, token())
        assert calls.accurate(namespace, counter) == expected


def test_add_and_get_includes_its_own_add(calls: Calls) -> None:
    for namespace in ("plays", "quotas", "hits"):
        counter = fresh_counter()
        for expected in (5, 10, 15):
            request = pb.AddAndGetCountRequest(
                namespace=namespace, counter_name=counter, delta=5, idempotency_token=token()
            )
            answer = calls.counters.AddAndGetCount(request, timeout=10)
            assert answer.value.count == expected
            assert answer.idempotency_token == request.idempotency_token


def test_eventual_converges_with_no_read_and_no_write_in_between(calls: Calls) -> None:
    counter, add = fresh_counter(), token()
    calls.add("plays", counter, 42, add)
    time.sleep(FAST_CONVERGENCE_S + FOLD_PASS_S)  # the bound itself is what is tested (I2)
    value = calls.get("plays", counter)
    assert value.count == 42
    assert value.source in (pb.SOURCE_ROLLUP, pb.SOURCE_SHARED_CACHE)
    assert value.complete_through.ToNanoseconds() >= add.generation_time.ToNanoseconds()


def test_a_counter_that_nobody_added_to_reads_0(calls: Calls) -> None:
    for namespace, strategy in (
        ("plays", pb.STRATEGY_EVENTUAL),
        ("quotas", pb.STRATEGY_ACCURATE),
    ):
        value = calls.get(namespace, fresh_counter())
        assert (value.count, value.epoch, value.strategy) == (0, 0, strategy)
        assert value.HasField("complete_through")
        assert not value.HasField("cleared_at")


def test_max_staleness_decides_the_path(calls: Calls) -> None:
    counter = fresh_counter()
    calls.add("plays", counter, 3, token())
    assert calls.get("plays", counter, max_staleness_s=3600).source != pb.SOURCE_ROLLUP_AND_TAIL
    fresh = calls.get("plays", counter, max_staleness_s=0.001)
    assert (fresh.source, fresh.count) == (pb.SOURCE_ROLLUP_AND_TAIL, 3)


def test_at_least_never_goes_back(calls: Calls) -> None:
    counter = fresh_counter()
    last = calls.get("plays", counter, max_staleness_s=0).complete_through
    ends = time.monotonic() + 3
    while time.monotonic() < ends:
        request = pb.GetCountRequest(namespace="plays", counter_name=counter, at_least=last)
        seen = calls.counters.GetCount(request, timeout=5).value.complete_through
        assert seen.ToNanoseconds() >= last.ToNanoseconds()
        last = seen
    request.at_least.FromNanoseconds(time.time_ns() + 3600 * NS_PER_S)
    too_much = refusal(lambda: calls.counters.GetCount(request, timeout=5))
    assert (too_much.code, too_much.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_FRESH_ENOUGH")
    assert too_much.retry_after_s is not None


def test_caches_answer_and_keep_their_stamp(calls: Calls) -> None:
    counter = fresh_counter()
    first = calls.get("plays", counter)
    again = calls.get("plays", counter)
    assert again.source == pb.SOURCE_LOCAL_CACHE
    assert again.complete_through == first.complete_through


def test_batch_reads_answer_in_order(calls: Calls) -> None:
    counters = [fresh_counter("batch") for _ in range(300)]
    items = [
        pb.AddCountItem(counter_name=counter, delta=at + 1, idempotency_token=token())
        for at, counter in enumerate(counters)
    ]
    for namespace in ("plays", "quotas"):
        request = pb.BatchAddCountRequest(namespace=namespace, items=items)
        assert all(
            each.code == 0 for each in calls.counters.BatchAddCount(request, timeout=10).outcomes
        )
        read = pb.BatchGetCountRequest(
            namespace=namespace, counter_name=[*reversed(counters), "nobody"]
        )
        read.max_staleness.FromNanoseconds(0)
        values = calls.counters.BatchGetCount(read, timeout=10).values
        assert [value.count for value in values] == [*range(300, 0, -1), 0]


def test_clear_splits_by_event_time_and_a_retried_clear_is_one(calls: Calls) -> None:
    counter = fresh_counter()
    before, clear, after = token(age_s=0.3), token(age_s=0.2), token(age_s=0.1)
    # Sent in another order than they happened: only the event times decide.
    calls.clear("quotas", counter, clear)
    calls.add("quotas", counter, 100, before)
    calls.add("quotas", counter, 7, after)
    calls.clear("quotas", counter, clear)
    for _ in range(2):  # from the tail, then from the rollup
        value = calls.get("quotas", counter)
        assert (value.count, value.epoch) == (7, 1)
        assert value.cleared_at == clear.generation_time
        calls.folded_status("quotas", counter, after)


def test_duplicates_before_and_after_the_fold(calls: Calls) -> None:
    counter, add = fresh_counter(), token()
    assert not calls.add("plays", counter, 5, add).duplicate
    calls.add("plays", counter, 5, add)
    calls.add("plays", counter, 9, add)  # another delta: the first in fold order counts
    assert calls.folded_status("plays", counter, add) == pb.TOKEN_STATUS_APPLIED
    assert calls.add("plays", counter, 5, add).duplicate
    assert calls.accurate("plays", counter) in (5, 9)
    assert calls.accurate("plays", counter) == eventually(
        lambda: calls.get("plays", counter).count, lambda count: count != 0
    )


def test_best_effort_counts_and_dedupes_and_says_nothing_about_freshness(calls: Calls) -> None:
    counter, add = fresh_counter(), token()
    assert not calls.add("hits", counter, -5, add).duplicate
    assert calls.add("hits", counter, -5, add).duplicate
    value = calls.get("hits", counter)
    assert (value.count, value.strategy) == (-5, pb.STRATEGY_BEST_EFFORT)
    assert not value.HasField("complete_through")
    calls.clear("hits", counter)
    assert calls.get("hits", counter).count == 0


def test_a_token_made_by_the_server_is_returned_and_can_be_settled(calls: Calls) -> None:
    counter = fresh_counter()
    made = calls.add("plays", counter).idempotency_token
    assert made.token
    assert made.HasField("generation_time")
    assert calls.folded_status("plays", counter, made) == pb.TOKEN_STATUS_APPLIED


def test_a_rolling_window_counts_what_is_recent_and_falls_back_to_0_by_itself(
    calls: Calls,
) -> None:
    """Of 10 s, in windows of 200 ms."""
    counter = fresh_counter()
    last = token()
    began_s = time.monotonic()
    for expected in range(1, 6):
        last = token()
        calls.add("recent", counter, 1, last)
        assert calls.get("recent", counter).count == expected
    value = calls.get("recent", counter)
    assert value.strategy == pb.STRATEGY_ROLLING_WINDOW
    length_s = time.time() - value.window_start.ToNanoseconds() / NS_PER_S
    assert length_s >= 9.5
    assert 9.5 <= 5 / value.rate_per_s <= 10.5
    assert calls.folded_status("recent", counter, last) == pb.TOKEN_STATUS_APPLIED
    assert time.monotonic() - began_s > 10 or calls.get("recent", counter).count == 5
    eventually(lambda: calls.get("recent", counter).count, lambda count: count == 0)
    assert time.monotonic() - began_s >= 9.5
    # The count of all time goes on being kept.
    request = pb.GetCountAtRequest(namespace="recent", counter_name=counter)
    request.time.FromNanoseconds(time.time_ns())
    assert calls.counters.GetCountAt(request, timeout=10).value.count == 5
