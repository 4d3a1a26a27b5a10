"""rolling_window: the hits of the last windows, rolling on by themselves."""

import pytest

from counter.clock import NS_PER_S
from counter.errors import NotFreshEnough
from counter.namespaces import Strategy
from counter_server.late import TokenStatus
from counter_server.strategies import Freshness, RollingWindow, Source, Value
from counter_server.strategies.strategy import ANY_FRESHNESS
from tests.unit.counter_server.parts import Parts

LENGTH_S = 10


@pytest.fixture
async def rolling(parts: Parts) -> RollingWindow:
    return await bound(parts, LENGTH_S * 1_000)


async def bound(parts: Parts, length_ms: int) -> RollingWindow:
    await parts.define(strategy=Strategy.ROLLING_WINDOW, rolling_window_ms=length_ms)
    return RollingWindow(parts.namespace, parts.path())


async def read(rolling: RollingWindow) -> Value:
    [value] = await rolling.read(["views"], ANY_FRESHNESS)
    return value


async def test_a_counter_nobody_added_to_has_no_hits(parts: Parts, rolling: RollingWindow) -> None:
    value = await read(rolling)
    assert (value.count, value.rate_per_s, value.source) == (0, 0.0, Source.ROLLUP_AND_TAIL)
    assert value.window_start_ns == parts.layout.start_ns(parts.window - LENGTH_S + 1)


@pytest.mark.parametrize("folded", [False, True])
async def test_hits_fall_out_of_the_window_without_a_write(
    parts: Parts, rolling: RollingWindow, folded: bool
) -> None:
    for at, age_ms in enumerate((0, 1_000, 4_000)):
        await rolling.add([parts.event("views", 10**at, f"t{at}", age_ms=age_ms)], wait_s=0)
    counts = []
    for _ in range(LENGTH_S + 2):
        counts.append((await read(rolling)).count)
        parts.clock.advance_ms(1_000)
        if folded:
            await parts.fold_through(parts.window - 6)
    assert counts == [111] * 6 + [11] * 3 + [1] + [0] * 2


async def test_the_rate_is_by_the_seconds_that_the_count_is_of(
    parts: Parts, rolling: RollingWindow
) -> None:
    parts.clock.advance_ms(500)
    await rolling.add([parts.event("views", 19)], wait_s=0)
    value = await read(rolling)
    assert value.window_start_ns == parts.clock.now_ns() - int(9.5 * NS_PER_S)
    assert value.rate_per_s == 2.0


async def test_a_window_that_has_just_begun_has_no_rate(parts: Parts) -> None:
    rolling = await bound(parts, 1)  # shorter than a window: one window
    parts.clock.advance_ms(1_000 - parts.clock.now_ns() // 1_000_000 % 1_000)
    await rolling.add([parts.event("views", 5)], wait_s=0)
    value = await read(rolling)
    assert (value.count, value.rate_per_s) == (5, 0.0)
    assert value.window_start_ns == parts.clock.now_ns()


async def test_nothing_older_than_the_length_counts(parts: Parts) -> None:
    rolling = await bound(parts, 3_999)  # three whole windows fit
    for at in range(5):
        await rolling.add([parts.event("views", 10**at, f"t{at}", age_ms=1_000 * at)], wait_s=0)
    assert (await read(rolling)).count == 111


async def test_an_add_is_in_its_own_answer_and_so_are_clocks_that_are_ahead(
    parts: Parts, rolling: RollingWindow
) -> None:
    ahead = parts.event("views", 5, "ahead", age_ms=-5_000)
    duplicate, value = await rolling.add_and_read(ahead, wait_s=0)
    assert (duplicate, value.count) == (False, 5)
    duplicate, value = await rolling.add_and_read(parts.event("views", 2, "b"), wait_s=0)
    assert (duplicate, value.count) == (False, 7)
    assert value.window_start_ns is not None


async def test_a_clear_ends_what_was_before_it(parts: Parts, rolling: RollingWindow) -> None:
    events = [
        parts.event("views", 5, "a", age_ms=300),
        parts.event("views", None, "b", age_ms=200),
        parts.event("views", 2, "c", age_ms=100),
    ]
    await rolling.add(events, wait_s=0)
    value = await read(rolling)
    assert (value.count, value.epoch, value.cleared_at_ns) == (2, 1, events[1].time_ns)
    parts.clock.advance_ms(8_000)
    await parts.fold_through(parts.window - 6)
    assert (await read(rolling)).count == 2


async def test_after_another_strategy_the_value_says_from_when_on_it_counts(
    parts: Parts, rolling: RollingWindow
) -> None:
    await parts.define(strategy=Strategy.EVENTUAL)
    await parts.write(parts.event("views", 100, "a", age_ms=2_000))
    await parts.fold_through(parts.window - 1)
    rolling = await bound(parts, LENGTH_S * 1_000)
    await parts.write(parts.event("views", 5, "b"))
    value = await read(rolling)
    assert (value.count, value.window_start_ns) == (5, parts.layout.start_ns(parts.window - 1))
    parts.clock.advance_ms(7_000)
    await parts.fold_through(parts.window - 6)
    value = await read(rolling)
    assert (value.count, value.window_start_ns) == (5, parts.layout.start_ns(parts.window - 8))
    parts.clock.advance_ms(2_000)
    value = await read(rolling)
    assert value.window_start_ns == parts.layout.start_ns(parts.window - LENGTH_S + 1)


async def test_a_raised_length_counts_from_when_it_is_known(
    parts: Parts, rolling: RollingWindow
) -> None:
    rolling = await bound(parts, 3_000)
    for at in range(6):
        await parts.write(parts.event("views", 10**at, f"t{at}", age_ms=1_000 * at))
    await parts.fold_through(parts.window)
    rolling = await bound(parts, 10_000)
    value = await read(rolling)
    assert (value.count, value.window_start_ns) == (111, parts.layout.start_ns(parts.window - 2))


async def test_at_least_is_never_answered_with_less(parts: Parts, rolling: RollingWindow) -> None:
    await parts.fold_through(parts.window - 1)
    stamp_ns = parts.layout.complete_through_ns(parts.window - 1)
    [value] = await rolling.read(["views"], Freshness(at_least_ns=stamp_ns, max_staleness_ns=0))
    assert value.complete_through_ns == stamp_ns
    with pytest.raises(NotFreshEnough):
        await rolling.read(["views"], Freshness(at_least_ns=stamp_ns + 1))


async def test_tokens_have_their_outcome(parts: Parts, rolling: RollingWindow) -> None:
    event = parts.event("views", 5)
    await rolling.add([event], wait_s=0)
    assert await rolling.token_status(event) is TokenStatus.PENDING
    parts.clock.advance_ms(10_000)
    await parts.fold_through(parts.window - 6)
    assert await rolling.token_status(event) is TokenStatus.APPLIED
