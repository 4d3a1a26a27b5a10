"""CounterService: translates, makes one call, translates back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from counter.errors import InvalidRequest, TallyError
from counter.events import Event
from counter.rpc.server import answering_errors
from counter.rpc.values import duration_of
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter_server import translate
from counter_server.adjustments import Adjustments
from counter_server.admission import Admission, RawToken
from counter_server.batches import Batches
from counter_server.comparison import Comparison
from counter_server.count_at import CountsAt
from counter_server.count_history import CountHistories
from counter_server.limits import Limits
from counter_server.listing import Listing
from counter_server.ranking import Rankings
from counter_server.registry import Registry
from counter_server.strategies.strategy import ANY_FRESHNESS, Outcome, Strategy
from counter_server.streams import Streams

# How long a call waits for a fold that decides its outcome, whatever its deadline.
WAIT_S_MAX = 30.0
# Kept back from the caller's deadline, so that the answer still arrives in time.
_ANSWER_MARGIN_S = 0.1


# The requests that make an event.
_Writing = (
    pb.AddCountRequest | pb.AddAndGetCountRequest | pb.ClearCountRequest | pb.AdjustCountRequest
)


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What answers beyond the count of now; the same for all strategies that keep rollups."""

    counts_at: CountsAt
    count_histories: CountHistories
    listing: Listing
    rankings: Rankings
    comparison: Comparison


class CounterService(pb_grpc.CounterServiceServicer):
    def __init__(
        self,
        registry: Registry,
        admission: Admission,
        questions: Questions,
        adjustments: Adjustments,
        limits: Limits,
        batches: Batches,
        streams: Streams,
    ) -> None:
        self._strategy = registry.named
        self._admission = admission
        self._questions = questions
        self._adjustments = adjustments
        self._limits = limits
        self._batches = batches
        self._streams = streams

    @answering_errors
    async def AddCount(self, request: pb.AddCountRequest, context: Any) -> pb.AddCountResponse:
        strategy, event = self._event(request, request.delta)
        await self._limits.add(strategy.namespace, event)
        [outcome] = await strategy.add((event,), wait_s=_wait_s(context))
        return pb.AddCountResponse(
            idempotency_token=_token_as_used(request, event), duplicate=_taken(outcome)
        )

    @answering_errors
    async def AddAndGetCount(
        self, request: pb.AddAndGetCountRequest, context: Any
    ) -> pb.AddAndGetCountResponse:
        strategy, event = self._event(request, request.delta)
        await self._limits.add(strategy.namespace, event, reads=1)
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
        await self._limits.add(strategy.namespace, event)
        [outcome] = await strategy.add((event,), wait_s=_wait_s(context))
        return pb.ClearCountResponse(
            idempotency_token=_token_as_used(request, event), duplicate=_taken(outcome)
        )

    @answering_errors
    async def GetCount(self, request: pb.GetCountRequest, context: Any) -> pb.GetCountResponse:
        strategy = self._strategy(request.namespace)
        self._admission.check_counter(request.counter_name)
        freshness = translate.freshness(request) or ANY_FRESHNESS
        self._limits.reads(strategy.namespace)
        [value] = await strategy.read((request.counter_name,), freshness)
        return pb.GetCountResponse(
            value=translate.value_message(value, strategy.namespace.strategy)
        )

    @answering_errors
    async def BatchAddCount(
        self, request: pb.BatchAddCountRequest, context: Any
    ) -> pb.BatchAddCountResponse:
        response = pb.BatchAddCountResponse()
        await self._batches.add_items(request, response, wait_s=_wait_s(context))
        return response

    @answering_errors
    async def BatchGetCount(
        self, request: pb.BatchGetCountRequest, context: Any
    ) -> pb.BatchGetCountResponse:
        strategy = self._strategy(request.namespace)
        counters: Sequence[str] = list(request.counter_name)
        self._batches.check_size(strategy.namespace, len(counters), "counter_name")
        self._admission.check_counters(counters, "counter_name")
        freshness = translate.freshness(request) or ANY_FRESHNESS
        self._limits.reads(strategy.namespace, len(counters))
        values = await strategy.read(counters, freshness)
        response = pb.BatchGetCountResponse()
        translate.add_values(response, values, strategy.namespace.strategy)
        return response

    # It reads and writes by itself, which the generated types do not know of.
    async def StreamAddCount(  # type: ignore[override]
        self, request_iterator: Any, context: Any
    ) -> None:
        await self._streams.serve(context, lambda: _wait_s(context))

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

    @answering_errors
    async def GetCountAt(
        self, request: pb.GetCountAtRequest, context: Any
    ) -> pb.GetCountAtResponse:
        namespace = self._strategy(request.namespace).namespace
        self._admission.check_counter(request.counter_name)
        if not request.HasField("time"):
            raise InvalidRequest("TIME_MALFORMED", "time", "time is missing: say as of when")
        time_ns = translate.time_ns(request.time, "time", latest_ns=self._admission.latest_ns())
        self._limits.reads(namespace)
        found = await self._questions.counts_at.at(namespace, request.counter_name, time_ns)
        response = pb.GetCountAtResponse(
            value=translate.value_message(found.value, namespace.strategy)
        )
        if found.resolution_ms is not None:
            response.resolution.CopyFrom(duration_of(found.resolution_ms))
        return response

    @answering_errors
    async def GetCountHistory(
        self, request: pb.GetCountHistoryRequest, context: Any
    ) -> pb.GetCountHistoryResponse:
        namespace = self._strategy(request.namespace).namespace
        self._admission.check_counter(request.counter_name)
        if not request.HasField("start"):
            raise InvalidRequest("TIME_MALFORMED", "start", "start is missing: say from when on")
        now_ns, latest_ns = self._admission.now_ns(), self._admission.latest_ns()
        start_ns = translate.time_ns(request.start, "start", latest_ns=latest_ns)
        end_ns, step_ms = now_ns, None
        if request.HasField("end"):
            end_ns = translate.time_ns(request.end, "end", latest_ns=latest_ns)
        if request.HasField("step"):
            step_ms = translate.step_ms(request.step)
        self._limits.reads(namespace)
        history = await self._questions.count_histories.read(
            namespace,
            request.counter_name,
            start_ns=start_ns,
            end_ns=end_ns,
            step_ms=step_ms,
            now_ns=now_ns,
        )
        return translate.history_message(history)

    @answering_errors
    async def ListCounters(
        self, request: pb.ListCountersRequest, context: Any
    ) -> pb.ListCountersResponse:
        namespace = self._strategy(request.namespace).namespace
        self._check_prefix(request.prefix)
        self._limits.reads(namespace)
        page = await self._questions.listing.page(
            namespace, request.prefix, request.page_size, request.page_token
        )
        return translate.page_message(page, namespace.strategy)

    @answering_errors
    async def TopCounters(
        self, request: pb.TopCountersRequest, context: Any
    ) -> pb.TopCountersResponse:
        namespace = self._strategy(request.namespace).namespace
        self._check_prefix(request.prefix)
        period_ns = None
        if request.rank_by == pb.RANK_BY_GROWTH:
            period_ns = translate.duration_ns(request.period, "TIME_MALFORMED", "period")
        self._limits.reads(namespace)
        ranking = await self._questions.rankings.top(
            namespace, request.prefix, request.limit, period_ns
        )
        return translate.ranking_message(ranking, namespace.strategy)

    @answering_errors
    async def AdjustCount(
        self, request: pb.AdjustCountRequest, context: Any
    ) -> pb.AdjustCountResponse:
        strategy = self._strategy(request.namespace)
        event = self._adjustments.event(
            strategy,
            request.counter_name,
            request.delta,
            _raw_token(request),
            author=request.author,
            reason=request.reason,
        )
        outcome = await self._adjustments.add(
            strategy,
            event,
            author=request.author,
            reason=request.reason,
            wait_s=_wait_s(context),
        )
        return pb.AdjustCountResponse(
            idempotency_token=_token_as_used(request, event), duplicate=_taken(outcome)
        )

    @answering_errors
    async def CompareShadow(
        self, request: pb.CompareShadowRequest, context: Any
    ) -> pb.CompareShadowResponse:
        strategy = self._strategy(request.namespace)
        self._check_prefix(request.prefix)
        page = await self._questions.comparison.page(
            strategy, request.prefix, request.page_size, request.page_token
        )
        return translate.comparison_message(page)

    def _check_prefix(self, prefix: str) -> None:
        if prefix:
            self._admission.check_counter(prefix, "prefix")

    def _event(self, request: _Writing, delta: int | None) -> tuple[Strategy, Event]:
        strategy = self._strategy(request.namespace)
        admission, namespace = self._admission, strategy.namespace
        return strategy, admission.event(
            namespace, request.counter_name, delta, _raw_token(request), admission.now_ns()
        )


def _raw_token(request: _Writing) -> RawToken | None:
    if not request.HasField("idempotency_token"):
        return None
    return translate.raw_token(request.idempotency_token)


def _token_as_used(request: _Writing, event: Event) -> pb.IdempotencyToken:
    if request.HasField("idempotency_token"):
        return request.idempotency_token
    return translate.token_message(event)


def _taken(outcome: Outcome) -> bool:
    """Whether the token was a duplicate; raises what kept it from being taken."""
    if isinstance(outcome, TallyError):
        raise outcome
    return outcome


def _wait_s(context: Any) -> float:
    left_s: float | None = context.time_remaining()
    if left_s is None:
        return WAIT_S_MAX
    return max(0.0, min(WAIT_S_MAX, left_s - _ANSWER_MARGIN_S))
