"""F7: two workers on one shard. One stands still for longer than its membership lasts, in the
middle of what it does, and goes on as if nothing had happened."""

import asyncio

import pytest

from counter.v1 import rollup_service_pb2 as pb
from rollup_worker.ownership import MEMBER_TTL_S
from tests.calls import eventually
from tests.faults.injected import Deed
from tests.faults.ring_fleet import Member, RingFleet
from tests.faults.steps import CLOSE_STEPS, FOLD_STEPS, Step
from tests.faults.waiting import worker_status
from tests.load import Load


async def everything_is_taken_over(by: Member, load: Load) -> None:
    """Waits until one worker owns all shards, and all of them are folded past what there is."""
    latest_ns = max(event.time_ns for event in load.history.deltas)

    def is_done(seen: pb.GetRollupStatusResponse) -> bool:
        owners = {shard.owner for shard in seen.shards}
        folded_ns = min(shard.watermark.ToNanoseconds() for shard in seen.shards)
        return len(owners) == 1 and folded_ns > latest_ns

    await asyncio.to_thread(
        eventually, lambda: worker_status(by), is_done, within_s=6 * MEMBER_TTL_S
    )


async def stopped_at(worker: Member, other: Member, step: Step, load: Load) -> None:
    hits = len(worker.faults.hits())
    worker.faults.stop_at(step)
    hit = await asyncio.to_thread(worker.faults.wait_hit, hits + 1, within_s=120)
    assert hit == (step, Deed.STOP, worker.process.pid)
    await load.acknowledged(30)
    await everything_is_taken_over(other, load)
    worker.resume()
    await load.acknowledged(30)
    await asyncio.to_thread(worker.wait_ready)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_worker_that_stops_between_fold_record_and_rollups(fleet: RingFleet) -> None:
    worker, other = fleet.workers
    async with fleet.under_load("f7") as load:
        await stopped_at(worker, other, Step.RECORDED, load)


@pytest.mark.long
@pytest.mark.timeout(1_200)
async def test_a_worker_that_stops_at_each_step(fleet: RingFleet) -> None:
    async with fleet.under_load("f7-each") as load:
        for number, step in enumerate((*CLOSE_STEPS, *FOLD_STEPS)):
            worker, other = fleet.workers[number % 2], fleet.workers[1 - number % 2]
            await stopped_at(worker, other, step, load)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_workers_that_stand_still_in_turn(fleet: RingFleet) -> None:
    """At any moment, not at a chosen step; and both at once, so that nobody folds."""
    async with fleet.under_load("f7-turns") as load:
        for worker, other in (fleet.workers, reversed(fleet.workers)):
            worker.pause()
            await load.acknowledged(30)
            await everything_is_taken_over(other, load)
            worker.resume()
            await load.acknowledged(30)
        for worker in fleet.workers:
            worker.pause()
        await load.acknowledged(200)
        for worker in fleet.workers:
            worker.resume()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_server_that_stands_still(fleet: RingFleet) -> None:
    """Its callers give up; what it had begun ends long after its window was closed."""
    async with fleet.under_load("f7-server") as load:
        for server in fleet.servers:
            server.pause()
            await load.acknowledged(50)
            await asyncio.sleep(5.0)  # longer than callers wait
            server.resume()
            await load.acknowledged(50)
