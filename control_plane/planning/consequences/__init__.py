"""What comes of a change to live namespaces: a rule for each way in which something can change.

For each field the first rule that applies holds. Each rule has a test in which what it says comes
true.
"""

from control_plane.planning.changes import Change
from control_plane.planning.consequences.actions import ACTION_RULES
from control_plane.planning.consequences.fields import FIELD_RULES
from control_plane.planning.consequences.history import HISTORY_RULES
from control_plane.planning.consequences.limits import LIMIT_RULES
from control_plane.planning.consequences.rule import Consequence, Rule
from control_plane.planning.consequences.strategy import STRATEGY_RULES

__all__ = ["ACTION_RULES", "RULES", "Consequence", "Rule", "rule_for"]

RULES = (*STRATEGY_RULES, *FIELD_RULES, *HISTORY_RULES, *LIMIT_RULES)


def rule_for(change: Change) -> Rule:
    """The one that holds."""
    for rule in RULES:
        if rule.subject == change.subject and rule.applies(change):
            return rule
    raise AssertionError(f"no rule says what comes of another {change.subject}")
