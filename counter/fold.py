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
  folding two ranges of windows one after the other equals folding them at once.
* *Clears (I6).* A clear stands in the same order as the adds, so all folds split them alike.

Worker, accurate read and audit share this module.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from counter.events import Event
from counter.rollups import Rollup

EventsByCounter = dict[str, list[Event]]

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


def fold(rollup: Rollup, events: list[Event], through_window: int, counts: FoldCounts) -> Rollup:
    """The rollup after the events of one counter, gathered as `gather` does."""
    count, epoch, cleared_at_ns = rollup.count, rollup.epoch, rollup.cleared_at_ns
    # Adds that come once each make the same sum in any order: the common cases need no sorting.
    if len(events) == 1 and (delta := events[0].delta) is not None:
        return Rollup(count + delta, epoch, cleared_at_ns, through_window)
    deltas = [event.delta for event in events if event.delta is not None]
    if len(deltas) == len(events) and _each_once(events):
        return Rollup(count + sum(deltas), epoch, cleared_at_ns, through_window)
    events = sorted(events, key=_time_and_token)
    counted: Event | None = None
    for event in events:
        if (
            counted is not None
            and event.time_ns == counted.time_ns
            and event.token == counted.token
        ):
            counts.duplicates += 1
            counts.conflicts += event.delta != counted.delta
            continue
        counted = event
        if event.delta is None:
            count, epoch, cleared_at_ns = 0, epoch + 1, event.time_ns
        else:
            count += event.delta
    return Rollup(count, epoch, cleared_at_ns, through_window)


def _each_once(events: list[Event]) -> bool:
    """Whether no two events of one counter are copies; times alone mostly tell."""
    return len({event.time_ns for event in events}) == len(events) or (
        len({(event.time_ns, event.token) for event in events}) == len(events)
    )
