"""Audits of a small platform, and what can go wrong in it."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from counter.events import Event
from counter.history import HistoryRow
from counter.namespaces import Definition, HistoryStep, Namespace, Strategy, next_snapshot
from counter.rollups import Rollup
from counter.segments import SegmentRef, decode, encode
from counter.storage.ports import FOREVER, HistoryKey, HistoryWrite
from rollup_worker.audit.audit import Audit, AuditStores, CounterAudit
from rollup_worker.audit.sampler import Sampler
from tests.stores import segment, shard_of
from tests.tampered import Scripted, Wrap
from tests.unit.rollup_worker.world import PLATFORM, World

WRITES = {
    *("event_log.append", "event_log.drop_through", "ledger.open_layout", "ledger.close"),
    *("ledger.advance", "ledger.propose", "ledger.drop_folds_through", "ledger.set_aside"),
    *("rollup_store.write", "history_store.write", "history_store.drop_expired"),
    "namespace_store.put",
}


def audit_of(world: World, wrap: Wrap | None = None) -> Audit:
    wrap = wrap or (lambda name, port: port)
    stores = world.stores
    return Audit(
        AuditStores(
            event_log=wrap("event_log", stores.event_log),
            ledger=wrap("ledger", stores.ledger),
            rollup_store=wrap("rollup_store", stores.rollup_store),
            history_store=wrap("history_store", stores.history_store),
            namespace_store=wrap("namespace_store", stores.namespace_store),
        ),
        layout=world.layout,
        platform=PLATFORM,
        clock=world.clock,
    )


def sampler_of(
    world: World, wrap: Wrap | None = None, owned: Sequence[int] | None = None, **limits: Any
) -> Sampler:
    shards = range(world.layout.shards) if owned is None else owned
    limits = {"share": 1.0, "cycle_s_min": 0.0} | limits
    return Sampler(audit_of(world, wrap), lambda: shards, **limits)


async def apply(
    world: World,
    history: tuple[HistoryStep, ...],
    strategy: Strategy = Strategy.EVENTUAL,
    shadow: Strategy | None = None,
) -> None:
    """Gives the namespace `plays` another history."""
    wanted = [Definition(name="plays", strategy=strategy, history=history, shadow=shadow)]
    snapshot = next_snapshot(world.snapshot, wanted, applied_at_ns=world.clock.now_ns())
    if snapshot is not world.snapshot:
        world.snapshot = snapshot
        assert await world.stores.namespace_store.put(world.snapshot)


def plays(world: World) -> Namespace:
    return world.snapshot.namespaces["plays"]


def shard_in(world: World, counter: str) -> int:
    return shard_of(world.id_of("plays"), counter, world.layout.shards)


async def row_of(world: World, counter: str) -> Rollup:
    [row] = await world.stores.rollup_store.read([world.key(world.id_of("plays"), counter)])
    assert row is not None
    return row


async def rewrite(world: World, counter: str, **changes: Any) -> None:
    """Somebody writes another row where the right one was."""
    row = msgspec.structs.replace(await row_of(world, counter), **changes)
    key = world.key(world.id_of("plays"), counter)
    await world.stores.rollup_store.write([(key, row)])
    assert await row_of(world, counter) == row


async def adjust(world: World, counter: str, delta: int) -> Event:
    """An adjustment, as a server writes it."""
    now_ns = world.clock.now_ns()
    event = Event(counter, now_ns, f"adjust {now_ns}", delta, ("oncall", "the audit said so"))
    window, shard = world.layout.window_of(now_ns), shard_in(world, counter)
    written = segment([event], window=window, shard=shard, namespace_id=world.id_of("plays"))
    closed = await world.stores.event_log.append([written])
    assert closed.through < window
    return event


async def history_of(world: World, counter: str, step_ms: int) -> list[HistoryRow]:
    key = HistoryKey(world.id_of("plays"), counter, step_ms)
    return await world.stores.history_store.between(key, 0, FOREVER, limit=10_000)


async def rewrite_history(world: World, counter: str, step_ms: int, row: HistoryRow) -> None:
    key = HistoryKey(world.id_of("plays"), counter, step_ms)
    await world.stores.history_store.write([HistoryWrite(key, row, 86_400_000)])


def without_row(step_ms: int, step: int) -> Scripted:
    """A history from which one state is gone."""

    async def between(call: Any, key: HistoryKey, *args: Any, **kwargs: Any) -> list[HistoryRow]:
        rows = await call(key, *args, **kwargs)
        return [row for row in rows if key.step_ms != step_ms or row.step != step]

    async def at(call: Any, keys: Sequence[HistoryKey], up_to: int) -> list[HistoryRow | None]:
        found = list(await call(keys, up_to))
        for position, (key, row) in enumerate(zip(keys, found, strict=True)):
            if row is not None and key.step_ms == step_ms and row.step == step:
                [found[position]] = await call([key], step - 1)
        return found

    scripted = Scripted()
    scripted.answers = {"history_store.between": between, "history_store.at": at}
    return scripted


def with_bodies(change: Callable[[SegmentRef, bytes], bytes | None]) -> Scripted:
    """An event log that gives other bodies than were written."""

    async def bodies(call: Any, refs: Sequence[SegmentRef]) -> list[bytes | None]:
        found = await call(refs)
        return [
            body if body is None else change(ref, body)
            for ref, body in zip(refs, found, strict=True)
        ]

    scripted = Scripted()
    scripted.answers = {"event_log.bodies": bodies}
    return scripted


def lost(segment_id: bytes) -> Scripted:
    return with_bodies(lambda ref, body: None if ref.segment_id == segment_id else body)


def unreadable(segment_id: bytes) -> Scripted:
    return with_bodies(lambda ref, body: body[:-1] if ref.segment_id == segment_id else body)


def doubled(segment_id: bytes) -> Scripted:
    """A segment with valid events of the wrong size."""

    def change(ref: SegmentRef, body: bytes) -> bytes:
        if ref.segment_id != segment_id:
            return body
        return encode(
            [msgspec.structs.replace(each, delta=2 * (each.delta or 1)) for each in decode(body)]
        )

    return with_bodies(change)


async def live(
    world: World,
    counters: Sequence[str],
    *,
    seed: int,
    events: int,
    apart_ms: int = 1_500,
    clears: bool = True,
) -> None:
    """Adds, clears and retries at random times, folded now and then."""
    chance = random.Random(seed)
    parts = world.worker()
    for _ in range(events):
        world.clock.advance_ms(chance.randrange(apart_ms))
        counter = chance.choice(counters)
        delta = None if clears and chance.random() < 0.1 else chance.choice((-3, 1, 2, 50))
        event = await world.write(counter, delta)
        if chance.random() < 0.2:
            await world.write(counter, delta, time_ns=event.time_ns, token=event.token)
        if chance.random() < 0.2:
            await parts.worker.round()
    await world.fold_all()


async def audited(world: World, counters: Sequence[str], wrap: Wrap | None = None) -> list[str]:
    """What is wrong with each of the counters, in words; nothing if all are equal."""
    audit = audit_of(world, wrap)
    found: list[str] = []
    for counter in counters:
        result = await audit.counter("plays", counter)
        assert result.is_different == any(not each.is_repaired for each in result.differences)
        found += [f"{counter}: {each}" for each in result.differences]
        if not result.is_different:
            assert result.expected.count == result.actual.count
    return found


def kinds(audit: CounterAudit) -> list[str]:
    return [each.kind.value for each in audit.differences]
