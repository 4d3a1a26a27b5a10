"""What comes of creating, deleting and restoring namespaces."""

from control_plane.planning.consequences.rule import Consequence, Rule
from counter.namespaces import RETIRED_MAX

NAMESPACE = "namespace"

CREATED = Rule(
    subject=NAMESPACE,
    when="created",
    consequence=Consequence.HARMLESS,
    explanation="its counters start at 0",
)
CREATED_AGAIN = Rule(
    subject=NAMESPACE,
    when="created again",
    consequence=Consequence.HARMLESS,
    explanation="its counters start at 0: the counts of the one of this name that was deleted do "
    "not come back, a rollback would bring them back",
)
FORGOTTEN = Rule(
    subject=NAMESPACE,
    when="forgotten",
    consequence=Consequence.HARMLESS,
    explanation="its counters start at 0: the counts that it had are out of reach for good, "
    f"because it is not among the last {RETIRED_MAX:,} that were deleted",
)
RESTORED = Rule(
    subject=NAMESPACE,
    when="restored",
    consequence=Consequence.HARMLESS,
    explanation="is there again, with the counts that it had when it was deleted",
)
RESTORED_BEST_EFFORT = Rule(
    subject=NAMESPACE,
    when="restored best_effort",
    consequence=Consequence.HARMLESS,
    explanation="is there again, with those of its counts that best_effort has not lost since",
)
REPLACED = Rule(
    subject=NAMESPACE,
    when="replaced",
    consequence=Consequence.DATA_LOSS,
    explanation="the earlier namespace of this name is there again with its counts, and the "
    "counts of the one that is live now are out of reach",
)
DELETED = Rule(
    subject=NAMESPACE,
    when="deleted",
    consequence=Consequence.DATA_LOSS,
    explanation="callers are refused (NAMESPACE_UNKNOWN), and its counts are out of reach; a "
    f"rollback brings them back as long as it is among the last {RETIRED_MAX:,} that were deleted",
)
DELETED_BEST_EFFORT = Rule(
    subject=NAMESPACE,
    when="deleted best_effort",
    consequence=Consequence.DATA_LOSS,
    explanation="callers are refused (NAMESPACE_UNKNOWN), and its counts are out of reach; a "
    "rollback brings the namespace back, but best_effort may have lost its counts by then",
)
ACTION_RULES = (
    CREATED,
    CREATED_AGAIN,
    FORGOTTEN,
    RESTORED,
    RESTORED_BEST_EFFORT,
    REPLACED,
    DELETED,
    DELETED_BEST_EFFORT,
)
