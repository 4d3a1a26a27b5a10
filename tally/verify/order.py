"""I4, no going back: an answer is as complete as it was asked to be, and accurate answers are as
complete as every answer that came before them.

Other reads may come from caches of different age, so without `at_least` they may go back.
"""

from tally.verify.events import CounterHistory
from tally.verify.history import Call
from tally.verify.violation import Findings, Rule


def check_order(history: CounterHistory, findings: Findings) -> None:
    reads = sorted(history.reads + history.reads_of_ranges, key=lambda read: read.invoked_ns)
    stamped = [read for read in reads if read.complete_through_ns is not None]
    for read in stamped:
        findings.checked[Rule.NO_GOING_BACK] += 1
        if read.at_least_ns is not None and _through(read) < read.at_least_ns:
            findings.add(
                Rule.NO_GOING_BACK,
                history.counter,
                f"{read.where} asked for at least {read.at_least_ns} and was answered with "
                f"complete_through {read.complete_through_ns}",
                read,
            )
    _check_accurate(history, stamped, findings)


def _check_accurate(history: CounterHistory, reads: list[Call], findings: Findings) -> None:
    completed = sorted(reads, key=lambda read: read.completed_ns or 0)
    furthest: Call | None = None
    at = 0
    for read in reads:  # in the order in which they began
        while at < len(completed) and (completed[at].completed_ns or 0) < read.invoked_ns:
            if furthest is None or _through(completed[at]) > _through(furthest):
                furthest = completed[at]
            at += 1
        if read.accurate and furthest is not None and _through(read) < _through(furthest):
            findings.add(
                Rule.NO_GOING_BACK,
                history.counter,
                f"{read.where} is accurate and complete through {read.complete_through_ns}, after "
                f"{furthest.where} was complete through {furthest.complete_through_ns}",
                furthest,
                read,
            )


def _through(read: Call) -> int:
    assert read.complete_through_ns is not None
    return read.complete_through_ns
