"""What the strategies on the event log share: everything but the cheap read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from counter.errors import FoldPending, NotFreshEnough, Overloaded, TallyError
from counter.events import Event
from counter.namespaces import Namespace
from counter.windows import Layout
from counter_server.admission import Admission
from counter_server.commit import GroupCommit
from counter_server.late import Identity, LateTokens, TokenStatus, identity
from counter_server.reads import Reads
from counter_server.strategies.strategy import ANY_FRESHNESS, Freshness, Outcome, Source, Value


@dataclass(frozen=True, kw_only=True)
class EventPath:
    """The parts of the server that all namespaces on the event log share."""

    admission: Admission
    commit: GroupCommit
    late: LateTokens
    reads: Reads
    layout: Layout


class Logged:
    needs: ClassVar[frozenset[str]] = frozenset({"event_log", "ledger", "rollup_store"})

    def __init__(self, namespace: Namespace, path: EventPath) -> None:
        self.namespace = namespace
        self._admission = path.admission
        self._commit = path.commit
        self._late = path.late
        self._reads = path.reads
        self._layout = path.layout

    async def add(self, events: Sequence[Event], *, wait_s: float) -> list[Outcome]:
        late, written_late = await self.write(events)
        if not late and not written_late:
            return [False] * len(events)
        settled = await self._late.settle(self.namespace.id, late + written_late, wait_s=wait_s)
        outcomes: dict[Identity, Outcome] = {}
        for at, (event, outcome) in enumerate(zip(late + written_late, settled, strict=True)):
            outcomes[identity(event)] = outcome if at < len(late) else _of_written(outcome)
        return [outcomes.get(identity(event), False) for event in events]

    async def write(self, events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
        """Writes events, and looks up no outcome: answers with those that came late.

        The first were known to be late and are not written; of the others, which were written too
        late, a fold decides. What is in neither is durable and will count exactly once.
        """
        refusal = self._admission.refusal()
        if refusal is not None:
            raise refusal
        # Windows that are known to be closed spare the write; the others are judged after it.
        first_open_ns = self._layout.end_ns(self._admission.closed_through)
        in_time = [event for event in events if event.time_ns >= first_open_ns]
        written_late: list[Event] = []
        if in_time:
            written_late = await self._commit.write(self.namespace.id, in_time)
        if len(in_time) == len(events):
            return [], written_late
        return [event for event in events if event.time_ns < first_open_ns], written_late

    async def add_and_read(self, event: Event, *, wait_s: float) -> tuple[bool, Value]:
        [outcome] = await self.add([event], wait_s=wait_s)
        if isinstance(outcome, TallyError):
            raise outcome
        [value] = await self.read_accurately([event.counter])
        return outcome, value

    async def token_status(self, event: Event) -> TokenStatus:
        return await self._late.status(self.namespace.id, event)

    async def read_accurately(
        self, counters: Sequence[str], freshness: Freshness = ANY_FRESHNESS
    ) -> list[Value]:
        """The freshest there is. What is asked for beyond that is an error, not a stale answer."""
        counts = await self._reads.accurate(self.namespace, counters)
        self._check_freshness([each.complete_through_ns for each in counts], freshness)
        return [
            Value(
                each.count,
                each.complete_through_ns,
                each.epoch,
                each.cleared_at_ns,
                Source.ROLLUP_AND_TAIL,
            )
            for each in counts
        ]

    def _check_freshness(self, complete_through_ns: Sequence[int], freshness: Freshness) -> None:
        at_least_ns = freshness.at_least_ns
        if at_least_ns is not None and any(each < at_least_ns for each in complete_through_ns):
            raise NotFreshEnough(
                "nothing is complete through at_least yet: try again later, or ask for less",
                retry_after_ms=self._layout.window_ms,
            )


def _of_written(outcome: Outcome) -> Outcome:
    """Overloaded promises that nothing was written; of an event that was, it must not be said."""
    if isinstance(outcome, Overloaded):
        return FoldPending(outcome.message, retry_after_ms=outcome.retry_after_ms)
    return outcome
