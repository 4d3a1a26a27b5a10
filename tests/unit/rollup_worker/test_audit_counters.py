"""AuditCounter: equal when all is right; what is wrong is found, with the windows it comes from."""

import asyncio
import random

import msgspec
import pytest

from counter.clock import NS_PER_MS
from counter.errors import (
    AuditWithoutBase,
    NamespaceUnknown,
    Overloaded,
    StoreUnavailable,
    Unsupported,
)
from counter.events import Event
from counter.namespaces import HistoryStep, Strategy
from rollup_worker.audit.values import BaseKind, DifferenceKind
from tests.stores import KEEPING, segment
from tests.tampered import Scripted, Tampered, settle
from tests.unit.rollup_worker.audits import (
    WRITES,
    adjust,
    apply,
    audit_of,
    audited,
    doubled,
    history_of,
    kinds,
    live,
    lost,
    rewrite,
    rewrite_history,
    row_of,
    shard_in,
    unreadable,
    without_row,
)
from tests.unit.rollup_worker.world import COUNTERS, HISTORY, PLATFORM, World, yielding

RETENTION_MS = PLATFORM.log_retention_s * 1_000
STEP_MS = HISTORY[0].step_ms

keeping = pytest.mark.parametrize("stores", KEEPING, indirect=True)


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_right_is_equal_whatever_happened(world: World, seed: int) -> None:
    await live(world, COUNTERS[:4], seed=seed, events=60)
    await world.check()
    assert await audited(world, COUNTERS) == []
    audit = await audit_of(world).counter("plays", COUNTERS[0])
    acknowledged = world.acknowledged[world.id_of("plays"), COUNTERS[0]]
    assert audit.base is not None
    assert (audit.base.kind, audit.events) == (BaseKind.START, len(acknowledged))


@keeping
@pytest.mark.parametrize("seed", range(4))
async def test_it_stays_equal_while_events_and_history_expire(world: World, seed: int) -> None:
    """On bases from the history, once the first events are gone; and with a history that changes:
    other steps, none at all, and again."""
    steps = (
        HistoryStep(step_ms=60_000, retention_ms=4_000_000),
        HistoryStep(step_ms=600_000, retention_ms=9_000_000),
    )
    await apply(world, steps)
    chance = random.Random(seed)
    bases: set[BaseKind] = set()
    for era in range(10):
        if era in (4, 5, 6):
            await apply(world, chance.choice((steps, steps[1:], (), steps[:1])))
        await live(world, COUNTERS[:3], seed=seed * 100 + era, events=40, apart_ms=60_000)
        parts = world.worker()
        await parts.retention.forget()
        await parts.retention.forget_history()
        audit = audit_of(world)
        shard = shard_in(world, COUNTERS[0])
        namespace = world.snapshot.namespaces["plays"]
        found = await audit.shard(shard, [(namespace, COUNTERS[0])], verify=True)
        assert found.segments == []
        assert found.counters[0].differences == ()
        if found.counters[0].base is not None:
            bases.add(found.counters[0].base.kind)
        for counter in COUNTERS[:3]:
            try:
                assert await audited(world, [counter]) == []
            except AuditWithoutBase:
                assert era >= 4
    assert bases == {BaseKind.START, BaseKind.HISTORY}


@keeping
async def test_a_wrong_rollup_is_found_with_the_windows_that_it_comes_from(world: World) -> None:
    await live(world, ["views"], seed=1, events=20, clears=False)
    right = await row_of(world, "views")
    await rewrite(world, "views", count=right.count + 5, total=right.total + 5)
    audit = await audit_of(world).counter("plays", "views")
    assert audit.is_different
    assert (audit.expected.count, audit.actual.count) == (right.count, right.count + 5)
    [difference] = audit.differences
    assert difference.kind is DifferenceKind.ROLLUP
    assert (difference.expected, difference.actual) == (right.count, right.count + 5)
    last = (await history_of(world, "views", STEP_MS))[-1]
    assert difference.from_window == last.state.through_window + 1
    assert difference.from_window <= right.changed_window <= difference.to_window
    assert difference.to_window == right.through_window
    assert str(right.count + 5) in difference.message


@keeping
async def test_an_error_that_went_on_into_the_history_is_one_cause(world: World) -> None:
    await live(world, ["views"], seed=1, events=20, clears=False)
    right = await row_of(world, "views")
    await rewrite(world, "views", count=right.count + 5, total=right.total + 5)
    before = len(await history_of(world, "views", STEP_MS))
    await live(world, ["views"], seed=2, events=20, clears=False)
    assert len(await history_of(world, "views", STEP_MS)) > before + 3
    audit = await audit_of(world).counter("plays", "views")
    assert kinds(audit) == ["history", "rollup"]
    assert audit.actual.count == audit.expected.count + 5
    for difference in audit.differences:
        assert difference.from_window <= right.changed_window <= difference.to_window
        assert difference.actual == difference.expected + 5


@keeping
@pytest.mark.parametrize("changes", [{"epoch": 7}, {"cleared_at_ns": 1}, {"total": 10**30}])
async def test_every_part_of_a_state_is_compared(world: World, changes: dict[str, int]) -> None:
    await live(world, ["views"], seed=1, events=10)
    await rewrite(world, "views", **changes)
    assert kinds(await audit_of(world).counter("plays", "views")) == ["rollup"]


@keeping
async def test_a_wrong_rolling_window_is_found(world: World) -> None:
    await live(world, ["views"], seed=1, events=10, clears=False)
    recent = (await row_of(world, "views")).recent
    assert recent is not None
    [*_, (window, delta)] = recent.deltas
    wrong = msgspec.structs.replace(recent, deltas=((window, delta + 1),))
    await rewrite(world, "views", recent=wrong)
    audit = await audit_of(world).counter("plays", "views")
    assert kinds(audit) == ["rollup"]
    assert audit.differences[0].to_window == window


@keeping
async def test_a_rollup_that_a_fold_missed_is_found_without_any_base(world: World) -> None:
    """No history, and the first event is gone: what can be known is what came after the row."""
    await apply(world, ())
    await world.write("views", 1)
    await world.fold_all()
    world.clock.advance_ms(2 * RETENTION_MS)
    await world.write("views", 1)
    await world.fold_all()
    old = await row_of(world, "views")
    await world.worker().retention.forget()
    with pytest.raises(AuditWithoutBase, match="give the namespace a history"):
        await audit_of(world).counter("plays", "views")
    await world.write("views", 10)
    await world.fold_all()
    scripted = Scripted()

    async def read(call: object, keys: object) -> list[object]:
        return [old]

    scripted.answers = {"rollup_store.read": read}
    audit = await audit_of(world, scripted.wrap).counter("plays", "views")
    assert audit.base is None
    assert kinds(audit) == ["rollup"]
    assert (audit.expected.count, audit.actual.count) == (12, 2)


async def test_a_removed_state_of_the_history_is_found(world: World) -> None:
    await live(world, ["views"], seed=1, events=20)
    for step_ms in (each.step_ms for each in HISTORY):
        for row in await history_of(world, "views", step_ms):
            wrap = without_row(step_ms, row.step).wrap
            audit = await audit_of(world, wrap).counter("plays", "views")
            [difference] = audit.differences
            assert difference.kind is DifferenceKind.HISTORY_MISSING
            assert audit.is_different
            in_step = world.layout.step_of(difference.from_window, step_ms)
            assert in_step == row.step
            assert difference.to_window == world.layout.last_window_of_step(
                row.until_step - 1, step_ms
            )


@keeping
async def test_a_removed_state_is_found_where_no_events_are_kept_any_more(world: World) -> None:
    """By the chain alone: each state says when the next one began."""
    await live(world, ["views"], seed=1, events=20)
    world.clock.advance_ms(2 * RETENTION_MS)
    await live(world, ["views"], seed=2, events=20)
    await world.worker().retention.forget()
    assert await audited(world, ["views"]) == []
    old = (await history_of(world, "views", STEP_MS))[:5]
    for row in old:
        audit = await audit_of(world, without_row(STEP_MS, row.step).wrap).counter("plays", "views")
        assert audit.base is not None
        assert audit.base.kind is BaseKind.HISTORY
        assert kinds(audit) == ["history missing"]
        assert world.layout.step_of(audit.differences[0].from_window, STEP_MS) == row.step


@keeping
async def test_a_changed_state_of_the_history_is_found(world: World) -> None:
    await live(world, ["views"], seed=1, events=20)
    rows = await history_of(world, "views", STEP_MS)
    row = rows[4]
    state = msgspec.structs.replace(row.state, count=row.state.count - 1)
    await rewrite_history(world, "views", STEP_MS, msgspec.structs.replace(row, state=state))
    audit = await audit_of(world).counter("plays", "views")
    [difference] = audit.differences
    assert audit.is_different
    assert difference.kind is DifferenceKind.HISTORY
    assert (difference.expected, difference.actual) == (row.state.count, row.state.count - 1)
    assert rows[3].state.through_window < difference.from_window <= row.state.changed_window
    assert difference.to_window == row.state.through_window


@keeping
async def test_a_state_that_nothing_explains_is_found(world: World) -> None:
    await world.write("views", 1)
    world.clock.advance_ms(10 * STEP_MS)
    await world.write("views", 1)
    world.clock.advance_ms(10 * STEP_MS)
    await world.write("views", 1)
    await world.fold_all()
    first, _ = await history_of(world, "views", STEP_MS)
    invented = msgspec.structs.replace(first, step=first.step + 3)
    await rewrite_history(world, "views", STEP_MS, invented)
    assert "history" in kinds(await audit_of(world).counter("plays", "views"))


async def test_changed_and_lost_segments_are_found(world: World) -> None:
    for _ in range(6):
        await world.write("views", 10)
        await world.write(COUNTERS[0], 10)
        world.clock.advance_ms(STEP_MS)
    await world.fold_all()
    records = await world.records(shard_in(world, "views"))
    refs = [ref for record in records for ref in record.segments]
    third = refs[2]
    for tamper in (doubled, unreadable, lost):
        audit = await audit_of(world, tamper(third.segment_id).wrap).counter("plays", "views")
        assert audit.is_different
        of_segments = [each for each in audit.differences if each.kind.value == "segments"]
        assert len(of_segments) == 1, tamper
        assert of_segments[0].from_window <= third.window <= of_segments[0].to_window
        if tamper is not doubled:  # and the rest is counted from a later base
            assert audit.base is not None
            assert audit.base.kind is BaseKind.HISTORY
            assert audit.base.through_window >= third.window
            assert kinds(audit) == ["segments"]


async def test_lost_fold_records_are_found(world: World) -> None:
    await live(world, ["views"], seed=3, events=20)
    records = await world.records(shard_in(world, "views"))
    gone = [each for each in records if each.segments][2]
    scripted = Scripted()

    async def folds(call: object, *args: object) -> list[object]:
        return [each for each in await call(*args) if each != gone]  # type: ignore[operator]

    scripted.answers = {"ledger.folds": folds}
    audit = await audit_of(world, scripted.wrap).counter("plays", "views")
    assert kinds(audit)[0] == "segments"
    assert audit.differences[0].from_window == gone.from_window
    assert audit.differences[0].to_window == gone.to_window


@keeping
async def test_a_repaired_counter_is_equal_and_shows_what_was(world: World) -> None:
    await live(world, ["views"], seed=1, events=20, clears=False)
    right = await row_of(world, "views")
    await rewrite(world, "views", count=right.count + 5)
    await live(world, ["views"], seed=2, events=20, clears=False)
    world.clock.advance_ms(STEP_MS * 5)
    await adjust(world, "views", -5)
    await live(world, ["views"], seed=3, events=10, clears=False)
    audit = await audit_of(world).counter("plays", "views")
    assert not audit.is_different
    assert audit.expected.count == audit.actual.count
    assert [event.delta for event in audit.adjustments] == [-5]
    assert kinds(audit) == ["history"]
    assert audit.differences[0].is_repaired
    # And when the error itself is older than what is kept, on a base that holds it.
    parts = world.worker()
    adjusted_ns = audit.adjustments[0].time_ns
    world.clock.advance_ms(
        (adjusted_ns - world.clock.now_ns()) // NS_PER_MS + RETENTION_MS - 85_000
    )
    await live(world, ["views"], seed=4, events=3, clears=False)
    await parts.retention.forget()
    audit = await audit_of(world).counter("plays", "views")
    assert audit.base is not None
    assert audit.base.kind is BaseKind.HISTORY
    assert len(audit.adjustments) == 1
    assert not audit.is_different
    assert audit.expected.count == audit.actual.count


@keeping
async def test_an_adjustment_that_undid_nothing_is_a_difference(world: World) -> None:
    await live(world, ["views"], seed=1, events=10)
    await adjust(world, "views", 100)
    await world.fold_all()
    world.clock.advance_ms(10_000)
    await world.fold_all()
    audit = await audit_of(world).counter("plays", "views")
    assert audit.is_different
    assert audit.actual.count == audit.expected.count + 100


@keeping
async def test_a_base_can_be_named(world: World) -> None:
    await live(world, ["views"], seed=1, events=30)
    rows = await history_of(world, "views", STEP_MS)
    audit = audit_of(world)
    for row in rows:
        base_ns = world.layout.complete_through_ns(row.state.through_window)
        found = await audit.counter("plays", "views", base_ns)
        assert found.base is not None
        assert (found.base.kind, found.base.state) == (BaseKind.HISTORY, row.state)
        assert found.base.through_window == row.state.through_window
        assert not found.is_different
    begin_ns = world.layout.start_ns(rows[0].state.first_window)
    found = await audit.counter("plays", "views", begin_ns - 1)
    assert found.base is not None
    assert found.base.kind is BaseKind.START
    with pytest.raises(AuditWithoutBase, match="base_time"):
        await audit.counter("plays", "views", begin_ns + 1)


@pytest.mark.parametrize("seed", range(6))
async def test_folds_that_go_on_make_no_difference(world: World, seed: int) -> None:
    await live(world, COUNTERS[:2], seed=seed, events=20)
    done = False

    async def go_on() -> None:
        nonlocal done
        for number in range(15):
            await world.write(COUNTERS[number % 2], 1)
            world.clock.advance_ms(1_700)
            await world.worker(yielding(seed * 50 + number)).worker.round()
        done = True

    async def look() -> None:
        audit = audit_of(world, yielding(seed + 1_000))
        while not done:
            for counter in COUNTERS[:2]:
                found = await audit.counter("plays", counter)
                assert found.differences == ()

    await asyncio.gather(go_on(), look())
    await world.fold_all()
    await world.check()


@keeping
async def test_retention_that_goes_on_makes_no_difference(world: World) -> None:
    await live(world, ["views"], seed=1, events=10)
    # Just inside of what is kept when the audit begins, and gone when it reads.
    first_ns = world.layout.start_ns((await row_of(world, "views")).first_window)
    world.clock.advance_ms((first_ns - world.clock.now_ns()) // NS_PER_MS + RETENTION_MS - 70_000)
    await live(world, ["views"], seed=2, events=10)
    forgotten = False

    async def around(name: str, call: object, *args: object, **kwargs: object) -> object:
        nonlocal forgotten
        if name == "event_log.bodies" and not forgotten:
            forgotten = True
            world.clock.advance_ms(120_000)
            await world.worker().retention.forget()
        return await call(*args, **kwargs)  # type: ignore[operator]

    audit = audit_of(world, lambda name, port: Tampered(name, port, around))
    found = await audit.counter("plays", "views")
    assert forgotten
    assert found.differences == ()
    assert found.base is not None
    assert found.base.kind is BaseKind.HISTORY


async def test_an_audit_writes_nothing(world: World) -> None:
    await live(world, COUNTERS[:2], seed=1, events=20)
    calls: set[str] = set()

    async def around(name: str, call: object, *args: object, **kwargs: object) -> object:
        assert name not in WRITES, name
        calls.add(name)
        return await call(*args, **kwargs)  # type: ignore[operator]

    audit = audit_of(world, lambda name, port: Tampered(name, port, around))
    await audit.counter("plays", COUNTERS[0])
    window = (await world.stores.ledger.watermarks())[0]
    await audit.window(0, world.layout.start_ns(window))
    assert calls >= {"event_log.bodies", "rollup_store.read", "history_store.between"}


@keeping
async def test_a_counter_that_nobody_added_to_is_equal(world: World) -> None:
    audit = await audit_of(world).counter("plays", "nobody")
    assert not audit.is_different
    assert (audit.events, audit.expected.count, audit.actual.count) == (0, 0, 0)


@keeping
async def test_what_is_not_there_to_audit(world: World) -> None:
    audit = audit_of(world)
    with pytest.raises(NamespaceUnknown):
        await audit.counter("nothing", "views")
    await apply(world, (), Strategy.BEST_EFFORT)
    with pytest.raises(Unsupported):
        await audit.counter("plays", "views")
    await live(world, ["views"], seed=1, events=10)
    await apply(world, (), Strategy.BEST_EFFORT, shadow=Strategy.EVENTUAL)
    found = await audit.counter("plays", "views")  # the shadow has events
    assert (found.is_different, found.events > 0) == (False, True)


@keeping
async def test_a_counter_that_has_long_been_still_has_nothing_to_audit(world: World) -> None:
    await live(world, ["views"], seed=1, events=10)
    world.clock.advance_ms(2 * RETENTION_MS)
    await world.fold_all()
    await world.worker().retention.forget()
    with pytest.raises(AuditWithoutBase, match="nothing to count again"):
        await audit_of(world).counter("plays", "views")


@pytest.mark.parametrize("stores", ["memory"], indirect=True)
async def test_only_so_many_audits_run_at_once(world: World) -> None:
    await world.write("views", 1)
    await world.fold_all()
    scripted = Scripted()
    held = scripted.hold("rollup_store.read")
    audit = audit_of(world, scripted.wrap)
    running = [asyncio.create_task(audit.counter("plays", "views")) for _ in range(4)]
    await settle()
    assert scripted.in_flight["rollup_store.read"] == 4
    with pytest.raises(Overloaded):
        await audit.counter("plays", "views")
    held.set()
    assert [found.is_different for found in await asyncio.gather(*running)] == [False] * 4
    await audit.counter("plays", "views")


@keeping
async def test_a_store_that_is_away_is_an_error_and_not_a_difference(world: World) -> None:
    await world.write("views", 1)
    await world.fold_all()
    scripted = Scripted()

    async def away(call: object, *args: object, **kwargs: object) -> None:
        raise StoreUnavailable("away")

    scripted.answers = {"event_log.bodies": away}
    with pytest.raises(StoreUnavailable):
        await audit_of(world, scripted.wrap).counter("plays", "views")


@keeping
async def test_adjustments_that_are_not_folded_yet_are_shown_with_a_difference(
    world: World,
) -> None:
    await world.write("views", 5)
    await world.fold_all()
    namespace_id, now_ns = world.id_of("plays"), world.clock.now_ns()
    shard = shard_in(world, "views")
    note = ("oncall", "a wrong row")
    events = [
        Event("views", now_ns, "adjustment", -1, note),
        Event("views", now_ns, "adjustment", -1, note),
        Event("others", now_ns, "another", -1, note),
        Event("views", now_ns, "an add", 3),
    ]
    window = world.layout.window_of(now_ns)
    written = segment(events, window=window, shard=shard, namespace_id=namespace_id)
    await world.stores.event_log.append([written])
    audit = await audit_of(world).counter("plays", "views")
    assert (audit.is_different, audit.pending_adjustments) == (False, ())
    await rewrite(world, "views", count=6, total=6)
    audit = await audit_of(world).counter("plays", "views")
    assert audit.is_different
    assert [(each.delta, each.note) for each in audit.pending_adjustments] == [(-1, note)]
