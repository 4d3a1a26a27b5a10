"""The running worker: what is slow or broken keeps to itself; a stop leaves nothing half done."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from counter import metrics
from counter.errors import StoreUnavailable
from rollup_worker.rollup import PassResult
from tests.stores import shard_of
from tests.tampered import settle
from tests.unit.rollup_worker.waiting import until
from tests.unit.rollup_worker.world import COUNTERS, WorkerParts, World


class Passes:
    """The passes of a worker, which a test can hold or fail by shard."""

    def __init__(self, parts: WorkerParts) -> None:
        self._fold_shard = parts.rollup.fold_shard
        self.began: list[int] = []  # shards, in order
        self.ended: list[int] = []
        self.sizes: defaultdict[int, list[int]] = defaultdict(list)
        self.held: dict[int, asyncio.Event] = {}
        self.failing: dict[int, Exception] = {}
        self.at_once = self.at_once_max = 0
        parts.rollup.fold_shard = self._pass  # type: ignore[method-assign]

    def hold(self, shard: int) -> asyncio.Event:
        self.held[shard] = asyncio.Event()
        return self.held[shard]

    async def _pass(self, shard: int, *args: Any, **kwargs: Any) -> PassResult:
        self.began.append(shard)
        self.sizes[shard].append(kwargs["events_max"])
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            if shard in self.held:
                await self.held[shard].wait()
            if shard in self.failing:
                raise self.failing[shard]
            return await self._fold_shard(shard, *args, **kwargs)
        finally:
            self.at_once -= 1
            self.ended.append(shard)


@asynccontextmanager
async def running(parts: WorkerParts) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(parts.worker.run())
    try:
        yield task
    finally:
        parts.worker.stop()
        await asyncio.wait_for(task, 10)


async def write_all(world: World) -> None:
    for counter in COUNTERS:
        await world.write(counter, 1)
    world.clock.advance_ms(10_000)


async def test_a_slow_shard_delays_neither_the_others_nor_closing(world: World) -> None:
    await write_all(world)
    parts = world.worker()
    passes = Passes(parts)
    slow, other = 0, 1
    held = passes.hold(slow)
    async with running(parts):
        await until(lambda: slow in passes.began and other in passes.ended)
        for _ in range(3):
            closed = (await world.stores.ledger.closed()).through
            ended = passes.ended.count(other)
            world.clock.advance_ms(3_000)
            await until(lambda ended=ended: passes.ended.count(other) > ended)  # type: ignore[misc]
            assert (await world.stores.ledger.closed()).through > closed
        assert passes.began.count(slow) == 1
        watermarks = await world.stores.ledger.watermarks()
        assert watermarks[other] > watermarks[slow] == world.layout.from_window - 1
        assert parts.worker.problem() is None
        held.set()
        await until(lambda: slow in passes.ended)
    await world.fold_all()
    await world.check()


async def test_a_shard_that_fails_rests_longer_and_longer_and_recovers(world: World) -> None:
    await write_all(world)
    parts = world.worker()
    passes = Passes(parts)
    broken, other = 0, 1
    passes.failing[broken] = StoreUnavailable("the disk is away")
    tried_at_s: list[float] = []
    start_ns = world.clock.now_ns()
    resting = metrics.SHARDS_RESTING.at()
    for _ in range(300):  # 30 s
        before = passes.began.count(broken)
        await parts.worker.round()
        if passes.began.count(broken) > before:
            tried_at_s.append((world.clock.now_ns() - start_ns) / 1e9)
        assert parts.worker.problem() == f"shard {broken}: the disk is away"
        assert resting.value == 1
        world.clock.advance_ms(100)
    pauses_s = [after - before for before, after in pairwise(tried_at_s)]
    assert 5 <= len(tried_at_s) <= 12
    assert pauses_s[0] <= 0.4
    assert max(pauses_s) >= 4.0
    assert parts.rollup.progress[other].problem is None
    assert (await world.stores.ledger.watermarks())[other] > world.layout.from_window
    del passes.failing[broken]
    world.clock.advance_ms(10_000)
    await parts.worker.round()
    assert parts.worker.problem() is None
    assert resting.value == 0
    await world.fold_all()
    await world.check()


async def test_store_errors_let_fewer_passes_run_at_once(world: World) -> None:
    await write_all(world)
    parts = world.worker(passes_in_parallel=4)
    allowed = metrics.FOLD_PASSES_ALLOWED.at()
    assert allowed.value == 4
    passes = Passes(parts)
    passes.failing = dict.fromkeys(range(2), StoreUnavailable("the disk is away"))
    for _ in range(5):
        await parts.worker.round()
        world.clock.advance_ms(10_000)
    assert allowed.value == 1
    assert parts.worker.report().passes_in_parallel == 1
    passes.failing = {}
    passes.at_once_max = 0
    await parts.worker.round()
    assert passes.at_once_max == 1
    for _ in range(10):
        world.clock.advance_ms(10_000)
        await parts.worker.round()
    assert allowed.value == 4
    await world.fold_all()
    await world.check()


async def test_the_shard_with_the_oldest_window_goes_first(world: World) -> None:
    await write_all(world)
    ahead = world.worker()
    closed_through = await ahead.closer.close_due()
    await ahead.pass_over(0, closed_through)
    await write_all(world)
    parts = world.worker(passes_in_parallel=1)
    passes = Passes(parts)
    await parts.worker.round()
    assert passes.began[0] == 1  # although shard 0 has as much to fold
    assert set(passes.began) == {0, 1}
    assert passes.at_once_max == 1


async def test_a_backlog_is_folded_in_passes_of_growing_size(world: World) -> None:
    """And each takes the windows that closed meanwhile too: there is no list of them."""
    views = COUNTERS[0]
    for _ in range(30):
        for _ in range(100):
            await world.write(views, 1)
        world.clock.advance_ms(1_000)
    world.clock.advance_ms(10_000)
    shard = shard_of(world.id_of("plays"), views, world.layout.shards)
    parts = world.worker(passes_in_parallel=1)
    # A pass takes no time at all by this clock, whatever the machine is like.
    parts.rollup._monotonic_s = lambda: 0.0
    passes = Passes(parts)
    await parts.worker.round()
    sizes = passes.sizes[shard]
    assert sizes[0] == 2_000
    assert sizes == sorted(sizes)
    assert len(sizes) == 2
    batch = metrics.FOLD_BATCH_COUNTERS.at(shard=str(shard))
    assert batch.value == 120
    assert metrics.FOLD_QUEUE_WINDOWS.at(shard=str(shard)).value == 0
    await world.check()


async def test_stop_finishes_the_pass_under_way_and_starts_no_other(world: World) -> None:
    await write_all(world)
    parts = world.worker(passes_in_parallel=1)
    passes = Passes(parts)
    held = {shard: passes.hold(shard) for shard in range(2)}
    task = asyncio.create_task(parts.worker.run())
    await until(lambda: bool(passes.began))
    [first] = passes.began
    assert [member for member, _ in await world.stores.membership.live()] == ["the worker"]
    parts.worker.stop()
    await settle()
    assert not task.done()
    for event in held.values():
        event.set()
    await asyncio.wait_for(task, 10)
    assert passes.began == passes.ended == [first]
    watermarks = await world.stores.ledger.watermarks()
    assert watermarks[first] > watermarks[1 - first] == world.layout.from_window - 1
    assert await world.stores.membership.live() == []
    await world.fold_all()
    await world.check()


async def test_a_worker_that_cannot_say_goodbye_ends_all_the_same(world: World) -> None:
    parts = world.worker()

    async def leave() -> None:
        raise StoreUnavailable("away")

    parts.ownership.leave = leave  # type: ignore[method-assign]
    async with running(parts):
        await until(lambda: parts.ownership.shards == [0, 1])


async def test_a_job_can_be_added(world: World) -> None:
    parts = world.worker()
    ran = asyncio.Event()

    async def audit() -> None:
        ran.set()
        raise StoreUnavailable("nothing to audit")

    parts.worker.add_job("audit", 3_600.0, audit)
    async with running(parts):
        await asyncio.wait_for(ran.wait(), 10)
        await until(lambda: parts.worker.problem() == "nothing to audit")


async def test_shards_that_changed_hands_are_folded_by_their_new_owner(world: World) -> None:
    """And a problem goes with its shard: it is not this worker's any more."""
    members = [f"member {number}" for number in range(8)]
    await write_all(world)
    first = world.worker(member=members[0])
    passes = Passes(first)
    passes.failing = dict.fromkeys(range(2), StoreUnavailable("away"))
    await first.worker.round()
    assert first.worker.problem() is not None
    others = [world.worker(member=member) for member in members[1:]]
    for _ in range(2):  # with the second beat all know of each other
        for parts in others:
            await parts.worker.round()
    passes.failing = {}
    world.clock.advance_ms(5_000)
    await first.worker.round()
    shares = [parts.ownership.shards for parts in (first, *others)]
    assert sorted(shard for share in shares for shard in share) == [0, 1]
    assert first.worker.problem() is None
    await world.fold_all()
    await world.check()


@pytest.mark.parametrize("passes_in_parallel", [1, 2])
async def test_never_more_passes_than_allowed(world: World, passes_in_parallel: int) -> None:
    await write_all(world)
    parts = world.worker(passes_in_parallel=passes_in_parallel)
    passes = Passes(parts)
    async with running(parts):
        await until(lambda: len(passes.ended) >= 4, lambda: world.clock.advance_ms(500))
    assert passes.at_once_max <= passes_in_parallel
    await world.fold_all()
    await world.check()
