"""What comes of other limits."""

from control_plane.planning.consequences.rule import (
    Consequence,
    Rule,
    is_added_or_lower,
    is_removed,
)

_LIMITED = {
    "limits.adds_per_s": "adds beyond {will} per second, of the whole fleet, are refused "
    "(ADDS_LIMITED)",
    "limits.reads_per_s": "reads beyond {will} per second, of the whole fleet, are refused "
    "(READS_LIMITED)",
    "limits.counters": "when there are {will} counters, adds to further ones are refused "
    "(COUNTERS_LIMITED); those that are there go on",
    "limits.batch_items": "calls with more than {will} items are refused (BATCH_TOO_LARGE)",
}

LIMIT_RULES = (
    *(
        Rule(
            subject=subject,
            when="added or lower",
            applies=is_added_or_lower,
            consequence=Consequence.COSTS,
            explanation=explanation,
        )
        for subject, explanation in _LIMITED.items()
    ),
    *(
        Rule(
            subject=subject,
            when="removed or higher",
            consequence=Consequence.HARMLESS,
            explanation="callers may do more than before",
        )
        for subject in _LIMITED
    ),
    Rule(
        subject="limits.names",
        when="removed",
        applies=is_removed,
        consequence=Consequence.HARMLESS,
        explanation="counters of any name are taken",
    ),
    Rule(
        subject="limits.names",
        when="added or changed",
        consequence=Consequence.COSTS,
        explanation="adds and clears of counters whose whole name does not match {will} are "
        "refused (NAME_NOT_ALLOWED), of those that are there too; their counts can still be read",
    ),
)
