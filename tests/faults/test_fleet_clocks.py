"""Wrong clocks of one program among others. F8: of a worker. F9: of a server.

Whoever is too far away from the store's clock closes nothing and acknowledges nothing, and says so;
the others go on. A clock that is off by less makes tokens late or early, and no count wrong. (The
clock of a Cassandra node cannot be moved here; the simulation moves those.)
"""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.faults.ring_fleet import Member, RingFleet
from tests.faults.waiting import FOUND_OUT_WITHIN_S, folded_anew, refused_for, worker_status

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
FAR_S = (5.0, -5.0, 3_600.0, -3_600.0)
NEAR_S = 0.4  # less than max_clock_skew
DRIFT_S_PER_S = 0.2


def side(ahead_s: float) -> str:
    return "ahead of the store's" if ahead_s > 0 else "behind the store's"


async def closing_nothing(worker: Member, ahead_s: float) -> None:
    """Its clock steps, and it finds out and says which way."""
    worker.faults.set_clock(ahead_s=ahead_s)
    await asyncio.to_thread(worker.wait_health, "", NOT_SERVING, FOUND_OUT_WITHIN_S)
    problem = (await asyncio.to_thread(worker_status, worker)).problem
    assert "this worker's clock is" in problem
    assert side(ahead_s) in problem


async def refusing(server: Member, ahead_s: float) -> None:
    """It acknowledges nothing, and says which way its clock is off."""
    await asyncio.to_thread(server.wait_health, "", NOT_SERVING, FOUND_OUT_WITHIN_S)
    said = await refused_for(server, "CLOCK_SKEWED", side(ahead_s))
    assert said.code is grpc.StatusCode.UNAVAILABLE
    assert said.retry_after_s is not None


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_workers_clock(fleet: RingFleet) -> None:
    """F8: far ahead and far behind, by seconds and by an hour."""
    wrong, _ = fleet.workers
    async with fleet.under_load("f8") as load:
        for ahead_s in FAR_S:
            await closing_nothing(wrong, ahead_s)
            await load.acknowledged(50)
            await folded_anew(fleet.servers[0], load)  # windows close by the other's clock
            wrong.faults.set_clock()
            await asyncio.to_thread(wrong.wait_ready)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_workers_clock_that_is_a_little_ahead(fleet: RingFleet) -> None:
    """F8: windows close earlier, so more tokens are late. They are refused, and not lost."""
    async with fleet.under_load("f8-near") as load:
        for worker in fleet.workers:
            worker.faults.set_clock(ahead_s=NEAR_S)
        await load.acknowledged(200)
        skew_s = [worker.total("tally_clock_skew_seconds") for worker in fleet.workers]
        assert max(skew_s) > 0
    assert load.history.refusals["TOKEN_EXPIRED"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_the_clocks_of_all_workers(fleet: RingFleet) -> None:
    """F8: nothing closes, adds go on, and reads say how old they are until a clock is right."""
    async with fleet.under_load("f8-all") as load:
        for worker, ahead_s in zip(fleet.workers, (3_600.0, -60.0), strict=True):
            await closing_nothing(worker, ahead_s)
        before = (await asyncio.to_thread(worker_status, fleet.workers[0])).closed_through
        await load.acknowledged(100)
        after = (await asyncio.to_thread(worker_status, fleet.workers[0])).closed_through
        assert after == before
        fleet.workers[0].faults.set_clock()
        await folded_anew(fleet.servers[0], load)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_servers_clock_that_steps(fleet: RingFleet) -> None:
    """F9: ahead and behind, by seconds and by an hour. The other server serves on."""
    wrong, _ = fleet.servers
    async with fleet.under_load("f9") as load:
        for ahead_s in FAR_S:
            wrong.faults.set_clock(ahead_s=ahead_s)
            await refusing(wrong, ahead_s)
        await load.acknowledged(50)
        wrong.faults.set_clock()
        await asyncio.to_thread(wrong.wait_ready)
    assert load.history.refusals["CLOCK_SKEWED"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_servers_clock_that_drifts(fleet: RingFleet) -> None:
    """F9: right at first, and too far off in the end."""
    wrong, _ = fleet.servers
    async with fleet.under_load("f9-drift") as load:
        for gains_s_per_s in (DRIFT_S_PER_S, -DRIFT_S_PER_S):
            wrong.faults.set_clock(gains_s_per_s=gains_s_per_s)
            await refusing(wrong, gains_s_per_s)
            assert abs(wrong.faults.clock_ahead_s()) > NEAR_S
            wrong.faults.set_clock()
            await asyncio.to_thread(wrong.wait_ready)
            await load.acknowledged(50)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_servers_that_disagree_a_little(fleet: RingFleet) -> None:
    """F9: both within what is allowed, one ahead and one behind, and then the other way round."""
    async with fleet.under_load("f9-near") as load:
        for first_s, second_s in ((NEAR_S, -NEAR_S), (-NEAR_S, NEAR_S)):
            fleet.servers[0].faults.set_clock(ahead_s=first_s)
            fleet.servers[1].faults.set_clock(ahead_s=second_s)
            await load.acknowledged(150)
            assert fleet.servers[0].faults.clock_ahead_s() == first_s
