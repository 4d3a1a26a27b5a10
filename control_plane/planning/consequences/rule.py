"""What a rule is, and the ways of changing that most fields share."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from control_plane.planning.changes import Change


class Consequence(IntEnum):
    """The higher, the graver."""

    HARMLESS = 1  # nobody will notice but those who want the change
    COSTS = 2  # something becomes slower, shorter or refused, and no data is lost
    DATA_LOSS = 3  # counts or their history are lost or out of reach
    IMPOSSIBLE = 4  # not on a live namespace


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    subject: str  # a field, or the namespace as a whole
    when: str
    consequence: Consequence
    explanation: str  # what comes of it; the words of a Change stand in braces
    hint: str = ""
    applies: Callable[[Change], bool] = lambda _: True


def is_added(change: Change) -> bool:
    return change.was is None


def is_removed(change: Change) -> bool:
    return change.will is None


def is_lower(change: Change) -> bool:
    return change.is_lower


def is_higher(change: Change) -> bool:
    return change.is_higher


def is_added_or_lower(change: Change) -> bool:
    return change.was is None or change.is_lower


def is_off(change: Change) -> bool:
    return change.will == 0
