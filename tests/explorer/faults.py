"""Mistakes to plant: a protocol with a step removed, two swapped, or one done carelessly."""

from dataclasses import dataclass, replace

from tests.explorer import steps
from tests.explorer.steps import Program, Step


@dataclass(frozen=True, kw_only=True)
class Protocol:
    add: Program = steps.ADD
    late: Program = steps.LATE
    fold: Program = steps.FOLD
    accurate_read: Program = steps.ACCURATE_READ
    eventual_read: Program = steps.EVENTUAL_READ
    # Whether a record that is there already is left as it is.
    inserts_if_absent: bool = True
    # Whether a late look-up reads every segment that the record names.
    looks_up_all_segments: bool = True
    # Whether a fold counts each event once, however many segments hold it.
    drops_copies: bool = True
    # Whether a row that has the record in it already is left as it is.
    skips_folded_rows: bool = True
    # Whether an older row never replaces a newer one, and the marks only grow.
    marks_only_grow: bool = True


CORRECT = Protocol()


def without(program: Program, step: Step) -> Program:
    return tuple(each for each in program if each is not step)


def moved(program: Program, step: Step, *, before: Step) -> Program:
    rest = without(program, step)
    at = rest.index(before)
    return (*rest[:at], step, *rest[at:])


PLANTED: dict[str, Protocol] = {
    "no close check": replace(CORRECT, add=without(steps.ADD, Step.CHECK)),
    "close check before the append": replace(
        CORRECT, add=moved(steps.ADD, Step.CHECK, before=Step.APPEND)
    ),
    "log read before the close": replace(
        CORRECT, fold=moved(steps.FOLD, Step.CLOSE, before=Step.ROW)
    ),
    "watermark before the rollups": replace(
        CORRECT, fold=moved(steps.FOLD, Step.ADVANCE, before=Step.WRITE_ROW)
    ),
    "rollups before the record": replace(
        CORRECT, fold=moved(steps.FOLD, Step.WRITE_ROW, before=Step.PROPOSE)
    ),
    "record by plain overwrite": replace(CORRECT, inserts_if_absent=False),
    "a fold that counts copies": replace(CORRECT, drops_copies=False),
    "a folded row is folded again": replace(CORRECT, skips_folded_rows=False),
    "marks go back": replace(CORRECT, marks_only_grow=False),
    "row before the watermark": replace(
        CORRECT, eventual_read=moved(steps.EVENTUAL_READ, Step.ROW, before=Step.WATERMARK)
    ),
    "row before the watermark, accurately": replace(
        CORRECT, accurate_read=moved(steps.ACCURATE_READ, Step.ROW, before=Step.WATERMARK)
    ),
    "accurate read ignores records": replace(
        CORRECT, accurate_read=without(steps.ACCURATE_READ, Step.RECORDS)
    ),
    "accurate read lists before the records": replace(
        CORRECT, accurate_read=moved(steps.ACCURATE_READ, Step.LIST, before=Step.RECORDS)
    ),
    "late look-up without all segments": replace(CORRECT, looks_up_all_segments=False),
    "late look-up reads the watermark last": replace(
        CORRECT, late=moved(steps.LATE, Step.RECORDS, before=Step.WATERMARK)
    ),
}

_PROGRAMS = ("add", "late", "fold", "accurate_read", "eventual_read")
# One step less, for every step. Segments do not change, so when their events are read is no step of
# this world.
REMOVED: dict[tuple[str, Step], Protocol] = {
    (name, step): replace(CORRECT, **{name: without(getattr(CORRECT, name), step)})
    for name in _PROGRAMS
    for step in getattr(CORRECT, name)
    if step is not Step.BODIES
}
