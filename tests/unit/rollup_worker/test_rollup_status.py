"""GetRollupStatus: any worker answers for all of them."""

from typing import Any

from counter.clock import NS_PER_S
from counter.errors import StoreUnavailable
from counter.v1 import rollup_service_pb2 as pb
from rollup_worker.ownership import MEMBER_TTL_S, owner_of
from rollup_worker.service import RollupService
from tests.stores import shard_of
from tests.tampered import Tampered
from tests.unit.rollup_worker.world import COUNTERS, PLATFORM, WorkerParts, World

# Found by trying: with these two each has one of the two shards.
FIRST, SECOND = "worker 0", "worker 2"


def service(world: World, parts: WorkerParts) -> RollupService:
    unused: Any = None
    return RollupService(
        parts.worker,
        parts.ownership,
        unused,
        unused,
        world.stores.ledger,
        world.layout,
        PLATFORM,
        world.clock,
    )


async def status(world: World, parts: WorkerParts) -> pb.GetRollupStatusResponse:
    return await service(world, parts).GetRollupStatus(pb.GetRollupStatusRequest(), None)


async def two_workers(world: World, wrap: Any = None) -> tuple[WorkerParts, WorkerParts]:
    """Who have beaten twice: they know of each other and have said how they are."""
    parts = [world.worker(wrap, member=member) for member in (FIRST, SECOND)]
    for _ in range(2):
        for each in parts:
            await each.worker.round()
    first, second = parts
    assert sorted([*first.ownership.shards, *second.ownership.shards]) == [0, 1]
    return first, second


def test_the_members_share() -> None:
    assert {owner_of(shard, (FIRST, SECOND)) for shard in range(2)} == {FIRST, SECOND}


async def test_either_of_two_workers_answers_for_both(world: World) -> None:
    parts = await two_workers(world)
    for counter in COUNTERS:
        await world.write(counter, 1)
    world.clock.advance_ms(9_000)  # so that both are still taken to be alive
    for each in (*parts, *parts):
        await each.worker.round()
    of_shard = [
        sum(shard_of(world.id_of("plays"), counter, 2) == shard for counter in COUNTERS)
        for shard in range(2)
    ]
    for each in parts:
        answer = await status(world, each)
        assert answer.problem == ""
        assert [worker.member for worker in answer.workers] == [FIRST, SECOND]
        assert [worker.passes_in_parallel for worker in answer.workers] == [4, 4]
        for shard, shown in enumerate(answer.shards):
            assert shown.shard == shard
            assert shown.owner == owner_of(shard, (FIRST, SECOND))
            [worker] = [worker for worker in answer.workers if worker.member == shown.owner]
            assert list(worker.shards) == [shard]
            assert shown.folded_events == shown.last_pass_events == of_shard[shard]
            assert shown.last_pass_time.ToNanoseconds() > 0
            assert shown.batch_counters == 100
            assert shown.queue_depth == 0
            assert shown.watermark == answer.closed_through == answer.folded_through
            behind_s = world.clock.now_ns() / NS_PER_S - shown.watermark.seconds
            assert abs(shown.lag.seconds - behind_s) <= 1


async def test_what_is_stuck_elsewhere_is_shown_with_the_reason(world: World) -> None:
    stuck = next(shard for shard in range(2) if owner_of(shard, (FIRST, SECOND)) == SECOND)

    async def around(name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "event_log.refs" and args[0] == stuck:
            raise StoreUnavailable("the disk is away")
        return await call(*args, **kwargs)

    first, second = await two_workers(world, lambda name, port: Tampered(name, port, around))
    for _ in range(3):
        world.clock.advance_ms(9_000)
        for each in (first, second, first, second):
            await each.worker.round()
    assert first.worker.problem() is None
    answer = await status(world, first)
    assert answer.problem == f"shard {stuck}: the disk is away"
    assert answer.shards[stuck].problem == "the disk is away"
    assert answer.shards[stuck].queue_depth >= 14
    assert answer.shards[1 - stuck].problem == ""
    assert answer.shards[1 - stuck].queue_depth <= 1
    own = await status(world, second)
    assert own.problem == answer.problem


async def test_a_worker_with_a_problem_as_a_whole_is_named(world: World) -> None:
    first, second = await two_workers(world)
    second.closer.problem = "its clock is off"
    await second.worker._beat()
    answer = await status(world, first)
    assert answer.problem == f"worker {SECOND}: its clock is off"
    assert [worker.problem for worker in answer.workers] == ["", "its clock is off"]


async def test_a_worker_of_another_version_is_shown_without_details(world: World) -> None:
    await world.stores.membership.beat(SECOND, b"\xc1 something new", ttl_s=MEMBER_TTL_S)
    first = world.worker(member=FIRST)
    await first.worker.round()
    answer = await status(world, first)
    assert answer.problem == ""
    assert [worker.member for worker in answer.workers] == [FIRST, SECOND]
    [theirs] = [shard for shard in answer.shards if shard.owner == SECOND]
    assert theirs.watermark.seconds > 0
    assert theirs.batch_counters == theirs.folded_events == 0


async def test_a_worker_that_just_started_answers(world: World) -> None:
    answer = await status(world, world.worker())
    assert [worker.member for worker in answer.workers] == ["the worker"]
    assert [shard.owner for shard in answer.shards] == ["the worker"] * 2
