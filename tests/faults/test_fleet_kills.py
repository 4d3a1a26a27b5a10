"""Programs of the fleet that are killed (kill -9) at each step, under load.

F1: a server at the steps of a write; a retry with the same token on the other server is answered
OK. F6: a worker at the steps of a close and of a fold pass; what it leaves half done, it or another
one completes.
"""

import asyncio
import random

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Calls, eventually, fresh_counter, token
from tests.faults.deeds import kill_at
from tests.faults.injected import Deed
from tests.faults.ring_fleet import Member, RingFleet
from tests.faults.steps import CLOSE_STEPS, FOLD_STEPS, WRITE_STEPS, Step

ROUNDS = 2
# Ahead of the right time, as callers' clocks may be: it stays good for longer.
AHEAD_S = 1.0


def add_until_killed(server: Member, counter: str, step: Step) -> tuple[int, pb.IdempotencyToken]:
    """Adds until the server dies of it: how many adds were acknowledged, and the token of the one
    that was not answered."""
    added, hits = 0, len(server.faults.hits())
    with Calls(server.address) as calls:
        server.faults.kill_at(step, nth=3)
        while True:
            add = token(age_s=-AHEAD_S)
            try:
                calls.add("quotas", counter, 1, add)
            except grpc.RpcError as broken:
                code = broken.code()
                break
            added += 1
    server.wait_killed()
    assert code is grpc.StatusCode.UNAVAILABLE
    assert server.faults.hits()[hits:] == [(step, Deed.KILL, server.process.pid)]
    return added, add


async def retried_elsewhere(server: Member, other: Member, step: Step) -> None:
    counter = fresh_counter()

    def kill_and_retry() -> None:
        with Calls(other.address) as calls:
            added, unanswered = add_until_killed(server, counter, step)
            for _ in range(2):
                calls.add("quotas", counter, 1, unanswered)
            assert calls.accurate("quotas", counter) == added + 1
            assert calls.folded_status("quotas", counter, unanswered) == pb.TOKEN_STATUS_APPLIED
            assert calls.accurate("quotas", counter) == added + 1

    await asyncio.to_thread(kill_and_retry)
    await asyncio.to_thread(server.start)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_server_killed_at_each_step_of_a_write(fleet: RingFleet) -> None:
    """F1."""
    one, other = fleet.servers
    async with fleet.under_load("f1"):
        for step in WRITE_STEPS:
            await retried_elsewhere(one, other, step)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_worker_killed_at_each_step_of_a_pass(fleet: RingFleet) -> None:
    """F6: both workers in turn, at one step after the other."""
    async with fleet.under_load("f6") as load:
        for number, step in enumerate((*CLOSE_STEPS, *FOLD_STEPS)):
            worker = fleet.workers[number % 2]
            await kill_at(step, 1, load, worker, worker.faults)
    hits = [hit.step for worker in fleet.workers for hit in worker.faults.hits()]
    assert set(hits) >= {*CLOSE_STEPS, *FOLD_STEPS}


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_the_only_worker_killed_again_and_again(own_fleet: RingFleet) -> None:
    """F6: nobody takes over. In any order, and not the first time that a step is reached."""
    chance = random.Random(6)
    steps = [step for step in (*CLOSE_STEPS, *FOLD_STEPS) for _ in range(ROUNDS)]
    chance.shuffle(steps)
    await own_fleet.start_all()
    own_fleet.remove(own_fleet.workers.pop())
    [worker] = own_fleet.workers
    async with own_fleet.under_load("f6-alone") as load:
        for step in steps:
            await kill_at(step, chance.randint(1, 4), load, worker, worker.faults)
    assert [hit.step for hit in worker.faults.hits()] == steps


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_servers_killed_at_any_time(fleet: RingFleet) -> None:
    """F1: both at once as well, so that for a moment nobody serves."""
    chance = random.Random(1)
    async with fleet.under_load("f1-any") as load:
        for _ in range(8):
            await load.acknowledged(chance.randint(1, 60))
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            killed = chance.choice([fleet.servers[:1], fleet.servers[1:], fleet.servers])
            for server in killed:
                server.kill()
            await fleet.start(*killed)
        calls_broken = load.history.refusals[""]
    assert calls_broken > 0


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_server_that_stood_still_between_write_and_close_check(fleet: RingFleet) -> None:
    """F1: its window is closed and folded meanwhile, and it must not acknowledge from what it knew.
    The segment was durable in time, so the fold has it, and the caller is told just that."""
    one, other = fleet.servers
    counter, add = fresh_counter(), token()
    request = pb.AddCountRequest(
        namespace="quotas", counter_name=counter, delta=1, idempotency_token=add
    )
    # The load calls the other one: this add alone is on its way here.
    async with fleet.under_load("f1-still", servers=[other.address]):
        hits = len(one.faults.hits())
        one.faults.stop_at(Step.WRITTEN)
        with Calls(one.address) as calls, Calls(other.address) as elsewhere:
            answer = calls.counters.AddCount.future(request, timeout=120)
            hit = await asyncio.to_thread(one.faults.wait_hit, hits + 1)
            assert hit == (Step.WRITTEN, Deed.STOP, one.process.pid)
            status = await asyncio.to_thread(
                eventually,
                lambda: elsewhere.status("quotas", counter, add),
                lambda status: status != pb.TOKEN_STATUS_PENDING,
            )
            assert status == pb.TOKEN_STATUS_APPLIED
            one.resume()
            assert (await asyncio.to_thread(answer.result)).duplicate
            assert elsewhere.accurate("quotas", counter) == 1
