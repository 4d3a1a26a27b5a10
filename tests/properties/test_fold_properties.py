"""The fold against a naive model, for any history and any way of cutting it into records."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from counter.events import Event
from counter.fold import FoldCounts, adjustments, fold, gather
from counter.rollups import ZERO, Recent, Rollup
from tests.properties.strategies import LAYOUT, WINDOW_NS, WINDOWS, Written, histories

RECENT_WINDOWS = 3


State = tuple[int, int, int, int, int, int]


def model(history: Sequence[Written]) -> dict[str, State]:
    """Sorts all copies of all events by the fold order and applies the first of each identity."""
    copies = sorted(
        (
            (event.time_ns, event.token, segment_id, index, event)
            for segment_id, events in history
            for index, event in enumerate(events)
        ),
        key=lambda copy: copy[:4],
    )
    seen = set()
    states: dict[str, State] = {}
    for *_, event in copies:
        if _identity(event) in seen:
            continue
        seen.add(_identity(event))
        window = LAYOUT.window_of(event.time_ns)
        count, epoch, cleared_at_ns, total, _, first = states.get(
            event.counter, (0, 0, 0, 0, 0, window)
        )
        if event.delta is None:
            states[event.counter] = (0, epoch + 1, event.time_ns, total, window, first)
        else:
            count, total = count + event.delta, total + event.delta
            states[event.counter] = (count, epoch, cleared_at_ns, total, window, first)
    return states


def fold_records(
    history: Sequence[Written], ends: Sequence[int], counts: FoldCounts | None = None
) -> dict[str, Rollup]:
    """Folds as a worker does: record by record, each up to one of the `ends`."""
    rollups: dict[str, Rollup] = {}
    for before, through in pairwise([-1, *ends]):
        events: defaultdict[str, list[Event]] = defaultdict(list)
        gather(events, sorted(each for each in history if before < _window(each) <= through))
        for counter, of_counter in events.items():
            base = rollups.get(counter, ZERO)
            rollups[counter] = fold(
                base,
                of_counter,
                through,
                counts or FoldCounts(),
                window_ns=WINDOW_NS,
                recent_windows=RECENT_WINDOWS,
            )
    return rollups


def _identity(event: Event) -> tuple[str, int, str]:
    return event.counter, event.time_ns, event.token


def _window(written: Written) -> int:
    return LAYOUT.window_of(written[1][0].time_ns)


def states(rollups: dict[str, Rollup]) -> dict[str, State]:
    return {
        counter: (
            each.count,
            each.epoch,
            each.cleared_at_ns,
            each.total,
            each.changed_window,
            each.first_window,
        )
        for counter, each in rollups.items()
    }


ENDS = st.sets(st.integers(0, WINDOWS - 1)).map(lambda ends: sorted(ends | {WINDOWS - 1}))
AT_ONCE = [WINDOWS - 1]


@given(histories())
def test_a_fold_is_what_the_model_says(history: list[Written]) -> None:
    assert states(fold_records(history, AT_ONCE)) == model(history)


@given(histories(), ENDS)
def test_any_split_into_records_gives_the_same_rollups(
    history: list[Written], ends: list[int]
) -> None:
    assert states(fold_records(history, ends)) == states(fold_records(history, AT_ONCE))


@given(histories(), st.randoms())
def test_the_order_of_segments_does_not_matter(history: list[Written], random: object) -> None:
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fold_records(shuffled, AT_ONCE) == fold_records(history, AT_ONCE)


@given(histories(), st.data())
def test_more_copies_of_events_change_nothing(history: list[Written], data: st.DataObject) -> None:
    """Without conflicts: each identity has one delta, so which copy comes first does not matter."""
    deltas: dict[tuple[str, int, str], int | None] = {}
    for _, events in history:
        for event in events:
            deltas.setdefault(_identity(event), event.delta)
    agreeing = [
        (segment_id, [Event(*_identity(each), deltas[_identity(each)]) for each in events])
        for segment_id, events in history
    ]
    copied = list(agreeing)
    for at, (_, events) in enumerate(agreeing):
        if data.draw(st.booleans()):
            # Ids are never reused: those of the history have one byte less.
            segment_id = data.draw(st.binary(min_size=16, max_size=16)) + bytes([at])
            copied.append((segment_id, list(reversed(events))))
    counts = FoldCounts()
    assert fold_records(copied, AT_ONCE, counts) == fold_records(agreeing, AT_ONCE)
    assert counts.conflicts == 0
    copies = sum(len(events) for _, events in copied)
    assert copies - counts.duplicates == len(deltas)


@given(histories())
def test_conflicts_are_counted_and_the_first_in_fold_order_counts(history: list[Written]) -> None:
    counts = FoldCounts()
    fold_records(history, AT_ONCE, counts)
    first: dict[tuple[str, int, str], int | None] = {}
    conflicts = copies = 0
    for _, events in sorted(history, key=lambda written: written[0]):
        for event in events:
            copies += 1
            conflicts += first.setdefault(_identity(event), event.delta) != event.delta
    assert counts == FoldCounts(duplicates=copies - len(first), conflicts=conflicts)


@given(histories())
def test_a_fold_changes_nothing_that_it_was_given(history: list[Written]) -> None:
    events: defaultdict[str, list[Event]] = defaultdict(list)
    gather(events, sorted(history))
    for of_counter in events.values():
        before = list(of_counter)
        first = fold(ZERO, of_counter, 1, FoldCounts(), window_ns=WINDOW_NS)
        assert of_counter == before
        assert fold(ZERO, of_counter, 1, FoldCounts(), window_ns=WINDOW_NS) == first


@given(histories(), ENDS)
def test_recent_windows_are_what_was_added_since_the_last_clear(
    history: list[Written], ends: list[int]
) -> None:
    events = {_identity(event): event for _, each in sorted(history)[::-1] for event in each[::-1]}
    for counter, rollup in fold_records(history, ends).items():
        first = rollup.through_window - RECENT_WINDOWS + 1
        wanted: defaultdict[int, int] = defaultdict(int)
        for (of_counter, time_ns, token), event in sorted(events.items()):
            cleared = (time_ns, token) < _last_clear(counter, events)
            if of_counter == counter and event.delta is not None and not cleared:
                wanted[LAYOUT.window_of(time_ns)] += event.delta
        assert rollup.recent is not None
        assert rollup.recent.from_window == max(0, first)
        deltas = dict(rollup.recent.deltas)
        for window in range(first, rollup.through_window + 1):
            assert deltas.pop(window, 0) == wanted[window]
        assert deltas == {}


def _last_clear(counter: str, events: dict[tuple[str, int, str], Event]) -> tuple[int, str]:
    clears = [key[1:] for key, event in events.items() if event.delta is None and key[0] == counter]
    return max(clears, default=(-1, ""))


def test_after_another_strategy_recent_windows_are_known_from_the_last_change_on() -> None:
    old = fold(ZERO, [Event("a", 2 * WINDOW_NS, "t", 7)], 4, FoldCounts(), window_ns=WINDOW_NS)
    assert old.recent is None
    new = fold(
        old,
        [Event("a", 6 * WINDOW_NS, "t", 1)],
        7,
        FoldCounts(),
        window_ns=WINDOW_NS,
        recent_windows=10,
    )
    assert new.recent == Recent(3, ((6, 1),))


def test_a_fold_of_nothing_only_moves_the_window() -> None:
    rollup = Rollup(5, 2, 9, 3, total=11, changed_window=2, first_window=1)
    moved = fold(rollup, [], 8, FoldCounts(), window_ns=WINDOW_NS)
    assert moved == Rollup(5, 2, 9, 8, total=11, changed_window=2, first_window=1)


def test_a_clear_and_an_add_of_one_instant_stand_in_the_order_of_their_tokens() -> None:
    add, clear = Event("a", 5, "m", 7), Event("a", 5, "n", None)
    for events in ([add, clear], [clear, add]):
        folded = fold(ZERO, events, 0, FoldCounts(), window_ns=WINDOW_NS)
        assert folded == Rollup(0, 1, 5, 0, total=7, changed_window=0, first_window=0)
    early = Event("a", 5, "l", None)
    for events in ([add, early], [early, add]):
        folded = fold(ZERO, events, 0, FoldCounts(), window_ns=WINDOW_NS)
        assert folded == Rollup(7, 1, 5, 0, total=7, changed_window=0, first_window=0)


NOTE = ("ada", "an audit found it")


@given(
    st.lists(
        st.builds(
            Event,
            counter=st.just("a"),
            time_ns=st.integers(0, 2),
            token=st.sampled_from(["s", "t"]),
            delta=st.sampled_from([None, 1, 2]),
        )
        | st.builds(
            Event,
            counter=st.just("a"),
            time_ns=st.integers(0, 2),
            token=st.sampled_from(["s", "t"]),
            delta=st.sampled_from([1, 2]),
            note=st.just(NOTE),
        ),
        max_size=6,
    )
)
def test_adjustments_are_those_that_count(events: list[Event]) -> None:
    """One whose token was also sent with an add or a clear may be the copy that does not count."""
    counted: dict[tuple[int, str], Event] = {}
    for event in events:
        counted.setdefault((event.time_ns, event.token), event)
    assert adjustments(events) == [
        event for _, event in sorted(counted.items()) if event.note is not None
    ]
