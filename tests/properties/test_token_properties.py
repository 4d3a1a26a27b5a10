"""Tokens: strictly later each time, and never the same twice, whatever the clock does."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from counter.clock import ManualClock
from counter.tokens import TOKEN_BYTES_MAX, TokenFactory

STEPS_MS = st.lists(st.integers(-100_000, 100_000), max_size=50)


@given(STEPS_MS, st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=5))
def test_generation_times_strictly_increase(steps_ms: list[int], offsets_ns: list[int]) -> None:
    clock = ManualClock()
    factory = TokenFactory(clock)
    made = [factory.next()]
    for at, step_ms in enumerate(steps_ms):
        clock.advance_ms(step_ms)
        factory.offset_ns = offsets_ns[at % len(offsets_ns)]
        made.append(factory.next())
    times = [each.generation_time_ns for each in made]
    assert all(before < after for before, after in pairwise(times))
    assert len({each.token for each in made}) == len(made)
    assert all(0 < len(each.token.encode()) <= TOKEN_BYTES_MAX for each in made)


@given(st.integers(0, 10**12))
def test_a_token_has_the_time_of_the_corrected_clock(offset_ns: int) -> None:
    clock = ManualClock()
    factory = TokenFactory(clock)
    factory.offset_ns = offset_ns
    assert factory.next().generation_time_ns == clock.now_ns() + offset_ns


def test_no_two_factories_agree_on_a_token() -> None:
    clock = ManualClock()
    made = [TokenFactory(clock).next().token for _ in range(1_000)]
    assert len(set(made)) == len(made)
