"""Batches of adds, whichever call brought them: the same checks, limits and outcomes for all."""

from collections.abc import Mapping, Sequence

from counter.errors import InvalidRequest, TallyError
from counter.events import Event
from counter.namespaces import Namespace
from counter.settings import BATCH_ITEMS_MAX
from counter.v1 import counter_service_pb2 as pb
from counter_server import translate
from counter_server.admission import Admission
from counter_server.columns import columns_of, events_of, size_of
from counter_server.limits import Limits
from counter_server.registry import Registry
from counter_server.strategies.strategy import Outcome, Strategy


class Batches:
    def __init__(self, registry: Registry, admission: Admission, limits: Limits) -> None:
        self._registry = registry
        self._admission = admission
        self._limits = limits

    async def add_items(
        self,
        request: pb.BatchAddCountRequest | pb.StreamAddCountRequest,
        into: pb.BatchAddCountResponse | pb.StreamAddCountResponse,
        *,
        wait_s: float,
    ) -> None:
        """Adds, and puts one outcome for each item into the answer. Raises if the batch is refused
        as a whole, or if of none of it can be said what became of it."""
        strategy = self._registry.named(request.namespace)
        self.check_size(strategy.namespace, len(request.items), "items")
        adds, without = translate.raw_adds(request.items)
        events, errors = self._admission.events(strategy.namespace, adds, self._admission.now_ns())
        outcomes, events_at = await self._add(strategy, events, errors, wait_s)
        made = {at: events_at[at] for at in without if at not in errors}
        translate.add_outcomes(into, outcomes, made)

    async def add_columns(
        self, request: pb.StreamAddCountRequest, into: pb.StreamAddCountResponse, *, wait_s: float
    ) -> None:
        """The same for columns, whose answer is short if there is nothing to say of any add."""
        strategy = self._registry.named(request.namespace)
        self.check_size(strategy.namespace, size_of(request.columns), "columns")
        columns = columns_of(request.columns)
        events, errors = events_of(columns, self._admission, strategy.namespace)
        outcomes, _ = await self._add(strategy, events, errors, wait_s)
        if any(outcomes):
            translate.add_outcomes(into, outcomes, {})
        else:
            into.all_added = True

    def check_size(self, namespace: Namespace, size: int, field: str) -> None:
        if size == 0:
            raise InvalidRequest("BATCH_EMPTY", field, f"{field} is empty: send at least one")
        if size > BATCH_ITEMS_MAX:
            raise InvalidRequest(
                "BATCH_TOO_LARGE", field, f"{field} has {size} entries: at most {BATCH_ITEMS_MAX}"
            )
        self._limits.check_batch(namespace, size, field)

    async def _add(
        self,
        strategy: Strategy,
        events: list[Event],
        errors: dict[int, TallyError],
        wait_s: float,
    ) -> tuple[list[Outcome], Sequence[Event] | Mapping[int, Event]]:
        """The outcomes of all adds in order, and the events of those that were tried, by position.
        `errors` has what is wrong with the others; those that limits refuse join them."""
        events = await self._limits.adds(strategy.namespace, events, errors)
        outcomes: list[Outcome] = []
        if events:
            outcomes = await strategy.add(events, wait_s=wait_s)
        if not errors:
            return outcomes, events
        size = len(events) + len(errors)
        tried = [at for at in range(size) if at not in errors]
        taken = dict(zip(tried, outcomes, strict=True))
        merged = [errors[at] if at in errors else taken[at] for at in range(size)]
        return merged, dict(zip(tried, events, strict=True))
