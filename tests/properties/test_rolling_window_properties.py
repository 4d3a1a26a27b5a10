"""Rolling windows: hits at arbitrary times equal a brute-force count at window resolution, through
folds at any moment, restarts, clears, retries, and other strategies and lengths in between."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from counter.clock import NS_PER_MS, NS_PER_S, ManualClock
from counter.events import Event
from counter.namespaces import Strategy
from counter_server.reads import Reads
from counter_server.strategies import RollingWindow, Value
from counter_server.strategies.strategy import ANY_FRESHNESS
from counter_server.tail import Tail
from tests.unit.counter_server.parts import PLATFORM, Parts

LENGTH_S = 300
COUNTERS = ("a", "b")


class Wait(NamedTuple):
    ms: int


class Hit(NamedTuple):
    counter: str
    delta: int | None  # None: a clear
    late_ms: int  # how long ago by its caller's clock; negative: that is ahead
    copies: int


class Fold(NamedTuple):
    windows_left: int  # closed ones that it does not reach


class Restart(NamedTuple):
    pass


class Length(NamedTuple):
    seconds: int | None  # None: another strategy


WAITS = st.builds(Wait, st.integers(0, 3_000) | st.integers(0, 400_000))
HITS = st.builds(
    Hit,
    counter=st.sampled_from(COUNTERS),
    delta=st.integers(-2, 9).filter(bool) | st.none(),
    late_ms=st.integers(-PLATFORM.accept_limit_ms, PLATFORM.accept_limit_ms),
    copies=st.sampled_from([1, 1, 2]),
)
FOLDS = st.builds(Fold, st.integers(0, 3))
DOINGS = WAITS | HITS | HITS | FOLDS | st.builds(Restart)
LENGTHS = st.builds(Length, st.sampled_from([None, 1, 5, 60, LENGTH_S]))


class Rolling:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.acknowledged: dict[tuple[str, int, str], int | None] = {}
        self.always_rolling = True
        self.tokens = 0

    async def do(self, doing: object) -> None:
        parts = self.parts
        match doing:
            case Wait(ms):
                parts.clock.advance_ms(ms)
                # Nothing is closed before its time, and what is due is closed.
                due = parts.layout.closable_through(
                    parts.clock.now_ns(), grace_ns=PLATFORM.close_grace_ns
                )
                await parts.close(due)
                parts.admission.observe(await parts.stores.ledger.closed())
            case Hit():
                await self._hit(doing)
            case Fold(windows_left):
                closed = (await parts.stores.ledger.closed()).through
                await parts.fold_through(closed - windows_left)
            case Restart():
                parts.tail = Tail(parts.log, parts.ledger, shards=parts.layout.shards)
                parts.reads = Reads(parts.ledger, parts.rollup_store, parts.tail, parts.layout)
            case Length(seconds):
                self.always_rolling = False
                await self.define(seconds)

    async def define(self, length_s: int | None) -> None:
        if length_s is None:
            await self.parts.define(strategy=Strategy.ACCURATE)
        else:
            await self.parts.define(
                strategy=Strategy.ROLLING_WINDOW, rolling_window_ms=length_s * 1_000
            )

    async def _hit(self, hit: Hit) -> None:
        self.tokens += 1
        event = self.parts.event(hit.counter, hit.delta, f"t{self.tokens}", age_ms=hit.late_ms)
        if self.parts.layout.window_of(event.time_ns) <= self.parts.admission.closed_through:
            return
        strategy = RollingWindow(self.parts.namespace, self.parts.path())
        for _ in range(hit.copies):
            if self.parts.namespace.strategy is not Strategy.ROLLING_WINDOW:
                assert await strategy.add([event], wait_s=0) == [False]
                self._acknowledge(event)
                continue
            duplicate, value = await strategy.add_and_read(event, wait_s=0)
            assert not duplicate
            self._acknowledge(event)
            self.check(hit.counter, value)

    def _acknowledge(self, event: Event) -> None:
        self.acknowledged[event.counter, event.time_ns, event.token] = event.delta

    async def read(self) -> None:
        if self.parts.namespace.strategy is not Strategy.ROLLING_WINDOW:
            return
        strategy = RollingWindow(self.parts.namespace, self.parts.path())
        values = await strategy.read(COUNTERS, ANY_FRESHNESS)
        for counter, value in zip(COUNTERS, values, strict=True):
            self.check(counter, value)

    def check(self, counter: str, value: Value) -> None:
        layout, now_ns = self.parts.layout, self.parts.clock.now_ns()
        length_ms = self.parts.namespace.rolling_window_ms
        assert length_ms is not None
        first_ns = layout.start_ns(layout.window_of(now_ns - length_ms * NS_PER_MS) + 1)
        assert value.window_start_ns is not None
        if self.always_rolling:
            assert value.window_start_ns == first_ns
        assert value.window_start_ns >= first_ns
        hits = 0
        for (of_counter, time_ns, _), delta in sorted(
            self.acknowledged.items(), key=lambda each: each[0][1:]
        ):
            if of_counter == counter:
                if delta is None:
                    hits = 0
                elif time_ns >= value.window_start_ns:
                    hits += delta
        assert value.count == hits
        seconds = (now_ns - value.window_start_ns) / NS_PER_S
        assert value.rate_per_s == (hits / seconds if seconds > 0 else 0.0)


def run(doings: Sequence[object]) -> None:
    async def all_of_them() -> None:
        rolling = Rolling(await Parts.create(ManualClock()))
        await rolling.define(LENGTH_S)
        await rolling.read()
        for doing in doings:
            await rolling.do(doing)
            await rolling.read()
        rolling.parts.clock.advance_ms(2 * LENGTH_S * 1_000)
        await rolling.define(LENGTH_S)
        strategy = RollingWindow(rolling.parts.namespace, rolling.parts.path())
        values = await strategy.read(COUNTERS, ANY_FRESHNESS)
        assert [each.count for each in values] == [0, 0]  # nobody wrote: it rolled on

    asyncio.run(all_of_them())


@settings(deadline=None)
@given(st.lists(DOINGS, max_size=40))
def test_hits_are_what_a_brute_force_count_says(doings: list[object]) -> None:
    run(doings)


@settings(deadline=None)
@given(st.lists(DOINGS | LENGTHS, max_size=40))
def test_after_another_strategy_or_length_the_value_says_from_when_on_it_counts(
    doings: list[object],
) -> None:
    run(doings)
