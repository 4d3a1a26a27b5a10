"""I5 and I6 of reads that count from a time on: rolling windows, and growth.

Such a read says from when to when it counts, so only the events of that range matter. A rolling
window counts as other reads do: a clear in it ends what was before, and an accurate one goes on
behind its end. Growth is what was added in the range, and clears leave it alone.

Which of the unknown events count is not learnt from these reads, only checked: two ranges that
overlap need not agree on them here. Outcomes that are settled in the end make up for that.
"""

from bisect import bisect_left
from collections.abc import Sequence

from tally.verify.counts import EVENTS_NAMED_MAX, has_clears, named
from tally.verify.events import CounterHistory, Event
from tally.verify.history import Call, CallKind
from tally.verify.sums import NOTHING, State
from tally.verify.violation import Findings, Rule


def check_ranges(history: CounterHistory, findings: Findings) -> None:
    events = [event for event in history.events if event.writes]
    times_ns = [event.time_ns for event in events]
    for read in history.reads_of_ranges:
        assert read.from_ns is not None
        if read.complete_through_ns is None:
            continue
        from_here = events[bisect_left(times_ns, read.from_ns) :]
        _check(history, read, [event for event in from_here if _may_be_in(event, read)], findings)


def _check(
    history: CounterHistory, read: Call, events: Sequence[Event], findings: Findings
) -> None:
    is_growth = read.call is CallKind.GROWTH
    rule = Rule.CLEARS if has_clears(events) and not is_growth else Rule.HONEST_READS
    findings.checked[rule] += 1
    state = NOTHING
    for event in events:
        effects = {effect or 0 for effect in event.effects} if is_growth else event.effects
        state = state.after(effects, surely=_must_be_in(event, read))
    assert read.count is not None
    if state.answered_with(read.count, None) is None:
        findings.add(
            rule,
            history.counter,
            f"{read.where} says {read.count} from {read.from_ns} on, complete through "
            f"{read.complete_through_ns}. It can be {_sums(state)}: nothing{named(events)}",
            *(event.writes[0] for event in events[-EVENTS_NAMED_MAX:]),
            read,
        )


def _may_be_in(event: Event, read: Call) -> bool:
    assert read.complete_through_ns is not None
    if event.time_ns <= read.complete_through_ns:
        return event.may_count
    return read.accurate and (event.must_show(read) or event.may_show(read))


def _must_be_in(event: Event, read: Call) -> bool:
    assert read.complete_through_ns is not None
    if event.time_ns <= read.complete_through_ns:
        return event.must_count
    return event.must_show(read)


def _sums(state: State) -> str:
    """Whatever the epoch: how often the counter was cleared before the range is not known here."""
    return " or ".join(dict.fromkeys(str(sums) for sums in state.by_epoch.values()))
