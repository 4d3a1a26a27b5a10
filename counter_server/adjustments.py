"""AdjustCount: an operator's correction of a count that an audit found wrong.

It is an add like any other, so it is durable, idempotent and folded in its place; its note, who did
it and why, goes with it into the log and the history.
"""

import dataclasses

import msgspec
import structlog

from counter.errors import InvalidRequest, Overloaded, TallyError
from counter.events import Event
from counter.namespaces import MAX_DELTA_LIMIT
from counter.notes import check_note
from counter_server.admission import Admission, RawToken
from counter_server.states import check_rolled_up
from counter_server.strategies.logged import Logged
from counter_server.strategies.shadow import Shadow
from counter_server.strategies.strategy import Outcome, Strategy

# A note is larger than all else in an event. So many at once keep a full segment under 1 MiB.
ADJUSTMENTS_IN_FLIGHT_MAX = 64

log = structlog.get_logger()


class Adjustments:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._in_flight = 0

    def event(
        self,
        strategy: Strategy,
        counter: str,
        delta: int,
        token: RawToken | None,
        *,
        author: str,
        reason: str,
    ) -> Event:
        """The event for a request that passes all checks. max_delta is for callers, not here.

        In a shadow phase it is an add without a note: nothing is repaired there, what was counted
        elsewhere is counted here too, and so it belongs to what the events say.
        """
        namespace = _adjusted(strategy).namespace
        check_rolled_up(namespace, "keeps no history to adjust")
        check_note(author=author, reason=reason)
        if abs(delta) > MAX_DELTA_LIMIT:
            raise InvalidRequest(
                "DELTA_TOO_LARGE", "delta", f"delta {delta} is beyond {MAX_DELTA_LIMIT}: split it"
            )
        limited = dataclasses.replace(namespace, max_delta=MAX_DELTA_LIMIT)
        event = self._admission.event(limited, counter, delta, token, self._admission.now_ns())
        if isinstance(strategy, Shadow):
            return event
        return msgspec.structs.replace(event, note=(author, reason))

    async def add(
        self, strategy: Strategy, event: Event, *, author: str, reason: str, wait_s: float
    ) -> Outcome:
        """Adds it, and says in the log what became of it."""
        if self._in_flight >= ADJUSTMENTS_IN_FLIGHT_MAX:
            raise Overloaded(
                f"{ADJUSTMENTS_IN_FLIGHT_MAX} adjustments are under way: send the same again in "
                "a moment",
                retry_after_ms=100,
            )
        self._in_flight += 1
        try:
            [outcome] = await _adjusted(strategy).add((event,), wait_s=wait_s)
        finally:
            self._in_flight -= 1
        log.warning(
            "a count is adjusted",
            action="count_adjusted",
            namespace=strategy.namespace.name,
            counter=event.counter,
            delta=event.delta,
            author=author,
            reason=reason,
            problem=outcome.message if isinstance(outcome, TallyError) else None,
        )
        return outcome


def _adjusted(strategy: Strategy) -> Strategy | Logged:
    """In a shadow phase only the shadow: it keeps a history, and it is what will be read."""
    return strategy.shadow if isinstance(strategy, Shadow) else strategy
