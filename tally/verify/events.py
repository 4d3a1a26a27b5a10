"""The events behind the calls: all calls with one token are one event.

What a history says of an event is how it may count: surely, never, or once or never. The same
token with several deltas is one event too, and any one of them may be the one that counts.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tally.verify.history import Call, Outcome


class CounterId(NamedTuple):
    namespace: str
    counter: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.counter}"


@dataclass(kw_only=True)
class Event:
    """What is told of it is computed once, when all calls are known."""

    time_ns: int
    token: str
    writes: list[Call] = field(default_factory=list)
    statuses: list[Call] = field(default_factory=list)

    @cached_property
    def effects(self) -> set[int | None]:
        """What it may do: the deltas that were sent with its token; None is a clear."""
        return {call.delta for call in self.writes}

    @cached_property
    def applied(self) -> Call | None:
        """The first call that said that the event counts."""
        return _first(call for call in self._calls() if call.outcome is Outcome.OK)

    @cached_property
    def refused(self) -> Call | None:
        """The first call that said that the event does not count and never will."""
        return _first(
            call for call in self._calls() if call.outcome is Outcome.FAIL and call.settles_token
        )

    @cached_property
    def must_count(self) -> bool:
        return self.applied is not None

    @cached_property
    def may_count(self) -> bool:
        if self.applied is not None:
            return True
        return self.refused is None and any(c.outcome is not Outcome.FAIL for c in self.writes)

    @cached_property
    def first_invoked_ns(self) -> int:
        return min(call.invoked_ns for call in self.writes)

    def must_show(self, read: Call) -> bool:
        """Whether it was known to count before the read began, or was made with it."""
        applied = self.applied
        if applied is None:
            return False
        is_own = (read.generation_time_ns, read.token) == (self.time_ns, self.token)
        return is_own or _before(applied, read)

    def may_show(self, read: Call) -> bool:
        """Whether a read that looks beyond what is folded can have met it.

        One that will be refused in the end may be seen until it is refused.
        """
        refused = self.refused
        if refused is not None and _before(refused, read):
            return False
        return any(
            (read.completed_ns is None or call.invoked_ns <= read.completed_ns)
            and not (call.outcome is Outcome.FAIL and _before(call, read))
            for call in self.writes
        )

    def _calls(self) -> list[Call]:
        return self.writes + self.statuses


@dataclass(kw_only=True, slots=True)
class CounterHistory:
    counter: CounterId
    events: list[Event]  # in fold order: by time, then token
    # That were answered, in the order in which they began. The others count from a time on.
    reads: list[Call]
    reads_of_ranges: list[Call]


def by_counter(calls: Iterable[Call]) -> list[CounterHistory]:
    events: defaultdict[CounterId, dict[tuple[int, str], Event]] = defaultdict(dict)
    reads: defaultdict[CounterId, list[Call]] = defaultdict(list)
    for call in calls:
        counter = CounterId(call.namespace, call.counter)
        if call.is_read:
            if call.outcome is Outcome.OK:
                reads[counter].append(call)
            continue
        identity = (call.generation_time_ns, call.token)
        event = events[counter].get(identity)
        if event is None:
            event = Event(time_ns=call.generation_time_ns, token=call.token)
            events[counter][identity] = event
        (event.writes if call.is_write else event.statuses).append(call)
    return [
        CounterHistory(
            counter=counter,
            events=[each for _, each in sorted(events[counter].items())],
            reads=[read for read in _in_order(reads[counter]) if read.from_ns is None],
            reads_of_ranges=[
                read for read in _in_order(reads[counter]) if read.from_ns is not None
            ],
        )
        for counter in sorted(events.keys() | reads.keys())
    ]


def _in_order(calls: Iterable[Call]) -> list[Call]:
    return sorted(calls, key=lambda call: call.invoked_ns)


def _first(calls: Iterable[Call]) -> Call | None:
    return min(calls, key=lambda call: call.completed_ns or 0, default=None)


def _before(call: Call, read: Call) -> bool:
    return call.completed_ns is not None and call.completed_ns < read.invoked_ns
