"""The pace: sizes go towards the target, passes give way to a store in trouble, rests grow."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counter.errors import StoreDamaged, StoreUnavailable
from rollup_worker.pace import (
    BATCH_COUNTERS_MAX,
    BATCH_COUNTERS_MIN,
    BATCH_COUNTERS_START,
    EVENTS_PER_BATCH_COUNTER,
    PASS_S_TARGET,
    REST_S_MAX,
    REST_S_MIN,
    Pace,
)

AWAY = StoreUnavailable("away")


def pace(*, shards: int = 1, passes: int = 4, seed: int = 0) -> Pace:
    return Pace(shards=shards, passes_in_parallel=passes, chance=Random(seed))


def full(pace: Pace, seconds: float, shard: int = 0, now_s: float = 0.0) -> int:
    """A full pass; answers with the counters per batch of the next one."""
    events = pace.size(shard).events_max
    pace.succeeded(shard, events=events, seconds=seconds, is_full=True, now_s=now_s)
    return pace.size(shard).rollups_per_batch


# The size.


def test_quick_full_passes_grow_and_slow_ones_shrink() -> None:
    tested = pace()
    assert tested.size(0).rollups_per_batch == BATCH_COUNTERS_START == 100
    assert [full(tested, 0.099) for _ in range(3)] == [120, 144, 173]
    assert [full(tested, 0.101) for _ in range(3)] == [138, 111, 88]


def test_a_pass_that_was_not_full_does_not_grow() -> None:
    tested = pace()
    for events in (0, 1, 1_999):
        tested.succeeded(0, events=events, seconds=0.01, is_full=False, now_s=0.0)
        assert tested.size(0).rollups_per_batch == 100


@pytest.mark.parametrize("seconds", [0.05, 5.0])
def test_a_window_with_more_than_a_pass_is_the_size(seconds: float) -> None:
    """It is folded as a whole: smaller writes would make its pass longer, not shorter."""
    tested = pace()
    tested.succeeded(0, events=5_000, seconds=seconds, is_full=False, now_s=0.0)
    assert tested.size(0) == (5_000, 250)
    tested.succeeded(0, events=50_000, seconds=seconds, is_full=False, now_s=0.0)
    assert tested.size(0) == (20_000, BATCH_COUNTERS_MAX)


def test_large_windows_do_not_end_in_small_writes() -> None:
    tested = pace()
    for _ in range(100):
        tested.succeeded(0, events=12_000, seconds=0.3, is_full=False, now_s=0.0)
        assert tested.size(0).rollups_per_batch >= 0.8 * 12_000 / EVENTS_PER_BATCH_COUNTER


def test_each_shard_has_its_own() -> None:
    tested = pace(shards=2)
    full(tested, 0.01, shard=0)
    full(tested, 1.0, shard=1)
    sizes = [tested.size(shard).rollups_per_batch for shard in range(2)]
    assert sizes == [120, 80]


def test_events_follow_from_the_batch() -> None:
    tested = pace()
    for _ in range(100):
        full(tested, 0.01)
    assert tested.size(0) == (20_000, 1_000)
    for _ in range(100):
        full(tested, 5.0)
    assert tested.size(0) == (200, 10)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ok", "store", "damaged"]),
            st.integers(0, 50_000),
            st.floats(0.0, 1_000.0),
            st.booleans(),
        ),
        max_size=200,
    ),
    st.integers(1, 256),
    st.integers(0, 2**32),
)
def test_limits_hold_whatever_happens(
    passes: list[tuple[str, int, float, bool]], passes_max: int, seed: int
) -> None:
    tested = pace(passes=passes_max, seed=seed)
    now_s = 0.0
    for kind, events, seconds, is_full in passes:
        now_s += seconds
        if kind == "ok":
            tested.succeeded(0, events=events, seconds=seconds, is_full=is_full, now_s=now_s)
        else:
            error = AWAY if kind == "store" else StoreDamaged("damaged")
            rest_s = tested.failed(0, error, now_s=now_s)
            assert REST_S_MIN / 2 <= rest_s <= REST_S_MAX
        size = tested.size(0)
        assert BATCH_COUNTERS_MIN <= size.rollups_per_batch <= BATCH_COUNTERS_MAX
        assert size.events_max == size.rollups_per_batch * EVENTS_PER_BATCH_COUNTER
        assert 1 <= tested.passes <= passes_max


@given(
    st.floats(0.001, 0.4),  # what a pass costs at least
    st.floats(5e-6, 1e-3),  # and for each event
)
def test_sizes_settle_where_passes_are_worth_their_cost(fixed_s: float, event_s: float) -> None:
    """A store that is slow by nature must not shrink passes until folds fall behind for good."""
    tested = pace()
    events = spent_s = 0.0
    for number in range(3_000):
        size = tested.size(0).events_max
        seconds = fixed_s + size * event_s
        full(tested, seconds)
        if number >= 200:
            events, spent_s = events + size, spent_s + seconds
    mean_s = spent_s / 2_800
    smallest_s = fixed_s + 200 * event_s
    largest_s = fixed_s + 20_000 * event_s
    # About the target, or up to twice the smallest pass, as far as the limits of the size allow.
    assert mean_s <= 1.2 * max(PASS_S_TARGET, 2 * smallest_s)
    assert mean_s >= 0.75 * min(PASS_S_TARGET, largest_s)
    # Either that is what was asked for, or folds have a good part of the rate that the largest
    # passes would have.
    if mean_s > PASS_S_TARGET:
        assert events / spent_s >= 0.3 * (20_000 / largest_s)


def test_a_store_that_was_slow_and_is_quick_again_has_short_passes_again() -> None:
    tested = pace()
    for _ in range(200):
        full(tested, 0.4 + tested.size(0).events_max * 1e-5)
    for _ in range(600):
        full(tested, 0.005 + tested.size(0).events_max * 1e-5)
    times_s = []
    for _ in range(100):
        seconds = 0.005 + tested.size(0).events_max * 1e-5
        full(tested, seconds)
        times_s.append(seconds)
    assert max(times_s) <= 1.25 * PASS_S_TARGET


# Passes at once.


def test_all_run_at_once_until_something_is_wrong() -> None:
    tested = pace(passes=8)
    assert tested.passes == 8
    full(tested, 0.05)
    assert tested.passes == 8


def test_store_errors_halve_them_and_good_passes_bring_them_back_one_by_one() -> None:
    tested = pace(passes=8)
    seen = []
    for now_s in (0.0, 1.0, 2.0, 3.0):
        tested.failed(0, AWAY, now_s=now_s)
        seen.append(tested.passes)
    assert seen == [4, 2, 1, 1]
    grown = []
    for _ in range(40):
        full(tested, 0.05, now_s=10.0)
        grown.append(tested.passes)
    assert grown[0] == 2
    assert all(after - before in (0, 1) for before, after in pairwise(grown))
    assert grown[-1] == 8
    assert grown.index(8) > 20  # about a round of passes for each


def test_errors_of_passes_that_ran_at_once_are_one_sign() -> None:
    tested = pace(passes=8)
    for shard_error in range(8):
        tested.failed(0, AWAY, now_s=shard_error * 0.01)
    assert tested.passes == 4


def test_very_slow_passes_are_a_sign_too_and_slow_ones_are_not() -> None:
    tested = pace(passes=8)
    full(tested, 0.39, now_s=0.0)
    assert tested.passes == 8
    full(tested, 0.41, now_s=0.0)
    assert tested.passes == 4


def test_passes_without_events_may_take_as_long_as_small_ones() -> None:
    """On a store that is slow by nature, idle shards are no reason to fold fewer at once."""
    tested = pace(passes=8)
    tested.succeeded(0, events=1, seconds=0.45, is_full=False, now_s=0.0)
    before = tested.passes
    tested.succeeded(0, events=0, seconds=0.45, is_full=False, now_s=10.0)
    assert tested.passes >= before
    tested.succeeded(0, events=0, seconds=4.0, is_full=False, now_s=20.0)
    assert tested.passes < before


def test_a_shard_with_a_trouble_of_its_own_slows_nobody_down() -> None:
    tested = pace(passes=8)
    for now_s in range(10):
        tested.failed(0, StoreDamaged("a segment"), now_s=float(now_s))
    assert tested.passes == 8


# Rests.


def test_rests_double_up_to_a_limit_and_begin_anew_after_a_success() -> None:
    tested = pace()
    limits = [min(0.25 * 2**errors, 10.0) for errors in range(50)]
    rests = [tested.failed(0, AWAY, now_s=0.0) for _ in limits]
    assert all(limit / 2 <= rest <= limit for limit, rest in zip(limits, rests, strict=True))
    tested.succeeded(0, events=0, seconds=0.01, is_full=False, now_s=0.0)
    assert tested.failed(0, AWAY, now_s=0.0) <= 0.25


def test_rests_differ_from_worker_to_worker_and_not_from_run_to_run() -> None:
    def rests(seed: int) -> list[float]:
        tested = pace(seed=seed)
        return [tested.failed(0, AWAY, now_s=0.0) for _ in range(5)]

    assert rests(1) == rests(1)
    assert rests(1) != rests(2)


@pytest.mark.parametrize("errors", [0, 1, 5])
def test_a_shard_does_not_rest_for_the_errors_of_another(errors: int) -> None:
    tested = pace(shards=2)
    for _ in range(errors):
        tested.failed(0, AWAY, now_s=0.0)
    assert tested.failed(1, AWAY, now_s=0.0) <= 0.25
