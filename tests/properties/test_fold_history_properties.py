"""The history that folds write, against the states that a model has at the end of each step."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given

from counter.digest import Digest, differ
from counter.events import Event
from counter.fold import FoldCounts, gather
from counter.history import HistoryRow, fold_with_history
from counter.rollups import ZERO, Rollup
from counter.segments import encode
from tests.properties.strategies import LAYOUT, WINDOWS, Written, histories
from tests.properties.test_fold_properties import ENDS, fold_records, model, states

STEPS_MS = (2, 4)  # of windows of 1 ms


def fold_in_records(
    history: list[Written], ends: list[int]
) -> tuple[dict[str, Rollup], dict[tuple[str, int, int], HistoryRow]]:
    """As a worker does; the rows of the history by counter, length of step and step."""
    rollups: dict[str, Rollup] = {}
    rows: dict[tuple[str, int, int], HistoryRow] = {}
    for before, through in pairwise([-1, *ends]):
        events: defaultdict[str, list[Event]] = defaultdict(list)
        of_record = [each for each in history if before < _window(each) <= through]
        gather(events, sorted(of_record))
        for counter, of_counter in events.items():
            rollups[counter], past = fold_with_history(
                rollups.get(counter, ZERO),
                of_counter,
                through,
                FoldCounts(),
                layout=LAYOUT,
                steps_ms=STEPS_MS,
            )
            for step_ms, row in past:
                key = (counter, step_ms, row.step)
                assert key not in rows, "written once"
                rows[key] = row
    return rollups, rows


def digest_of(namespace_id: int, bodies: Iterable[bytes]) -> bytes:
    digest = Digest()
    for body in bodies:
        digest.add(namespace_id, body)
    return digest.value()


def _window(written: Written) -> int:
    return LAYOUT.window_of(written[1][0].time_ns)


@given(histories(), ENDS)
def test_each_row_is_the_state_at_the_end_of_a_step_in_which_the_counter_changed(
    history: list[Written], ends: list[int]
) -> None:
    rollups, rows = fold_in_records(history, ends)
    changed: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for _, events in history:
        for event in events:
            window = LAYOUT.window_of(event.time_ns)
            for step_ms in STEPS_MS:
                changed[event.counter, step_ms].add(LAYOUT.step_of(window, step_ms))
    wanted = {
        (counter, step_ms, step): until
        for (counter, step_ms), steps in changed.items()
        for step, until in pairwise(sorted(steps))
    }
    assert {key: row.until_step for key, row in rows.items()} == wanted
    for (counter, step_ms, step), row in rows.items():
        last_window = LAYOUT.last_window_of_step(step, step_ms)
        until_then = [each for each in history if _window(each) <= last_window]
        assert states({counter: row.state})[counter] == model(until_then)[counter]
        assert row.state.through_window == last_window
    for (counter, step_ms), steps in changed.items():
        assert LAYOUT.step_of(rollups[counter].changed_window, step_ms) == max(steps)


@given(histories(), ENDS)
def test_history_changes_nothing_about_rollups(history: list[Written], ends: list[int]) -> None:
    assert states(fold_in_records(history, ends)[0]) == states(fold_records(history, ends))


@given(histories(), ENDS)
def test_any_split_into_records_gives_the_same_history(
    history: list[Written], ends: list[int]
) -> None:
    assert fold_in_records(history, ends)[1] == fold_in_records(history, [WINDOWS - 1])[1]


@given(histories())
def test_a_digest_depends_on_the_segments_alone(history: list[Written]) -> None:
    bodies = [encode(events) for _, events in history]
    whole = digest_of(7, bodies)
    assert whole == digest_of(7, reversed(bodies))
    if bodies:
        shorter = encode(history[0][1][1:])
        others = [
            digest_of(8, bodies),
            digest_of(7, bodies[1:]),
            digest_of(7, [*bodies, bodies[0]]),
            digest_of(7, [shorter, *bodies[1:]]),
        ]
        assert len({whole, *others}) == 1 + len(others)
        assert all(differ(whole, other) for other in others)
    assert not differ(whole, whole)
    assert not differ(b"", whole)
    assert not differ(b"d" * 16, whole)  # an earlier build's
