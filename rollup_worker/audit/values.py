"""What audits begin with, and what they find."""

from dataclasses import dataclass
from enum import Enum

from counter.rollups import Rollup


class DifferenceKind(Enum):
    ROLLUP = "rollup"
    HISTORY = "history"
    HISTORY_MISSING = "history missing"
    SEGMENTS = "segments"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    kind: DifferenceKind
    # The windows that it comes from.
    from_window: int
    to_window: int
    expected: int
    actual: int
    message: str
    # An adjustment made up for it later: the counter is right again, this state stays as it was.
    is_repaired: bool = False


class BaseKind(Enum):
    START = "start"  # 0, before the first event
    HISTORY = "history"  # a state in the history
    # The rollup itself, for want of anything earlier: shows only whether folds missed it.
    ROLLUP = "rollup"


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    kind: BaseKind
    through_window: int  # the state holds every event up to the end of this window
    state: Rollup
