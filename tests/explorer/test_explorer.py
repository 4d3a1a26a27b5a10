"""Every interleaving in small scope keeps the promises, and a protocol with a mistake does not.

`python -m tests.explorer` goes through larger scopes.
"""

import pytest

from tests.explorer.explore import explore
from tests.explorer.faults import PLANTED, REMOVED
from tests.explorer.scope import ALONE, FULL, LATER, SMALL, THREE, Scope
from tests.explorer.steps import Step

# What a scope must have met, or it has tested nothing: beginnings of steps.
_MET = [
    "server 1, x: append",
    "server 1, x: check, the window is open, acknowledge",
    "a worker: crashes",
    "a worker: propose, and another record holds",
    "a worker: propose what holds already",
    "a worker: propose 0 to 0 with segments 0",  # and all that comes then is too late
    "an eventual read: row, 0 in epoch 1, complete through",
    "an accurate read: list, 1 in epoch 0, complete through -1",  # from the tail
    "an accurate read: list, 1 in epoch 0, complete through 0",
    "server 1, late look-up of x: records, not folded yet",
    "server 1, late look-up of x: records, applied",
    "server 1, late look-up of x: records, expired",
]


@pytest.mark.parametrize("scope", [SMALL, THREE, FULL, LATER], ids=lambda scope: scope.name)
def test_every_interleaving_keeps_the_promises(scope: Scope) -> None:
    found = explore(scope)
    assert found.violation is None, str(found)
    missing = [each for each in _MET if not any(step.startswith(each) for step in found.steps)]
    assert missing == []


def test_the_scope_is_what_it_is_said_to_be() -> None:
    """Two servers, two workers, three events with one duplicate, one clear."""
    assert FULL.workers == 2
    assert {call.server for call in FULL.calls} == {1, 2}
    assert len(FULL.events) == 3
    assert [event.delta for event in FULL.events].count(None) == 1
    assert len(FULL.calls) == 4
    assert FULL.windows == 2
    found = explore(SMALL)
    # So many that no short-cut can have left most of them out.
    assert found.worlds > 3_000
    assert found.views > 3_000


# Which promise is seen to be broken first, and in how many steps at most.
_FOUND = {
    "no close check": ("I1", 6),
    "close check before the append": ("I1", 7),
    "log read before the close": ("I1", 7),
    "watermark before the rollups": ("I5", 8),
    "rollups before the record": ("I3", 7),
    "record by plain overwrite": ("I7", 10),
    "a fold that counts copies": ("I1", 9),
    "a folded row is folded again": ("I3", 14),
    "marks go back": ("I4", 17),
    "row before the watermark": ("I5", 11),
    "row before the watermark, accurately": ("I5", 13),
    "accurate read ignores records": ("I5", 9),
    "accurate read lists before the records": ("I5", 11),
    "late look-up without all segments": ("I7", 10),
    "late look-up reads the watermark last": ("I7", 8),
}


def test_every_planted_mistake_is_listed() -> None:
    assert list(_FOUND) == list(PLANTED)


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found_at_once(mistake: str) -> None:
    promise, steps = _FOUND[mistake]
    # Marks can go back only where there are two records.
    scope = FULL if mistake in ("marks go back", "record by plain overwrite") else SMALL
    found = explore(scope, PLANTED[mistake])
    assert found.violation is not None
    assert promise in found.violation.partition(":")[0], str(found)
    assert len(found.trace) <= steps, str(found)


# Without one of its steps, each program breaks this promise, in so many steps at most; or none, and
# why.
_WITHOUT: dict[tuple[str, Step], tuple[str, int] | str] = {
    ("add", Step.APPEND): ("I1", 6),
    ("add", Step.CHECK): ("I1", 6),
    ("late", Step.WATERMARK): "it tells what is forgotten, and nothing is forgotten here",
    ("late", Step.RECORDS): ("I7", 7),
    ("fold", Step.CLOSE): ("I1", 5),
    ("fold", Step.WATERMARK): ("I2", 4),
    ("fold", Step.RECORDS): "the proposal meets the record that holds; only work is lost",
    ("fold", Step.LIST): ("I1", 7),
    ("fold", Step.ROW): ("I5", 7),
    ("fold", Step.PROPOSE): ("I3", 5),
    ("fold", Step.WRITE_ROW): ("I5", 8),
    ("fold", Step.ADVANCE): ("I2", 1),
    ("accurate_read", Step.WATERMARK): "the row says itself how complete it is; more is read then",
    ("accurate_read", Step.ROW): ("I5", 12),
    ("accurate_read", Step.RECORDS): ("I5", 9),
    ("accurate_read", Step.LIST): ("I5", 5),
    ("eventual_read", Step.WATERMARK): "the stamp of the row alone is older, and true",
    ("eventual_read", Step.ROW): ("I5", 10),
}


def test_every_step_is_removed_once() -> None:
    assert list(_WITHOUT) == list(REMOVED)


@pytest.mark.parametrize("removed", REMOVED, ids=lambda each: f"{each[0]}-{each[1].value}")
def test_a_removed_step_is_found_at_once(removed: tuple[str, Step]) -> None:
    expected = _WITHOUT[removed]
    # Where only the progress suffers, a world with two windows and one worker shows it.
    scope = ALONE if expected[0] == "I2" else SMALL
    found = explore(scope, REMOVED[removed])
    if isinstance(expected, str):
        assert found.violation is None, str(found)
        return
    promise, steps = expected
    assert found.violation is not None
    assert promise in found.violation.partition(":")[0], str(found)
    assert len(found.trace) <= steps, str(found)
