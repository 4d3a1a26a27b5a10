"""The background audit: everything is audited in one cycle, what is wrong shows once."""

import asyncio

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from counter.errors import StoreUnavailable
from counter.metrics import AUDIT_CYCLES, AUDIT_DIFFERENT, AUDIT_RESULTS, AUDITED
from counter.namespaces import Definition, Strategy, next_snapshot
from rollup_worker.audit import sampler as sampler_module
from rollup_worker.audit import scan
from tests.stores import KEEPING
from tests.tampered import Scripted, settle
from tests.unit.rollup_worker.audits import (
    adjust,
    apply,
    doubled,
    history_of,
    live,
    lost,
    rewrite,
    rewrite_history,
    row_of,
    sampler_of,
    shard_in,
    without_row,
)
from tests.unit.rollup_worker.world import COUNTERS, HISTORY, PLATFORM, World

keeping = pytest.mark.parametrize("stores", KEEPING, indirect=True)
STEP_MS = HISTORY[0].step_ms


class Measured:
    """What the metrics have gained since."""

    def __init__(self) -> None:
        self._before = self._now()

    @staticmethod
    def _now() -> dict[str, float]:
        now: dict[str, float] = {each: AUDITED.at(result=each).value for each in AUDIT_RESULTS}
        return now | {"cycles": AUDIT_CYCLES.at().value}

    def gained(self) -> dict[str, float]:
        gained = {name: value - self._before[name] for name, value in self._now().items()}
        return {name: value for name, value in gained.items() if value}


def found_in(logs: list[structlog.typing.EventDict]) -> list[structlog.typing.EventDict]:
    return [each for each in logs if each.get("action") == "audit_difference"]


async def test_a_cycle_goes_through_all_counters_of_all_namespaces(world: World) -> None:
    await world.apply("plays", "likes")
    for counter in COUNTERS:
        await world.write(counter, 1)
        await world.write(counter, 1, namespace="likes")
    await world.fold_all()
    measured = Measured()
    sampler = sampler_of(world, counters_per_tick=3)
    for _ in range(5):
        await sampler.tick()
    assert measured.gained() == {"equal": 15}
    await sampler.tick()
    assert measured.gained() == {"equal": 16, "cycles": 1}
    assert sampler.differences == 0
    assert AUDIT_DIFFERENT.at().value == 0
    await sampler.tick()
    assert measured.gained()["equal"] == 19


async def test_each_worker_audits_its_own_shards(world: World) -> None:
    for counter in COUNTERS:
        await world.write(counter, 1)
    await world.fold_all()
    measured = Measured()
    await sampler_of(world, owned=[1]).tick()
    of_shard = [each for each in COUNTERS if shard_in(world, each) == 1]
    assert 0 < len(of_shard) < len(COUNTERS)
    assert measured.gained() == {"equal": len(of_shard), "cycles": 1}


@keeping
async def test_a_wrong_rollup_is_found_in_one_cycle_and_said_once(world: World) -> None:
    await live(world, COUNTERS, seed=1, events=40)
    sampler = sampler_of(world)
    await sampler.tick()
    right = await row_of(world, COUNTERS[3])
    await rewrite(world, COUNTERS[3], count=right.count + 1)
    measured = Measured()
    with capture_logs() as logs:
        for _ in range(3):
            await sampler.tick()
    others = len(world.acknowledged) - 1
    assert measured.gained() == {"equal": 3 * others, "different": 3, "cycles": 3}
    assert (sampler.differences, AUDIT_DIFFERENT.at().value) == (1, 1)
    [said] = found_in(logs)
    assert (said["counter"], said["namespace"], said["kind"]) == (COUNTERS[3], "plays", "rollup")
    assert (said["expected"], said["actual"]) == (right.count, right.count + 1)
    await adjust(world, COUNTERS[3], -1)
    world.clock.advance_ms(10_000)
    await world.fold_all()
    await sampler.tick()
    assert sampler.differences == 0
    await rewrite(world, COUNTERS[3], count=right.count + 7)
    with capture_logs() as logs:
        await sampler.tick()
    assert len(found_in(logs)) == 1


@keeping
async def test_a_removed_and_a_changed_state_are_found_in_one_cycle(world: World) -> None:
    await live(world, COUNTERS[:2], seed=1, events=30)
    row = (await history_of(world, COUNTERS[0], STEP_MS))[3]
    sampler = sampler_of(world, without_row(STEP_MS, row.step).wrap)
    with capture_logs() as logs:
        await sampler.tick()
    assert {each["kind"] for each in found_in(logs)} == {"history missing"}
    assert COUNTERS[0] in {each["counter"] for each in found_in(logs)}
    state = msgspec.structs.replace(row.state, count=row.state.count + 1)
    await rewrite_history(world, COUNTERS[0], STEP_MS, msgspec.structs.replace(row, state=state))
    sampler = sampler_of(world)
    with capture_logs() as logs:
        await sampler.tick()
    [said] = found_in(logs)
    assert (said["kind"], said["counter"]) == ("history", COUNTERS[0])


async def test_changed_and_lost_segments_are_found_in_one_cycle(world: World) -> None:
    await live(world, COUNTERS, seed=1, events=30)
    [*_, last] = [each for each in await world.records(0) if each.segments]
    ref = last.segments[0]
    for tamper in (doubled, lost):
        sampler = sampler_of(world, tamper(ref.segment_id).wrap)
        with capture_logs() as logs:
            await sampler.tick()
        found = found_in(logs)
        assert found, tamper
        if tamper is lost:  # the counters are not to blame
            [said] = found
            assert (said["kind"], said["shard"], said["from_window"]) == ("segments", 0, ref.window)


async def test_a_changed_segment_of_a_new_fold_is_found_by_its_digest_alone(world: World) -> None:
    sampler = sampler_of(world)
    for _ in range(8):
        await world.write("views", 1)
        await world.fold_all()
        await sampler.tick()
    assert sampler.differences == 0
    shard = shard_in(world, "views")
    await world.write("views", 1)
    await world.fold_all()
    [*_, last] = [each for each in await world.records(shard) if each.segments]
    # Not a cycle: the counters are left to the next turns.
    other = sampler_of(world, doubled(last.segments[0].segment_id).wrap, counters_per_tick=1)
    with capture_logs() as logs:
        await other.tick()
    assert ("fold" if "counter" not in found_in(logs)[0] else "counter") == "fold"
    assert found_in(logs)[0]["from_window"] == last.from_window


@keeping
async def test_counters_without_a_base_are_counted_as_such(world: World) -> None:
    await apply(world, ())
    await world.write("views", 1)
    await world.fold_all()
    world.clock.advance_ms(PLATFORM.log_retention_s * 1_000)
    await world.fold_all()
    await world.worker().retention.forget()
    measured = Measured()
    await sampler_of(world).tick()
    assert measured.gained() == {"without_base": 1, "cycles": 1}


@keeping
async def test_namespaces_without_events_are_left_out(world: World) -> None:
    wanted = [Definition(name="clicks", strategy=Strategy.BEST_EFFORT)]
    world.snapshot = next_snapshot(world.snapshot, wanted, applied_at_ns=world.clock.now_ns())
    assert await world.stores.namespace_store.put(world.snapshot)
    scripted = Scripted()
    measured = Measured()
    await sampler_of(world, scripted.wrap).tick()
    assert scripted.calls["rollup_store.page"] == 0
    assert measured.gained() == {"cycles": 1}


@keeping
async def test_a_shadow_is_audited(world: World) -> None:
    await apply(world, (), Strategy.BEST_EFFORT, shadow=Strategy.EVENTUAL)
    await world.write("views", 1)
    await world.fold_all()
    measured = Measured()
    await sampler_of(world).tick()
    assert measured.gained() == {"equal": 1, "cycles": 1}


@keeping
async def test_a_store_that_is_away_is_waited_for(world: World) -> None:
    await world.write("views", 1)
    await world.fold_all()
    scripted = Scripted()

    async def away(call: object, *args: object, **kwargs: object) -> None:
        raise StoreUnavailable("away")

    sampler = sampler_of(world, scripted.wrap)
    scripted.answers = {"rollup_store.read": away}
    measured = Measured()
    with capture_logs() as logs:
        await sampler.tick()
        await sampler.tick()
    assert [each["action"] for each in logs] == ["audit_failed"]
    assert measured.gained() == {"failed": 2}
    scripted.answers = {}
    await sampler.tick()
    assert measured.gained() == {"failed": 2, "equal": 1, "cycles": 1}


@keeping
async def test_a_mistake_of_ours_does_not_stop_the_others(world: World) -> None:
    for counter in COUNTERS:
        await world.write(counter, 1)
    await world.fold_all()
    scripted = Scripted()

    async def broken(call: object, keys: list[object]) -> object:
        assert not any(COUNTERS[0] in str(key) for key in keys)
        return await call(keys)  # type: ignore[operator]

    scripted.answers = {"rollup_store.read": broken}
    measured = Measured()
    with capture_logs() as logs:
        await sampler_of(world, scripted.wrap, counters_per_tick=1).tick()
        sampler = sampler_of(world, scripted.wrap)
        await sampler.tick()
    assert "audit_failed" in [each["action"] for each in logs]
    assert measured.gained()["equal"] > 0
    assert measured.gained()["cycles"] == 1


@keeping
async def test_it_remembers_a_bounded_number_of_differences(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "DIFFERENCES_MAX", 3)
    for counter in COUNTERS:
        await world.write(counter, 1)
    await world.fold_all()
    for counter in COUNTERS:
        await rewrite(world, counter, count=2)
    sampler = sampler_of(world)
    measured = Measured()
    with capture_logs() as logs:
        await sampler.tick()
    assert (sampler.differences, len(found_in(logs))) == (3, 3)
    assert measured.gained() == {"different": 8, "cycles": 1}


@keeping
async def test_states_are_compared_as_they_come_when_there_are_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_PENDING_MAX", 3)
    monkeypatch.setattr(scan, "_ROWS_PER_PAGE", 2)
    await live(world, COUNTERS[:2], seed=1, events=40)
    sampler = sampler_of(world)
    await sampler.tick()
    assert sampler.differences == 0
    row = (await history_of(world, COUNTERS[0], STEP_MS))[2]
    sampler = sampler_of(world, without_row(STEP_MS, row.step).wrap)
    await sampler.tick()
    assert sampler.differences >= 1


@keeping
async def test_a_cycle_begins_at_most_once_a_minute(world: World) -> None:
    await world.write("views", 1)
    await world.fold_all()
    now_s = 1_000.0
    sampler = sampler_of(world, cycle_s_min=60.0, monotonic_s=lambda: now_s)
    measured = Measured()
    for seconds, cycles in ((0.0, 1), (30.0, 1), (29.0, 1), (1.0, 2), (59.0, 2)):
        now_s += seconds
        await sampler.tick()
        assert measured.gained() == {"equal": cycles, "cycles": cycles}


@pytest.mark.parametrize("stores", ["memory"], indirect=True)
async def test_it_works_for_a_share_of_the_time_and_stops_at_once(world: World) -> None:
    await world.write("views", 1)
    await world.fold_all()
    now_s = 0.0

    def monotonic_s() -> float:
        nonlocal now_s
        now_s += 1.0  # a second of work between any two looks at the clock
        return now_s

    sampler = sampler_module.Sampler(
        sampler_of(world)._audit, lambda: [0, 1], share=0.5, monotonic_s=monotonic_s
    )
    measured = Measured()
    turn = asyncio.create_task(sampler.tick())
    await settle()
    assert not turn.done()  # it rests for as long as it has worked
    sampler.stop()
    await turn
    assert measured.gained() == {}
