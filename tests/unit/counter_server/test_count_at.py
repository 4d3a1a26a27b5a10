"""GetCountAt: exact where the rollup tells, else as near before it as the history knows."""

import pytest

from counter.clock import NS_PER_S
from counter.errors import HistoryOff, HistoryTooOld, Unsupported
from counter.namespaces import HistoryStep, Namespace, Strategy
from counter_server.count_at import CountAt, CountsAt
from counter_server.strategies import Source, Value
from tests.expiry import forget_until
from tests.unit.counter_server.parts import Parts

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
MINUTES = HistoryStep(step_ms=MINUTE_MS, retention_ms=DAY_MS)
HOURS = HistoryStep(step_ms=HOUR_MS, retention_ms=30 * DAY_MS)


class Asked:
    """A counter with an event at some minutes after the first full hour of the clock."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.counts_at = CountsAt(parts.reads, parts.history_store, parts.layout)
        hour_ns = HOUR_MS * 1_000_000
        self.origin_ns = (parts.clock.now_ns() // hour_ns + 1) * hour_ns

    def minute_ns(self, minute: float) -> int:
        return self.origin_ns + int(minute * 60) * NS_PER_S

    async def add(self, minute: float, delta: int | None, token: str = "t") -> None:
        late_ms = (self.parts.clock.now_ns() - self.minute_ns(minute)) // 1_000_000
        await self.parts.write(self.parts.event("views", delta, token, age_ms=late_ms))

    async def fold_to(self, minute: float) -> None:
        self.parts.clock.advance_ms(
            max(0, (self.minute_ns(minute) - self.parts.clock.now_ns()) // 1_000_000)
        )
        await self.parts.fold_through(self.parts.layout.window_of(self.minute_ns(minute)) - 1)

    async def at(self, minute: float) -> CountAt:
        return await self.counts_at.at(self.parts.namespace, "views", self.minute_ns(minute))


@pytest.fixture
async def asked(parts: Parts) -> Asked:
    await parts.define(history=(MINUTES, HOURS))
    return Asked(parts)


def exact(count: int, time_ns: int) -> CountAt:
    return CountAt(value=Value(count, time_ns, 0, 0, Source.ROLLUP), resolution_ms=None)


def of_history(count: int, end_ns: int, step_ms: int) -> CountAt:
    return CountAt(value=Value(count, end_ns - 1, 0, 0, Source.HISTORY), resolution_ms=step_ms)


async def test_a_counter_nobody_added_to_was_0(asked: Asked) -> None:
    await asked.fold_to(10)
    assert await asked.at(5) == exact(0, asked.minute_ns(5))
    # Beyond what is folded the answer says how far it goes.
    assert await asked.at(12) == exact(0, asked.minute_ns(10) - 1)


async def test_what_has_not_changed_since_is_exact(asked: Asked) -> None:
    await asked.add(3.5, 5)
    await asked.fold_to(10)
    assert await asked.at(4) == exact(5, asked.minute_ns(4))
    assert await asked.at(3.75) == exact(5, asked.minute_ns(3.75))
    assert await asked.at(11) == exact(5, asked.minute_ns(10) - 1)
    assert asked.parts.script.calls["history_store.at"] == 0


async def test_before_its_first_event_a_counter_was_0(asked: Asked) -> None:
    await asked.add(3.5, 5)
    await asked.fold_to(10)
    assert await asked.at(3.25) == exact(0, asked.minute_ns(3.25))
    assert await asked.at(-100) == exact(0, asked.minute_ns(-100))


async def test_in_between_the_history_tells_by_its_finest_step(asked: Asked) -> None:
    for minute, delta in ((1.5, 1), (3.25, 2), (3.5, 4), (8.5, 8)):
        await asked.add(minute, delta, f"t{minute}")
    await asked.fold_to(10)
    assert await asked.at(3.75) == of_history(1, asked.minute_ns(3), MINUTE_MS)
    assert await asked.at(6.25) == of_history(7, asked.minute_ns(6), MINUTE_MS)
    # In the minute of the first event: before it there was nothing.
    assert await asked.at(1.75) == of_history(0, asked.minute_ns(1), MINUTE_MS)


async def test_the_end_of_a_step_is_its_last_nanosecond(asked: Asked) -> None:
    await asked.add(1.5, 1, "a")
    await asked.add(8.5, 8, "b")
    await asked.fold_to(10)
    asked_ns = asked.minute_ns(2)
    found = await asked.counts_at.at(asked.parts.namespace, "views", asked_ns - 1)
    assert found == of_history(1, asked_ns, MINUTE_MS)
    found = await asked.counts_at.at(asked.parts.namespace, "views", asked_ns - 2)
    assert found == of_history(0, asked.minute_ns(1), MINUTE_MS)


async def test_coarser_steps_tell_when_finer_ones_have_expired(asked: Asked) -> None:
    await asked.add(30, 1, "a")
    await asked.add(90, 2, "b")
    await asked.add(200, 4, "c")
    await asked.fold_to(201)
    assert await asked.at(130) == of_history(3, asked.minute_ns(130), MINUTE_MS)
    store, namespace = asked.parts.stores.history_store, asked.parts.namespace
    assert forget_until(store, namespace.id, MINUTE_MS) == 2
    assert await asked.at(130) == of_history(3, asked.minute_ns(120), HOUR_MS)
    assert forget_until(store, namespace.id, HOUR_MS) == 2
    with pytest.raises(HistoryTooOld, match="namespace plays"):
        await asked.at(130)
    # What the rollup itself can tell stays.
    assert await asked.at(29) == exact(0, asked.minute_ns(29))
    assert await asked.at(201) == exact(7, asked.minute_ns(201) - 1)


async def test_a_gap_in_the_history_is_not_answered_by_what_was_before_it(asked: Asked) -> None:
    await asked.add(1.5, 1, "a")
    await asked.add(3.5, 2, "b")
    await asked.fold_to(4)
    await asked.parts.define(history=())
    await asked.add(5.5, 4, "c")
    await asked.fold_to(6)
    await asked.parts.define(history=(MINUTES,))
    await asked.add(7.5, 8, "d")
    await asked.fold_to(8)
    assert await asked.at(3.25) == of_history(1, asked.minute_ns(3), MINUTE_MS)
    with pytest.raises(HistoryTooOld):  # nobody wrote down what it was before minute 5
        await asked.at(4.5)
    assert await asked.at(7.25) == of_history(7, asked.minute_ns(7), MINUTE_MS)


async def test_clears_are_in_the_history(asked: Asked) -> None:
    await asked.add(1.5, 5, "a")
    await asked.add(3.5, None, "b")
    await asked.add(3.75, 2, "c")
    await asked.add(8.5, 8, "d")
    await asked.fold_to(10)
    value = (await asked.at(5.5)).value
    assert (value.count, value.epoch, value.cleared_at_ns) == (2, 1, asked.minute_ns(3.5))
    assert (await asked.at(3.25)).value.epoch == 0


async def test_a_fold_between_the_reads_changes_nothing(asked: Asked) -> None:
    """The row is read, then its step ends: the answer is still as complete as its stamp says."""
    await asked.add(1.5, 1, "a")
    await asked.add(3.25, 2, "b")
    await asked.fold_to(3.5)
    await asked.add(3.75, 4, "c")
    await asked.add(5.5, 8, "d")

    async def at(call: object, *args: object) -> object:
        await asked.fold_to(6)
        return await call(*args)  # type: ignore[operator]

    asked.parts.script.answers["history_store.at"] = at
    assert await asked.at(3.1) == of_history(1, asked.minute_ns(3), MINUTE_MS)


async def test_without_history_only_the_rollup_tells(asked: Asked) -> None:
    await asked.parts.define(history=())
    await asked.add(1.5, 1, "a")
    await asked.add(3.5, 2, "b")
    await asked.fold_to(4)
    assert await asked.at(3.75) == exact(3, asked.minute_ns(3.75))
    assert await asked.at(1) == exact(0, asked.minute_ns(1))
    with pytest.raises(HistoryOff, match="give the namespace a history"):
        await asked.at(2)


async def test_best_effort_has_no_past(asked: Asked) -> None:
    hits = Namespace(id=9, name="hits", strategy=Strategy.BEST_EFFORT)
    with pytest.raises(Unsupported, match="hits is best_effort"):
        await asked.counts_at.at(hits, "views", asked.origin_ns)
