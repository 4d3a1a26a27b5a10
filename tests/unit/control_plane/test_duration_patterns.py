import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.files.duration_patterns import durations_between, durations_of
from control_plane.files.durations import UNITS_MS, parse_ms

MS = st.integers(0, 3_000) | st.integers(0, 10**13)


@given(st.data())
def test_a_range_matches_just_what_is_in_it(data: st.DataObject) -> None:
    least, most = sorted((data.draw(MS), data.draw(MS)))
    unit = data.draw(st.sampled_from(sorted(UNITS_MS)))
    edge = data.draw(st.sampled_from([least, most])) // UNITS_MS[unit]
    near = st.integers(max(0, edge - 2), edge + 2)
    number = data.draw(near | st.integers(0, 10**13))
    text = "0" * data.draw(st.integers(0, 12)) + f"{number}{unit}"
    value = parse_ms(text)
    matches = re.search(durations_between(least, most), text) is not None
    assert matches == (value is not None and least <= value <= most)


@given(st.sets(st.integers(0, 200_000), max_size=5), st.integers(0, 200_000))
def test_a_set_matches_just_what_is_in_it(values: set[int], number: int) -> None:
    pattern = durations_of({each * 1_000 for each in values} | {3_600_000})
    for each in (*values, number):
        is_in = each in values or each == 3_600
        assert bool(re.search(pattern, f"{each}s")) == is_in
        assert bool(re.search(pattern, f"{each}000ms")) == is_in
    assert re.search(pattern, "1h")
    assert re.search(pattern, "060m")


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", " 5s", "5s ", "-5s", "1.5s", "5S", "5s5s"])
def test_what_is_no_duration_never_matches(text: str) -> None:
    assert not re.search(durations_between(0, 10**12), text)
