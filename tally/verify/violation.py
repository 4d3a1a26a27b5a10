"""What a rule says when calls contradict each other, and how it counts its work."""

from dataclasses import dataclass, field
from enum import Enum

from tally.verify.history import Call


class Rule(Enum):
    EXACTLY_ONCE = "I1"
    NO_GOING_BACK = "I4"
    HONEST_READS = "I5"
    CLEARS = "I6"
    DEFINITE_OUTCOMES = "I7"
    AGREEMENT = "agreement"

    @property
    def promise(self) -> str:
        return _PROMISES[self]


_PROMISES = {
    Rule.EXACTLY_ONCE: "what was acknowledged is counted once, what failed never",
    Rule.NO_GOING_BACK: "reads do not go back",
    Rule.HONEST_READS: "a read counts what it says it counts",
    Rule.CLEARS: "a clear splits the events of its counter alike for all",
    Rule.DEFINITE_OUTCOMES: "a token is applied or not, for ever",
    Rule.AGREEMENT: "reads that are equally complete are equal",
}


@dataclass(frozen=True, kw_only=True)
class Violation:
    rule: Rule
    counter: str
    why: str
    calls: tuple[Call, ...]  # that contradict each other

    def __str__(self) -> str:
        return f"{self.rule.value} {self.counter}: {self.why}"


@dataclass
class Findings:
    """By rule: how many calls or tokens it was asked about; and what it found."""

    checked: dict[Rule, int] = field(default_factory=lambda: dict.fromkeys(Rule, 0))
    violations: list[Violation] = field(default_factory=list)

    def add(self, rule: Rule, counter: object, why: str, *calls: Call) -> None:
        self.violations.append(Violation(rule=rule, counter=str(counter), why=why, calls=calls))
