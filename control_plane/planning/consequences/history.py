"""What comes of another history: of steps that come and go, and of their retention."""

from control_plane.planning.consequences.rule import Consequence, Rule, is_added, is_lower

HISTORY_RULES = (
    Rule(
        subject="history.step",
        when="added",
        applies=is_added,
        consequence=Consequence.HARMLESS,
        explanation="the state at the end of each step of {step} is kept for {kept_after}, of what "
        "is folded from now on; earlier states are not made up",
    ),
    Rule(
        subject="history.step",
        when="the last removed",
        applies=lambda change: not change.after.history,
        consequence=Consequence.DATA_LOSS,
        explanation="no history is kept any more, and the states by steps of {step} that were kept "
        "are out of reach (HISTORY_OFF)",
        hint="a rollback brings back what has not expired by then, with a gap for the time between",
    ),
    Rule(
        subject="history.step",
        when="removed, finer ones stay",
        applies=lambda change: bool(change.left_steps),
        consequence=Consequence.DATA_LOSS,
        explanation="steps of {step} are made of those of {left_step} from now on, which are kept "
        "for {left_kept}: what is older is out of reach",
        hint="a rollback brings back what has not expired by then, with a gap for the time between",
    ),
    Rule(
        subject="history.step",
        when="removed",
        consequence=Consequence.DATA_LOSS,
        explanation="steps of {step} cannot be asked for any more (STEP_NOT_KEPT), and the states "
        "that were kept are out of reach",
        hint="a rollback brings back what has not expired by then, with a gap for the time between",
    ),
    Rule(
        subject="history.retention",
        when="shorter",
        applies=is_lower,
        consequence=Consequence.DATA_LOSS,
        explanation="states by steps of {step} that are written from now on are lost after "
        "{kept_after} instead of {kept}; those that are there stay for their {kept}",
    ),
    Rule(
        subject="history.retention",
        when="longer",
        consequence=Consequence.HARMLESS,
        explanation="states by steps of {step} that are written from now on are kept for "
        "{kept_after}; those that are there go after {kept} as before, and what is gone does not "
        "come back",
    ),
)
