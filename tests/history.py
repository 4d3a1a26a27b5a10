"""A history of calls, as it is recorded while a test runs, and what must come of it.

The calls are those of `tally verify`, which checks them; `expected` is a model of its own, for what
counters must be once every token is settled. Retries of one token are one event.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tally.verify.check import Report, check
from tally.verify.history import Call, Outcome, write_history


class EventId(NamedTuple):
    namespace: str
    counter: str
    time_ns: int
    token: str


@dataclass
class History:
    calls: list[Call] = field(default_factory=list)
    deltas: dict[EventId, int | None] = field(default_factory=dict)  # None: a clear
    outcomes: dict[EventId, Outcome] = field(default_factory=dict)
    duplicates_seen: int = 0
    cancelled: int = 0  # calls that their caller gave up
    refusals: Counter[str] = field(default_factory=Counter)  # of writes, by reason

    def plan(self, event: EventId, delta: int | None) -> None:
        """The event is about to be sent, once or more often."""
        self.deltas[event] = delta
        self.outcomes[event] = Outcome.UNKNOWN

    def record(self, call: Call) -> None:
        """A later answer may settle an unknown one. Whether answers agree, `report` says."""
        self.calls.append(call)
        if call.settles_token:
            event = EventId(call.namespace, call.counter, call.generation_time_ns, call.token)
            self.outcomes[event] = call.outcome

    @property
    def writes(self) -> int:
        return sum(call.is_write for call in self.calls)

    @property
    def reads(self) -> int:
        return sum(call.count is not None for call in self.calls)

    def report(self) -> Report:
        return check(self.calls)

    def save(self, path: Path) -> None:
        """For `tally verify`."""
        with path.open("wb") as stream:
            write_history(self.calls, stream)

    def counters(self) -> list[tuple[str, str]]:
        return sorted({(event.namespace, event.counter) for event in self.deltas})

    def expected(
        self, namespace: str, counter: str, before_ns: int | None = None
    ) -> tuple[int, int]:
        """Count and epoch once every token is settled, by a model of its own; of the events
        before a time, if one is given."""
        count = epoch = 0
        happened = sorted(
            (event.time_ns, event.token, self.deltas[event])
            for event, outcome in self.outcomes.items()
            if outcome is Outcome.OK
            and event[:2] == (namespace, counter)
            and (before_ns is None or event.time_ns < before_ns)
        )
        for _, _, delta in happened:
            if delta is None:
                count, epoch = 0, epoch + 1
            else:
                count += delta
        return count, epoch
