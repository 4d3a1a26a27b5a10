"""The order of the steps, as the explorer goes through it.

Each step is one call of a store, and anything may happen between two of them. `test_step_order`
runs the real classes on stores that write down what is called, and compares.
"""

from enum import Enum


class Step(Enum):
    APPEND = "append"  # the segment becomes durable
    CHECK = "check"  # the close mark is read: may the event be acknowledged?
    CLOSE = "close"  # the close mark moves, or is read
    WATERMARK = "watermark"  # is read
    RECORDS = "records"  # are read
    LIST = "list"  # the segments of some windows
    BODIES = "bodies"  # the events of segments that are known
    ROW = "row"  # the counter's rollup is read
    PROPOSE = "propose"  # the fold record is inserted if there is none
    WRITE_ROW = "write row"
    ADVANCE = "advance"  # the watermark moves


Program = tuple[Step, ...]

ADD: Program = (Step.APPEND, Step.CHECK)
LATE: Program = (Step.WATERMARK, Step.RECORDS, Step.BODIES)
FOLD: Program = (
    Step.CLOSE,
    Step.WATERMARK,
    Step.RECORDS,
    Step.LIST,
    Step.BODIES,
    Step.ROW,
    Step.PROPOSE,
    Step.WRITE_ROW,
    Step.ADVANCE,
)
ACCURATE_READ: Program = (Step.WATERMARK, Step.ROW, Step.RECORDS, Step.LIST, Step.BODIES)
EVENTUAL_READ: Program = (Step.WATERMARK, Step.ROW)
