"""All rules over one history."""

from collections.abc import Iterable
from dataclasses import dataclass

from tally.verify.counts import check_counts
from tally.verify.events import CounterHistory, by_counter
from tally.verify.history import Call
from tally.verify.order import check_order
from tally.verify.outcomes import check_outcomes
from tally.verify.ranges import check_ranges
from tally.verify.violation import Findings, Rule, Violation


@dataclass(frozen=True, kw_only=True)
class Report:
    calls: int
    counters: int
    tokens: int
    tokens_unsettled: int  # nobody knows whether they count
    counters_read_whole: int  # with a read that is complete through all their events
    checked: dict[Rule, int]
    violations: list[Violation]


def check(calls: Iterable[Call]) -> Report:
    """Assumes that the history has all writes to the counters in it."""
    calls = list(calls)
    histories = by_counter(calls)
    findings = Findings()
    for history in histories:
        check_outcomes(history, findings)
        check_order(history, findings)
        check_counts(history, findings)
        check_ranges(history, findings)
    events = [event for history in histories for event in history.events]
    return Report(
        calls=len(calls),
        counters=len(histories),
        tokens=len(events),
        tokens_unsettled=sum(each.may_count and not each.must_count for each in events),
        counters_read_whole=sum(_is_read_whole(history) for history in histories),
        checked=findings.checked,
        violations=findings.violations,
    )


def _is_read_whole(history: CounterHistory) -> bool:
    last_ns = max((event.time_ns for event in history.events), default=0)
    return any((read.complete_through_ns or 0) >= last_ns for read in history.reads)
