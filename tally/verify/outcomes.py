"""I7, definite outcomes: all answers about one token agree, whenever and by whomever."""

from tally.verify.events import CounterHistory
from tally.verify.violation import Findings, Rule


def check_outcomes(history: CounterHistory, findings: Findings) -> None:
    for event in history.events:
        findings.checked[Rule.DEFINITE_OUTCOMES] += 1
        applied, refused = event.applied, event.refused
        if applied is not None and refused is not None:
            findings.add(
                Rule.DEFINITE_OUTCOMES,
                history.counter,
                f"token {event.token}: {applied.where} says that it is applied, {refused.where} "
                "that it is not and never will be",
                applied,
                refused,
            )
        never_sent = [] if event.writes else event.statuses
        if applied is not None and never_sent:
            findings.add(
                Rule.DEFINITE_OUTCOMES,
                history.counter,
                f"token {event.token}: {applied.where} says that it is applied, and nobody sent it",
                applied,
            )
