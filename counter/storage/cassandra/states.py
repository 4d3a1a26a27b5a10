"""A rollup as text: the cell of the tables rollups and history.

    count epoch cleared_at_ns through_window total changed_window first_window [recent]

Rows of schema version 1 end after the fourth number. What a rolling window knows is one word:
`from_window/offset:delta,offset:delta`, with the windows as offsets from the first.
"""

from counter.errors import StoreDamaged
from counter.rollups import Recent, Rollup


def to_text(rollup: Rollup) -> str:
    text = (
        f"{rollup.count} {rollup.epoch} {rollup.cleared_at_ns} {rollup.through_window} "
        f"{rollup.total} {rollup.changed_window} {rollup.first_window}"
    )
    return text if rollup.recent is None else f"{text} {_recent_to_text(rollup.recent)}"


def from_text(text: str) -> Rollup:
    try:
        words = text.split()
        count, epoch, cleared_at_ns, through_window = map(int, words[:4])
        if len(words) == 4:
            return Rollup(count, epoch, cleared_at_ns, through_window, count, through_window)
        total, changed_window, first_window = map(int, words[4:7])
        [recent] = map(_recent_from_text, words[7:]) if len(words) > 7 else [None]
    except ValueError as error:
        raise StoreDamaged(f"a rollup cannot be read: {text!r}") from error
    return Rollup(
        count,
        epoch,
        cleared_at_ns,
        through_window,
        total,
        changed_window,
        first_window,
        recent,
    )


def _recent_to_text(recent: Recent) -> str:
    first = recent.from_window
    return f"{first}/" + ",".join(f"{window - first}:{delta}" for window, delta in recent.deltas)


def _recent_from_text(word: str) -> Recent:
    start, listed = word.split("/")
    first = int(start)
    pairs = [each.split(":") for each in listed.split(",")] if listed else []
    return Recent(first, tuple((first + int(offset), int(delta)) for offset, delta in pairs))
