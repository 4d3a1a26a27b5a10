"""F4: one token for two things. F5: callers with wrong clocks. Every token has a definite outcome,
and nothing is summed that should not be."""

import asyncio
import time

import grpc
import pytest

from counter.clock import SystemClock
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import rollup_service_pb2 as rollups_pb
from tally import CounterClient
from tests.calls import NS_PER_S, Calls, Refusal, fresh_counter, refusal_of, token
from tests.load import under_load
from tests.processes import FAST_CONVERGENCE_S, TallyProcess

DELTAS = (1, 10, 100)
CONFLICTS = 25
# Far from any edge: what is judged does not depend on how slow the machine is.
AGES_S = {
    "NOT_APPLIED": (FAST_CONVERGENCE_S + 2, 60.0, 86_400.0, 20 * 365 * 86_400.0),
    "TOKEN_FROM_FUTURE": (-120.0, -86_400.0, -20 * 365 * 86_400.0),
}


def conflicts_seen(calls: Calls) -> int:
    status = calls.rollups.GetRollupStatus(rollups_pb.GetRollupStatusRequest(), timeout=10)
    return sum(shard.conflicting_events for shard in status.shards)


def send_conflicting(calls: Calls, counter: str) -> pb.IdempotencyToken:
    """One token with three deltas, at the same time and one after the other; OK each."""
    add = token()
    requests = [
        pb.AddCountRequest(
            namespace="quotas", counter_name=counter, delta=delta, idempotency_token=add
        )
        for delta in DELTAS
    ]
    for call in [calls.counters.AddCount.future(each, timeout=20) for each in requests]:
        call.result()
    calls.counters.AddCount(requests[0], timeout=20)
    return add


@pytest.mark.timeout(600)
async def test_one_token_with_other_deltas_and_counters(steady: TallyProcess) -> None:
    """F4: one delta counts, the same for everybody and for ever; of each counter by itself."""
    async with under_load(
        steady.address, late_s=(1.0, 4.0), pause_s=0.1, name=fresh_counter("f4")
    ) as load:
        await asyncio.to_thread(assert_conflicts_are_decided, steady.address)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=steady.address)


def assert_conflicts_are_decided(address: str) -> None:
    with Calls(address) as calls:
        before = conflicts_seen(calls)
        counters = [fresh_counter("conflict") for _ in range(CONFLICTS)]
        tokens = {counter: send_conflicting(calls, counter) for counter in counters}
        elsewhere = fresh_counter("elsewhere")
        for add in tokens.values():
            calls.add("quotas", elsewhere, 7, add)
        for counter, add in tokens.items():
            assert calls.folded_status("quotas", counter, add) == pb.TOKEN_STATUS_APPLIED
            decided = calls.accurate("quotas", counter)
            assert decided in DELTAS
            for delta in DELTAS:
                assert calls.add("quotas", counter, delta, add).duplicate
            assert calls.accurate("quotas", counter) == decided
            request = rollups_pb.AuditCounterRequest(namespace="quotas", counter_name=counter)
            audit = calls.rollups.AuditCounter(request, timeout=30)
            assert audit.result == rollups_pb.AUDIT_RESULT_EQUAL
        assert calls.accurate("quotas", elsewhere) == 7 * CONFLICTS
        assert conflicts_seen(calls) >= before + CONFLICTS


@pytest.mark.timeout(600)
async def test_callers_whose_clocks_are_wrong(steady: TallyProcess) -> None:
    """F5: a token that is late or early is refused with the platform's time, and counts never; the
    SDK sets its clock right by that."""
    async with under_load(
        steady.address, late_s=(1.0, 4.0), pause_s=0.1, name=fresh_counter("f5")
    ) as load:
        await asyncio.to_thread(assert_definite_outcomes, steady.address)
        await asyncio.to_thread(assert_outcomes_at_the_edges, steady.address)
        for ahead_s in (-3_600.0, -3.0, 3.0, 3_600.0):
            await assert_sdk_counts(steady.address, ahead_s)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=steady.address)


def outcome(calls: Calls, counter: str, add: pb.IdempotencyToken) -> Refusal | None:
    try:
        calls.add("quotas", counter, 1, add, timeout_s=20)
    except grpc.RpcError as error:
        return refusal_of(error)
    return None


def assert_definite_outcomes(address: str) -> None:
    with Calls(address) as calls:
        counter = fresh_counter()
        for expected, ages_s in AGES_S.items():
            for age_s in ages_s:
                add, sent_ns = token(age_s=age_s), time.time_ns()
                seen = outcome(calls, counter, add)
                assert seen is not None
                assert seen.server_time_ns is not None
                assert sent_ns <= seen.server_time_ns <= time.time_ns()
                if expected == "NOT_APPLIED":
                    assert seen.reason == "TOKEN_EXPIRED"
                    assert calls.status("quotas", counter, add) == pb.TOKEN_STATUS_NOT_APPLIED
                else:
                    assert seen.reason == expected
                    with pytest.raises(grpc.RpcError) as raised:
                        calls.status("quotas", counter, add)
                    assert refusal_of(raised.value).reason == expected
        assert calls.accurate("quotas", counter) == 0


def assert_outcomes_at_the_edges(address: str) -> None:
    """About as late, or as early, as is accepted: whatever is answered holds for ever."""
    with Calls(address) as calls:
        counter = fresh_counter()
        tokens = [token(age_s=at / 20) for at in range(-30, 50)]
        outcomes = [outcome(calls, counter, add) for add in tokens]
        reasons = {seen.reason for seen in outcomes if seen is not None}
        assert reasons <= {"TOKEN_EXPIRED", "TOKEN_FROM_FUTURE"}
        assert None in outcomes
        for add, seen in zip(tokens, outcomes, strict=True):
            status = settled(calls, counter, add)
            assert status == (
                pb.TOKEN_STATUS_APPLIED if seen is None else pb.TOKEN_STATUS_NOT_APPLIED
            )
        assert calls.accurate("quotas", counter) == outcomes.count(None)


def settled(calls: Calls, counter: str, add: pb.IdempotencyToken) -> pb.TokenStatus:
    """Also of a token that was from the future when it was sent: its time has come by now."""
    ahead_s = add.generation_time.ToNanoseconds() / NS_PER_S - time.time()
    if ahead_s > 0:
        time.sleep(ahead_s)
    return calls.folded_status("quotas", counter, add)


class WrongClock:
    def __init__(self, ahead_s: float) -> None:
        self._ahead_ns = int(ahead_s * NS_PER_S)
        self._right = SystemClock()

    def now_ns(self) -> int:
        return self._right.now_ns() + self._ahead_ns


async def assert_sdk_counts(address: str, ahead_s: float) -> None:
    counter, clock = fresh_counter(), WrongClock(ahead_s)
    async with CounterClient(address, namespace="quotas", clock=clock) as client:
        for _ in range(10):
            await client.add(counter, 1)
        await asyncio.gather(*(client.add(counter, 1) for _ in range(90)))
        assert (await client.get(counter)).count == 100
