"""What comes of other values of the plain fields."""

from control_plane.planning.changes import Change
from control_plane.planning.consequences.rule import (
    Consequence,
    Rule,
    is_added,
    is_higher,
    is_lower,
    is_off,
    is_removed,
)
from counter.namespaces import Strategy


def _asks_no_cache(change: Change) -> bool:
    return change.after.strategy is not Strategy.EVENTUAL


FIELD_RULES = (
    *(
        Rule(
            subject=subject,
            when="changed",
            consequence=Consequence.HARMLESS,
            explanation="is for people: no counter behaves differently",
        )
        for subject in ("description", "owner")
    ),
    Rule(
        subject="cardinality",
        when="changed",
        consequence=Consequence.IMPOSSIBLE,
        explanation="it is fixed once a namespace is created: the rollups would not be found any "
        "more, and all reads would start at 0",
        hint="write 'cardinality: {was}'; or create a namespace under another name with "
        "'cardinality: {will}', add to both for a while, and then delete this one",
    ),
    Rule(
        subject="max_delta",
        when="lower",
        applies=is_lower,
        consequence=Consequence.COSTS,
        explanation="adds beyond {will}, in either direction, are refused (DELTA_TOO_LARGE)",
    ),
    Rule(
        subject="max_delta",
        when="higher",
        consequence=Consequence.HARMLESS,
        explanation="adds of up to {will}, in either direction, are taken",
    ),
    *(
        Rule(
            subject=subject,
            when="not asked",
            applies=_asks_no_cache,
            consequence=Consequence.HARMLESS,
            explanation="only reads of strategy eventual ask the caches",
        )
        for subject in ("cache.ttl", "cache.local_ttl")
    ),
    Rule(
        subject="cache.ttl",
        when="longer",
        applies=is_higher,
        consequence=Consequence.COSTS,
        explanation="a count may be answered from the shared cache for {will} instead of {was}: "
        "answers may be that much older, and complete_through says so",
    ),
    Rule(
        subject="cache.ttl",
        when="off",
        applies=is_off,
        consequence=Consequence.COSTS,
        explanation="caches are not asked any more, from now on: every read goes to the store",
    ),
    Rule(
        subject="cache.ttl",
        when="shorter",
        consequence=Consequence.COSTS,
        explanation="counts stay in the shared cache for {will} instead of {was}: more reads go to "
        "the store; what is cached already stays for up to {was}",
    ),
    Rule(
        subject="cache.local_ttl",
        when="longer",
        applies=is_higher,
        consequence=Consequence.COSTS,
        explanation="a server may answer with a count that it has had for {will} instead of {was}: "
        "answers may be that much older, and complete_through says so",
    ),
    Rule(
        subject="cache.local_ttl",
        when="off",
        applies=is_off,
        consequence=Consequence.COSTS,
        explanation="servers do not answer from their own memory any more: every read asks the "
        "shared cache, or the store where that is off",
    ),
    Rule(
        subject="cache.local_ttl",
        when="shorter",
        consequence=Consequence.COSTS,
        explanation="servers keep counts for {will} instead of {was}: more reads go further; what "
        "they have already stays for up to {was}",
    ),
    Rule(
        subject="dedupe_ttl",
        when="not needed",
        applies=lambda change: change.after.strategy is not Strategy.BEST_EFFORT,
        consequence=Consequence.HARMLESS,
        explanation="{strategy} counts every token once without it",
    ),
    Rule(
        subject="dedupe_ttl",
        when="removed",
        applies=is_removed,
        consequence=Consequence.COSTS,
        explanation="tokens are not looked at any more: an add that is retried counts again",
    ),
    Rule(
        subject="dedupe_ttl",
        when="shorter",
        applies=is_lower,
        consequence=Consequence.COSTS,
        explanation="an add that is retried after more than {will}, instead of {was}, counts again",
    ),
    Rule(
        subject="dedupe_ttl",
        when="added or longer",
        consequence=Consequence.HARMLESS,
        explanation="the token of each add is remembered for {will}, from now on: a retry within "
        "that time does not count again",
    ),
    Rule(
        subject="rolling_window.length",
        when="added",
        applies=is_added,
        consequence=Consequence.HARMLESS,
        explanation="goes with the strategy: how far back hits count",
    ),
    Rule(
        subject="rolling_window.length",
        when="removed",
        applies=is_removed,
        consequence=Consequence.HARMLESS,
        explanation="goes with the strategy",
    ),
    Rule(
        subject="rolling_window.length",
        when="longer",
        applies=is_higher,
        consequence=Consequence.COSTS,
        explanation="reads answer with the hits of the last {will} instead of {was}; older hits "
        "are not known one by one: for the first {longer_by} window_start says from when on hits "
        "count",
    ),
    Rule(
        subject="rolling_window.length",
        when="shorter",
        consequence=Consequence.COSTS,
        explanation="reads answer with the hits of the last {will} instead of {was}: counts are "
        "lower at once",
    ),
)
