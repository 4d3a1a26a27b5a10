"""The worker's rounds: trouble stays where it is, shows, and passes."""

import asyncio
from typing import Any

import pytest

from counter.errors import StoreUnavailable
from rollup_worker import schedule
from tests.stores import segment, shard_of
from tests.tampered import Tampered
from tests.unit.rollup_worker.waiting import until
from tests.unit.rollup_worker.world import COUNTERS, WorkerParts, World


async def _damage(world: World, body: bytes) -> int:
    """Puts a segment that cannot be decoded beside good ones; answers with its shard."""
    event = await world.write("views", 1)
    shard = shard_of(world.id_of("plays"), "views", world.layout.shards)
    window = world.layout.window_of(event.time_ns)
    broken = segment([event], window=window, shard=shard, namespace_id=world.id_of("plays"))
    await world.stores.event_log.append([broken._replace(body=body)])
    return shard


async def test_a_damaged_segment_stops_its_shard_alone(world: World) -> None:
    for counter in COUNTERS:
        await world.write(counter, 1)
    damaged = await _damage(world, b"\x01 not what was written")
    world.clock.advance_ms(10_000)
    parts = world.worker()
    for _ in range(2):
        await parts.worker.round()
        closed = (await world.stores.ledger.closed()).through
        watermarks = await world.stores.ledger.watermarks()
        assert watermarks[1 - damaged] == closed
        assert watermarks[damaged] == world.layout.from_window - 1
        problem = parts.worker.problem()
        assert problem is not None
        assert problem.startswith(f"shard {damaged}: segment ")
        assert "cannot be read" in problem
        assert "tally quarantine" in problem
        assert parts.rollup.progress[1 - damaged].problem is None
    # Nothing of the damaged shard was written, everything of the other was.
    rollups = await world.rollups()
    for (namespace_id, counter), expected in world.expected().items():
        healthy = shard_of(namespace_id, counter, world.layout.shards) != damaged
        assert rollups[namespace_id, counter] == (expected if healthy else (0, 0, 0))


async def test_a_mistake_of_ours_shows_as_a_problem_too(world: World) -> None:
    """It must not end the worker in silence."""
    await world.write("views", 1)
    shard = shard_of(world.id_of("plays"), "views", world.layout.shards)
    world.clock.advance_ms(10_000)

    async def around(name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "event_log.bodies":
            raise ZeroDivisionError("surprise")
        return await call(*args, **kwargs)

    parts = world.worker(lambda name, port: Tampered(name, port, around))
    await parts.worker.round()
    problem = parts.worker.problem()
    assert problem is not None
    assert problem.startswith(f"shard {shard}: ")
    assert "surprise" in problem
    assert (await world.stores.ledger.watermarks())[1 - shard] > world.layout.from_window


class _Flaky:
    """A store that is away until it is told to come back."""

    def __init__(self, error: Exception, failing: str) -> None:
        self.away = True
        self._error = error
        self._failing = failing

    def wrap(self, name: str, port: Any) -> Any:
        async def around(name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
            if self.away and name == self._failing:
                raise self._error
            return await call(*args, **kwargs)

        return Tampered(name, port, around)


@pytest.mark.parametrize(
    ("error", "failing"),
    [
        (StoreUnavailable("the disk is away"), "ledger.closed"),
        (StoreUnavailable("the disk is away"), "event_log.refs"),
        (StoreUnavailable("the disk is away"), "event_log.drop_through"),
        (StoreUnavailable("the disk is away"), "history_store.drop_expired"),
        (StoreUnavailable("the disk is away"), "membership.beat"),
        (KeyError("the disk is away"), "ledger.closed"),
    ],
)
async def test_the_worker_goes_on_when_the_store_is_back(
    world: World, error: Exception, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "RETRY_S", 0.01)
    for counter in COUNTERS:
        await world.write(counter, 1)
    world.clock.advance_ms(10_000)
    flaky = _Flaky(error, failing)
    parts: WorkerParts = world.worker(flaky.wrap)
    running = asyncio.create_task(parts.worker.run())
    await until(lambda: parts.worker.problem() is not None)
    assert "the disk is away" in (parts.worker.problem() or "")
    flaky.away = False
    # Shards rest by the tests' clock.
    await until(lambda: parts.worker.problem() is None, lambda: world.clock.advance_ms(100))
    parts.worker.stop()
    await asyncio.wait_for(running, 10)
    await world.fold_all()
    await world.check()


async def test_stop_ends_the_run(world: World) -> None:
    parts = world.worker()
    running = asyncio.create_task(parts.worker.run())
    await asyncio.sleep(0)
    parts.worker.stop()
    await asyncio.wait_for(running, 10)
    assert parts.worker.problem() is None


async def test_progress_says_what_the_last_pass_did(world: World) -> None:
    first = await world.write("views", 1)
    await world.write("views", 1, time_ns=first.time_ns, token=first.token)
    shard = shard_of(world.id_of("plays"), "views", world.layout.shards)
    world.clock.advance_ms(10_000)
    parts = world.worker()
    await parts.worker.round()
    progress = parts.rollup.progress[shard]
    assert (progress.events, progress.counts.duplicates) == (2, 1)
    assert progress.last_pass_events == 2
    assert progress.last_pass_s > 0
