"""A history of calls and the checker that explains every count by it.

Outcomes: `ok` (it happened), `fail` (a refusal that promises it did not), `unknown` (anything
else). Retries of one token are one event.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    UNKNOWN = "unknown"
    OK = "ok"
    FAIL = "fail"


class EventId(NamedTuple):
    namespace: str
    counter: str
    time_ns: int
    token: str


@dataclass
class History:
    deltas: dict[EventId, int | None] = field(default_factory=dict)  # None: a clear
    outcomes: dict[EventId, Outcome] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)
    calls: int = 0
    duplicates_seen: int = 0

    def invoke(self, event: EventId, delta: int | None) -> None:
        self.calls += 1
        assert self.deltas.setdefault(event, delta) == delta
        self.outcomes.setdefault(event, Outcome.UNKNOWN)

    def complete(self, event: EventId, outcome: Outcome) -> None:
        """A later answer may settle an unknown one, but two definite ones must agree."""
        before = self.outcomes[event]
        if outcome is Outcome.UNKNOWN:
            return
        if before is not Outcome.UNKNOWN and before is not outcome:
            self.contradictions.append(f"{event}: {before.value}, then {outcome.value}")
        self.outcomes[event] = outcome

    def settle(self, event: EventId, *, applied: bool) -> None:
        """What the platform says for ever, against what the client saw (I7)."""
        self.complete(event, Outcome.OK if applied else Outcome.FAIL)

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
