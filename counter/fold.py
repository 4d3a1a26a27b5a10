"""The fold: the pure function (rollup, events) -> rollup.

Fold order is (event time, token, segment id, index in the segment). Of the events that agree on
(time, token) only the first in that order counts; a clear sets the count to 0 where it stands.

Why this makes every count exact:

* *Exactly once (I1).* The copies of one event agree on counter and time, so they lie in one window
  of one shard, and one fold record names all the segments of that window that count. The fold that
  counts one copy therefore sees them all and drops the others. No table of seen tokens is needed.
* *Determinism (I3).* The order is total and made of stored values alone: any process that folds
  the same segments gets the same rollup, whatever the order in which they were written or read.
* *Splitting does not matter.* Windows are slices of time, and time comes first in the order, so
  folding two ranges of windows one after the other equals folding them at once. The history is
  made that way: see `counter.history`.
* *Clears (I6).* A clear stands in the same order as the adds, so all folds split them alike.

Worker, accurate read and audit share this module.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from counter.events import Event
from counter.rollups import Recent, Rollup

_time_and_token = attrgetter("time_ns", "token")


@dataclass(slots=True)
class FoldCounts:
    """What folds met on the way."""

    duplicates: int = 0  # copies of an event that counted already
    conflicts: int = 0  # duplicates that asked for something else than the one that counted


def gather(
    into: defaultdict[str, list[Event]], segments: Iterable[tuple[bytes, Sequence[Event]]]
) -> None:
    """Adds the events of (segment id, events) pairs by counter; pairs must come sorted by id.

    Within one counter the events are then in the order (segment id, index), so a stable sort by
    (time, token) puts them in fold order.
    """
    for _, events in segments:
        for event in events:
            into[event.counter].append(event)


def fold(
    rollup: Rollup,
    events: list[Event],
    through_window: int,
    counts: FoldCounts,
    *,
    window_ns: int,
    recent_windows: int = 0,
) -> Rollup:
    """The rollup after the events of one counter, gathered as `gather` does.

    `recent_windows`: how many windows a rolling window has; 0 keeps no recent deltas.
    """
    count, epoch, cleared_at_ns = rollup.count, rollup.epoch, rollup.cleared_at_ns
    changed_window, first_window = rollup.changed_window, rollup.first_window
    if len(events) == 1 and not recent_windows and (delta := events[0].delta) is not None:
        window = events[0].time_ns // window_ns
        return Rollup(
            count + delta,
            epoch,
            cleared_at_ns,
            through_window,
            rollup.total + delta,
            window,
            window if rollup.through_window < 0 else first_window,
        )
    times_ns = [event.time_ns for event in events]
    deltas = [event.delta for event in events]
    counted = since_clear = events
    if None not in deltas and _come_once_each(events, times_ns):
        # Such adds make the same sum in any order: the common case needs no sorting.
        added = sum(filter(None, deltas))
        count += added
    else:
        counted = since_clear = _each_once(events, counts)
        added = 0
        for position, event in enumerate(counted):
            if event.delta is None:
                count, epoch, cleared_at_ns = 0, epoch + 1, event.time_ns
                since_clear = counted[position + 1 :]
            else:
                count += event.delta
                added += event.delta
    if times_ns:
        changed_window = max(times_ns) // window_ns
        if rollup.through_window < 0:
            first_window = min(times_ns) // window_ns
    recent = None
    if recent_windows:
        was_cleared = epoch != rollup.epoch
        recent = _recent(rollup, since_clear, was_cleared, window_ns)
        recent = _within(recent, through_window - recent_windows + 1)
    return Rollup(
        count,
        epoch,
        cleared_at_ns,
        through_window,
        rollup.total + added,
        changed_window,
        first_window,
        recent,
    )


def adjustments(events: Sequence[Event]) -> list[Event]:
    """Those of one counter's events, gathered as `gather` does, that are adjustments and count."""
    return [event for event in _each_once(events, FoldCounts()) if event.note is not None]


def _come_once_each(events: list[Event], times_ns: list[int]) -> bool:
    """Times alone mostly tell that no two of them are copies."""
    return len(set(times_ns)) == len(events) or (
        len({(event.time_ns, event.token) for event in events}) == len(events)
    )


def _each_once(events: Sequence[Event], counts: FoldCounts) -> list[Event]:
    """The events that count, in fold order."""
    counted: list[Event] = []
    last: Event | None = None
    for event in sorted(events, key=_time_and_token):
        if last is not None and event.time_ns == last.time_ns and event.token == last.token:
            counts.duplicates += 1
            counts.conflicts += event.delta != last.delta
            continue
        last = event
        counted.append(event)
    return counted


def _recent(
    rollup: Rollup, since_clear: Sequence[Event], was_cleared: bool, window_ns: int
) -> Recent:
    """What is known of each window. Of a counter that had another strategy until now, only that
    nothing was added after its last change; that one is -1 for a counter which is new."""
    known = rollup.recent or Recent(rollup.changed_window + 1)
    by_window: defaultdict[int, int] = defaultdict(int)
    if not was_cleared:
        by_window.update(known.deltas)
    for event in since_clear:
        by_window[event.time_ns // window_ns] += event.delta or 0
    return Recent(known.from_window, tuple(sorted(by_window.items())))


def _within(recent: Recent, from_window: int) -> Recent:
    return Recent(
        max(recent.from_window, from_window),
        tuple(each for each in recent.deltas if each[0] >= from_window),
    )
