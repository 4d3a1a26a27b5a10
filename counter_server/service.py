"""CounterService: translates, makes one call, translates back."""

import difflib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from counter.errors import InvalidRequest, NamespaceUnknown, TallyError
from counter.events import Event
from counter.rpc.server import answering_errors
from counter.settings import BATCH_ITEMS_MAX
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter_server import translate
from counter_server.admission import Admission
from counter_server.registry import Registry
from counter_server.strategies.strategy import ANY_FRESHNESS, Outcome, Strategy

# How long a call waits for a fold that decides its outcome, whatever its deadline.
WAIT_S_MAX = 30.0
# Kept back from the caller's deadline, so that the answer still arrives in time.
_ANSWER_MARGIN_S = 0.1


class CounterService(pb_grpc.CounterServiceServicer):
    def __init__(self, registry: Registry, admission: Admission) -> None:
        self._registry = registry
        self._admission = admission

    @answering_errors
    async def AddCount(self, request: pb.AddCountRequest, context: Any) -> pb.AddCountResponse:
        strategy, event = self._event(request, request.delta)
        [outcome] = await strategy.add((event,), wait_s=_wait_s(context))
        return pb.AddCountResponse(
            idempotency_token=_token_as_used(request, event), duplicate=_taken(outcome)
        )

    @answering_errors
    async def AddAndGetCount(
        self, request: pb.AddAndGetCountRequest, context: Any
    ) -> pb.AddAndGetCountResponse:
        strategy, event = self._event(request, request.delta)
        duplicate, value = await strategy.add_and_read(event, wait_s=_wait_s(context))
        return pb.AddAndGetCountResponse(
            idempotency_token=_token_as_used(request, event),
            duplicate=duplicate,
            value=translate.value_message(value, strategy.namespace.strategy),
        )

    @answering_errors
    async def ClearCount(
        self, request: pb.ClearCountRequest, context: Any
    ) -> pb.ClearCountResponse:
        strategy, event = self._event(request, None)
        [outcome] = await strategy.add((event,), wait_s=_wait_s(context))
        return pb.ClearCountResponse(
            idempotency_token=_token_as_used(request, event), duplicate=_taken(outcome)
        )

    @answering_errors
    async def GetCount(self, request: pb.GetCountRequest, context: Any) -> pb.GetCountResponse:
        strategy = self._strategy(request.namespace)
        self._admission.check_counter(request.counter_name)
        freshness = translate.freshness(request) or ANY_FRESHNESS
        [value] = await strategy.read((request.counter_name,), freshness)
        return pb.GetCountResponse(
            value=translate.value_message(value, strategy.namespace.strategy)
        )

    @answering_errors
    async def BatchAddCount(
        self, request: pb.BatchAddCountRequest, context: Any
    ) -> pb.BatchAddCountResponse:
        strategy = self._strategy(request.namespace)
        _check_batch_size(len(request.items), "items")
        adds, without = translate.raw_adds(request.items)
        events, errors = self._admission.events(strategy.namespace, adds, self._admission.now_ns())
        outcomes: list[Outcome] = []
        if events:
            outcomes = await strategy.add(events, wait_s=_wait_s(context))
        if errors:
            admitted = [at for at in range(len(adds)) if at not in errors]
            taken = dict(zip(admitted, outcomes, strict=True))
            outcomes = [errors[at] if at in errors else taken[at] for at in range(len(adds))]
            made = {at: each for at, each in zip(admitted, events, strict=True) if at in without}
        else:
            made = {at: events[at] for at in without}
        response = pb.BatchAddCountResponse()
        translate.add_outcomes(response, outcomes, made)
        return response

    @answering_errors
    async def BatchGetCount(
        self, request: pb.BatchGetCountRequest, context: Any
    ) -> pb.BatchGetCountResponse:
        strategy = self._strategy(request.namespace)
        counters: Sequence[str] = list(request.counter_name)
        _check_batch_size(len(counters), "counter_name")
        for position, counter in enumerate(counters):
            self._admission.check_counter(counter, f"counter_name[{position}]")
        freshness = translate.freshness(request) or ANY_FRESHNESS
        values = await strategy.read(counters, freshness)
        of_strategy = strategy.namespace.strategy
        return pb.BatchGetCountResponse(
            values=[translate.value_message(value, of_strategy) for value in values]
        )

    async def StreamAddCount(
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[pb.StreamAddCountResponse]:
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            "StreamAddCount is not built yet: use BatchAddCount for many adds",
        )
        yield pb.StreamAddCountResponse()  # never reached; makes this the stream it promises

    @answering_errors
    async def GetTokenStatus(
        self, request: pb.GetTokenStatusRequest, context: Any
    ) -> pb.GetTokenStatusResponse:
        strategy = self._strategy(request.namespace)
        self._admission.check_counter(request.counter_name)
        token, time_ns, region = translate.raw_token(request.idempotency_token)
        self._admission.check_token(token, time_ns, region, self._admission.now_ns())
        status = await strategy.token_status(Event(request.counter_name, time_ns, token, None))
        return pb.GetTokenStatusResponse(status=translate.TOKEN_STATUSES[status])

    def _strategy(self, namespace: str) -> Strategy:
        if not namespace:
            raise InvalidRequest("NAME_EMPTY", "namespace", "namespace is empty: name one")
        strategy = self._registry.strategies.get(namespace)
        if strategy is None:
            near = difflib.get_close_matches(namespace, self._registry.strategies, n=1)
            hint = f", did you mean {near[0]}?" if near else ": ListNamespaces says which there are"
            raise NamespaceUnknown(f"there is no namespace {namespace[:64]}{hint}")
        return strategy

    def _event(
        self,
        request: pb.AddCountRequest | pb.AddAndGetCountRequest | pb.ClearCountRequest,
        delta: int | None,
    ) -> tuple[Strategy, Event]:
        strategy = self._strategy(request.namespace)
        token = None
        if request.HasField("idempotency_token"):
            token = translate.raw_token(request.idempotency_token)
        admission, namespace = self._admission, strategy.namespace
        return strategy, admission.event(
            namespace, request.counter_name, delta, token, admission.now_ns()
        )


def _token_as_used(
    request: pb.AddCountRequest | pb.AddAndGetCountRequest | pb.ClearCountRequest, event: Event
) -> pb.IdempotencyToken:
    if request.HasField("idempotency_token"):
        return request.idempotency_token
    return translate.token_message(event)


def _taken(outcome: Outcome) -> bool:
    """Whether the token was a duplicate; raises what kept it from being taken."""
    if isinstance(outcome, TallyError):
        raise outcome
    return outcome


def _check_batch_size(size: int, field: str) -> None:
    if size == 0:
        raise InvalidRequest("BATCH_EMPTY", field, f"{field} is empty: send at least one")
    if size > BATCH_ITEMS_MAX:
        raise InvalidRequest(
            "BATCH_TOO_LARGE", field, f"{field} has {size} entries: at most {BATCH_ITEMS_MAX}"
        )


def _wait_s(context: Any) -> float:
    left_s: float | None = context.time_remaining()
    if left_s is None:
        return WAIT_S_MAX
    return max(0.0, min(WAIT_S_MAX, left_s - _ANSWER_MARGIN_S))
