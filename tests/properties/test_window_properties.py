"""Windows: every instant is in exactly one, and one closes only when its grace is over."""

from hypothesis import given
from hypothesis import strategies as st

from counter.clock import NS_PER_MS
from counter.settings import Platform
from counter.windows import NS_PER_DAY, Layout

TIMES = st.integers(0, 2**62)
LAYOUTS = st.builds(
    Layout,
    from_window=st.just(0),
    window_ms=st.sampled_from([1, 100, 1_000, 5_000, 7_001, 60_000, 86_400_000]),
    shards=st.just(4),
)


@given(LAYOUTS, TIMES)
def test_every_instant_is_in_one_window(layout: Layout, time_ns: int) -> None:
    window = layout.window_of(time_ns)
    assert layout.start_ns(window) <= time_ns < layout.end_ns(window)
    assert layout.end_ns(window) == layout.start_ns(window + 1)


@given(LAYOUTS, TIMES)
def test_complete_through_is_the_last_instant_of_the_window(layout: Layout, time_ns: int) -> None:
    window = layout.window_of(time_ns)
    assert layout.window_of(layout.complete_through_ns(window)) == window
    assert layout.window_of(layout.complete_through_ns(window) + 1) == window + 1


@given(LAYOUTS, TIMES, st.integers(0, 10**11))
def test_a_window_is_closable_exactly_when_its_grace_is_over(
    layout: Layout, now_ns: int, grace_ns: int
) -> None:
    through = layout.closable_through(now_ns, grace_ns=grace_ns)
    assert layout.end_ns(through) + grace_ns <= now_ns
    assert layout.end_ns(through + 1) + grace_ns > now_ns


@given(LAYOUTS, TIMES)
def test_the_last_window_of_a_day_is_the_last_that_starts_on_it(
    layout: Layout, time_ns: int
) -> None:
    window = layout.window_of(time_ns)
    last = layout.last_window_of_day(window)
    day = layout.start_ns(window) // NS_PER_DAY
    assert last >= window
    assert layout.start_ns(last) // NS_PER_DAY == day
    assert layout.start_ns(last + 1) // NS_PER_DAY > day
    assert layout.last_window_of_day(last) == last


@given(
    st.integers(10**15, 2**61),
    st.sampled_from([100, 1_000, 5_000]),
    st.integers(0, 10_000),
    st.integers(0, 1_000),
)
def test_a_new_store_takes_events_that_are_just_in_time(
    now_ns: int, window_ms: int, accept_limit_ms: int, max_clock_skew_ms: int
) -> None:
    platform = Platform(
        window_ms=window_ms, accept_limit_ms=accept_limit_ms, max_clock_skew_ms=max_clock_skew_ms
    )
    layout = platform.layout(now_ns)
    assert layout.window_of(now_ns - accept_limit_ms * NS_PER_MS) >= layout.from_window
    # And nothing that it takes is closable at that moment.
    assert layout.closable_through(now_ns, grace_ns=platform.close_grace_ns) < layout.from_window
