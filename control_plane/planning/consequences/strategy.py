"""What comes of another strategy, and of a shadow phase on the way there."""

from control_plane.planning.changes import Change
from control_plane.planning.consequences.rule import Consequence, Rule, is_added
from counter.namespaces import Strategy


def _is_cutover(change: Change) -> bool:
    before, after = change.before, change.after
    return before.strategy is Strategy.BEST_EFFORT and before.shadow is after.strategy


STRATEGY_RULES = (
    Rule(
        subject="strategy",
        when="cut over",
        applies=_is_cutover,
        consequence=Consequence.DATA_LOSS,
        explanation="reads answer with what was added in shadow phases: what best_effort counted "
        "before stays behind",
        hint="'tally cutover {name} --carry-over' compares the two first, and adds what the shadow "
        "lacks to counters that were added to since",
    ),
    Rule(
        subject="strategy",
        when="past the shadow",
        applies=lambda change: change.before.shadow is not None,
        consequence=Consequence.IMPOSSIBLE,
        explanation="a shadow phase for {shadow} can only end in {shadow}",
        hint="run 'tally cutover {name}' first, then change to {will} at once",
    ),
    Rule(
        subject="strategy",
        when="from best_effort",
        applies=lambda change: change.was is Strategy.BEST_EFFORT,
        consequence=Consequence.IMPOSSIBLE,
        explanation="the counts of best_effort are kept elsewhere, so all reads would start at 0",
        hint="keep 'strategy: best_effort' and add 'shadow: eventual', so that both are written; "
        "after a while 'tally cutover {name}' switches",
    ),
    Rule(
        subject="strategy",
        when="to best_effort",
        applies=lambda change: change.will is Strategy.BEST_EFFORT,
        consequence=Consequence.IMPOSSIBLE,
        explanation="the counts of best_effort are kept elsewhere, so all reads would start at 0",
        hint="keep 'strategy: {was}', and create a namespace for best_effort under another name",
    ),
    Rule(
        subject="strategy",
        when="to rolling_window",
        applies=lambda change: change.will is Strategy.ROLLING_WINDOW,
        consequence=Consequence.COSTS,
        explanation="reads answer with the hits of the last {length_after} instead of the all-time "
        "count, which goes on being kept; hits that are folded by now are not known one by one: "
        "for the first {length_after} window_start says from when on hits count",
    ),
    Rule(
        subject="strategy",
        when="from rolling_window",
        applies=lambda change: change.was is Strategy.ROLLING_WINDOW,
        consequence=Consequence.COSTS,
        explanation="reads answer with the all-time count instead of the hits of the last "
        "{length_before}, and without a rate",
    ),
    Rule(
        subject="strategy",
        when="to accurate",
        applies=lambda change: change.will is Strategy.ACCURATE,
        consequence=Consequence.COSTS,
        explanation="reads include every add that was acknowledged before them, from now on; for "
        "that each of them looks at the tail, and caches are not asked",
    ),
    Rule(
        subject="strategy",
        when="to eventual",
        consequence=Consequence.COSTS,
        explanation="reads do not include the adds of the last seconds any more: complete_through "
        "says how far they go",
        hint="reads that must be current can pass max_staleness",
    ),
    Rule(
        subject="shadow",
        when="cut over",
        applies=_is_cutover,
        consequence=Consequence.HARMLESS,
        explanation="the shadow phase ends with the change of the strategy",
    ),
    Rule(
        subject="shadow",
        when="begun",
        applies=is_added,
        consequence=Consequence.COSTS,
        explanation="adds are written for {will} too, from now on; reads answer as before. Each "
        "add then costs a write to the event log",
    ),
    Rule(
        subject="shadow",
        when="ended",
        consequence=Consequence.COSTS,
        explanation="adds are not written for {was} any more; what the shadow has counted stays, "
        "and a later shadow phase adds to it",
    ),
)
