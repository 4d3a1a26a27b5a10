"""I1, I5, I6 and agreement: every count is explained by the events that it says it counts.

A read that is complete through T counts the events with a time up to T, folded in the order (time,
token), each once, and which of them count is decided for ever. So the events of a counter are gone
through once, in fold order, with the set of the counts that are possible so far: some events must
count, some never do, and of some nobody knows. Where a read stops, its count must be one of these,
and from there on it is the only one: the next read is explained from there.

An accurate read goes on behind its T: with all events that were acknowledged before it began, and
with any of those that were under way until it was answered. One that was made with an add has that
one too. A read of the past has a T that is not after the time that it was asked for.
"""

from collections.abc import Sequence

from tally.verify.events import CounterHistory, Event
from tally.verify.history import Call
from tally.verify.sums import NOTHING, State
from tally.verify.violation import Findings, Rule

EVENTS_NAMED_MAX = 5


def check_counts(history: CounterHistory, findings: Findings) -> None:
    # Of an answer that does not say how fresh it is, nothing else can be said either.
    reads = [read for read in history.reads if read.complete_through_ns is not None]
    _check_past(history, reads, findings)
    _Walk(history, findings).check(reads)


def _check_past(history: CounterHistory, reads: Sequence[Call], findings: Findings) -> None:
    for read in reads:
        assert read.complete_through_ns is not None
        if read.as_of_ns is not None and read.complete_through_ns > read.as_of_ns:
            findings.add(
                Rule.HONEST_READS,
                history.counter,
                f"{read.where} asked for the count as of {read.as_of_ns} and was answered with "
                f"complete_through {read.complete_through_ns}",
                read,
            )


class _Walk:
    def __init__(self, history: CounterHistory, findings: Findings) -> None:
        self._counter = history.counter
        self._events = [event for event in history.events if event.writes]
        self._findings = findings
        self._state = NOTHING
        self._folded = 0  # how many events are in the state
        self._clears = 0  # and how many of them are clears, or may be
        self._pinned: Call | None = None  # the read that left this state
        self._pinned_at = 0
        # From each event on: when the first of them was sent. Reads that were answered before need
        # look no further.
        self._sent_from_ns = [event.first_invoked_ns for event in self._events]
        for at in reversed(range(len(self._events) - 1)):
            self._sent_from_ns[at] = min(self._sent_from_ns[at], self._sent_from_ns[at + 1])

    def check(self, reads: Sequence[Call]) -> None:
        # Of reads that are equally complete the plain ones come first: they leave fewer counts.
        for read in sorted(reads, key=lambda each: (each.complete_through_ns, each.accurate)):
            self._fold_through(read)
            tail = self._tail(read) if read.accurate else []
            if tail:
                self._check_with_tail(read, tail)
            else:
                self._check_folded(read)

    def _fold_through(self, read: Call) -> None:
        assert read.complete_through_ns is not None
        while (
            self._folded < len(self._events)
            and self._events[self._folded].time_ns <= read.complete_through_ns
        ):
            event = self._events[self._folded]
            if event.may_count:
                self._state = self._state.after(event.effects, surely=event.must_count)
                self._clears += None in event.effects
            self._folded += 1

    def _tail(self, read: Call) -> list[Event]:
        tail = []
        for at in range(self._folded, len(self._events)):
            if read.completed_ns is not None and self._sent_from_ns[at] > read.completed_ns:
                break
            event = self._events[at]
            if event.must_show(read) or event.may_show(read):
                tail.append(event)
        return tail

    def _check_folded(self, read: Call) -> None:
        is_whole = self._folded == len(self._events)
        self._findings.checked[Rule.EXACTLY_ONCE if is_whole else Rule.HONEST_READS] += 1
        is_repeated = self._pinned is not None and self._pinned_at == self._folded
        self._findings.checked[Rule.AGREEMENT] += is_repeated
        self._findings.checked[Rule.CLEARS] += self._clears > 0
        assert read.count is not None
        left = self._state.answered_with(read.count, read.epoch)
        if left is not None:
            self._state, self._pinned, self._pinned_at = left, read, self._folded
        elif is_repeated:
            self._disagrees(read)
        else:
            rule = Rule.EXACTLY_ONCE if is_whole else Rule.HONEST_READS
            since = self._events[self._pinned_at : self._folded]
            self._report(rule, read, self._state, since)

    def _check_with_tail(self, read: Call, tail: list[Event]) -> None:
        self._findings.checked[Rule.HONEST_READS] += 1
        self._findings.checked[Rule.CLEARS] += has_clears(tail)
        state = self._state
        for event in tail:
            state = state.after(event.effects, surely=event.must_show(read))
        assert read.count is not None
        if state.answered_with(read.count, read.epoch) is None:
            since = self._events[self._pinned_at : self._folded] + tail
            self._report(Rule.HONEST_READS, read, state, since)

    def _disagrees(self, read: Call) -> None:
        assert self._pinned is not None
        self._findings.add(
            Rule.AGREEMENT,
            self._counter,
            f"{read.where} says {_answer(read)} and {self._pinned.where} says "
            f"{_answer(self._pinned)}; both are complete through the same events",
            self._pinned,
            read,
        )

    def _report(self, rule: Rule, read: Call, state: State, since: list[Event]) -> None:
        if has_clears(since):
            rule = Rule.CLEARS
        basis = "nothing" if self._pinned is None else f"what {self._pinned.where} counted"
        why = (
            f"{read.where} says {_answer(read)}, complete through {read.complete_through_ns}. "
            f"It can be {state}: {basis}{named(since)}{self._guess(read, state, since)}"
        )
        calls = [event.writes[0] for event in since[-EVENTS_NAMED_MAX:]]
        if self._pinned is not None:
            calls.insert(0, self._pinned)
        self._findings.add(rule, self._counter, why, *calls, read)

    def _guess(self, read: Call, state: State, since: list[Event]) -> str:
        """What would explain the count, if one event alone was treated wrongly."""
        assert read.count is not None
        counted = {id(event) for event in since if event.may_count}
        for event in reversed(self._events):
            for effect in event.effects - {None}:
                assert effect is not None
                first = event.writes[0].where
                if id(event) in counted:
                    if state.answered_with(read.count - effect, read.epoch) is not None:
                        return f". One explanation: {first} counted twice"
                    if state.answered_with(read.count + effect, read.epoch) is not None:
                        return f". One explanation: {first} was lost"
                elif state.answered_with(read.count - effect, read.epoch) is not None:
                    what = "failed" if not event.may_count else "comes later"
                    return f". One explanation: {first} counted, which {what}"
        return ""


def has_clears(events: Sequence[Event]) -> bool:
    return any(None in event.effects for event in events)


def _answer(read: Call) -> str:
    return f"{read.count} in epoch {read.epoch}" if read.epoch else f"{read.count}"


def named(events: Sequence[Event]) -> str:
    """The events after what was known, the last ones by their calls."""
    if not events:
        return ""
    shown = [f"{event.writes[0].where} {_certainty(event)}" for event in events]
    if len(shown) <= EVENTS_NAMED_MAX:
        return ", then " + ", ".join(shown)
    left = len(shown) - EVENTS_NAMED_MAX
    return f", then {left} other events, " + ", ".join(shown[-EVENTS_NAMED_MAX:])


def _certainty(event: Event) -> str:
    effects = " or ".join(
        "clear" if effect is None else f"{effect:+d}"
        for effect in sorted(event.effects, key=lambda each: (each is None, each or 0))
    )
    if event.must_count:
        return f"[{effects}, ok]"
    return f"[{effects}, unknown]" if event.may_count else f"[{effects}, failed]"
