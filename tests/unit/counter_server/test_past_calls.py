"""The calls about the past, lists and adjustments, as the service answers them."""

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from structlog.testing import capture_logs

from counter.clock import NS_PER_S
from counter.namespaces import MAX_DELTA_LIMIT, Definition, HistoryStep
from counter.namespaces import Strategy as StrategyName
from counter.segments import decode
from counter.storage.ports import FOREVER
from counter.v1 import counter_service_pb2 as pb
from counter_server.adjustments import ADJUSTMENTS_IN_FLIGHT_MAX
from counter_server.limits import Limits
from tests.tampered import settle
from tests.unit.counter_server.parts import PLATFORM, Parts
from tests.unit.counter_server.served import Aborted, Served, serve, stamp

MINUTES = HistoryStep(step_ms=60_000, retention_ms=86_400_000)


@pytest.fixture
async def served(parts: Parts) -> Served:
    plays = await parts.define(strategy=StrategyName.ACCURATE, history=(MINUTES,))
    served = serve(parts, Limits(parts.rollup_store))
    await served.switch(
        plays,
        Definition(name="hits", strategy=StrategyName.BEST_EFFORT),
        Definition(name="rolling", strategy=StrategyName.ROLLING_WINDOW, rolling_window_ms=10_000),
    )
    return served


async def filled(served: Served) -> None:
    """views: 5 three minutes ago, 2 and 3 now; and folded."""
    parts = served.parts
    await parts.write(parts.event("views", 5, "a"))
    parts.clock.advance_ms(180_000)
    await parts.write(parts.event("views", 2, "b"), parts.event("plays", 3, "c"))
    parts.clock.advance_ms(10_000)
    await parts.fold_through(parts.window - 1)


async def test_get_count_at(served: Served) -> None:
    await filled(served)
    request = pb.GetCountAtRequest(namespace="plays", counter_name="views", time=served.ago(100))
    response = await served.call("GetCountAt", request)
    assert (response.value.count, response.value.source) == (5, pb.SOURCE_HISTORY)
    assert response.resolution == Duration(seconds=60)
    assert response.value.complete_through.seconds % 60 == 59
    assert response.value.complete_through.nanos == NS_PER_S - 1
    request.time.CopyFrom(served.ago(5))
    response = await served.call("GetCountAt", request)
    assert (response.value.count, response.value.source) == (7, pb.SOURCE_ROLLUP)
    assert response.value.complete_through == request.time
    assert not response.HasField("resolution")


async def test_get_count_history(served: Served) -> None:
    await filled(served)
    request = pb.GetCountHistoryRequest(
        namespace="plays", counter_name="views", start=served.ago(300)
    )
    response = await served.call("GetCountHistory", request)
    assert (response.step, response.resolution) == (Duration(seconds=60), Duration(seconds=60))
    assert sum(each.delta for each in response.points) == 7
    assert [each.count for each in response.points][-1] == 7
    assert all(each.known for each in response.points)
    assert response.points[0].start.seconds % 60 == 0
    folded = served.parts.layout.complete_through_ns(served.parts.window - 1)
    assert response.complete_through == stamp(folded)
    request.end.CopyFrom(served.ago(240))
    request.step.seconds = 120
    response = await served.call("GetCountHistory", request)
    assert response.step == Duration(seconds=120)
    assert len(response.points) in (1, 2)


async def test_list_and_top(served: Served) -> None:
    await filled(served)
    page = await served.call("ListCounters", pb.ListCountersRequest(namespace="plays", page_size=1))
    assert [each.counter_name for each in page.counters] == ["plays"]
    assert page.counters[0].value.strategy == pb.STRATEGY_ACCURATE
    request = pb.ListCountersRequest(namespace="plays", page_token=page.next_page_token)
    page = await served.call("ListCounters", request)
    assert [(each.counter_name, each.value.count) for each in page.counters] == [("views", 7)]
    assert page.next_page_token == ""
    top = await served.call("TopCounters", pb.TopCountersRequest(namespace="plays", limit=1))
    assert [(each.counter_name, each.value.count) for each in top.counters] == [("views", 7)]
    assert (top.counters_seen, top.HasField("growth_from")) == (2, False)
    growth = pb.TopCountersRequest(
        namespace="plays", rank_by=pb.RANK_BY_GROWTH, period=Duration(seconds=60)
    )
    top = await served.call("TopCounters", growth)
    assert [(each.counter_name, each.growth) for each in top.counters] == [
        ("plays", 3),
        ("views", 2),
    ]
    assert top.resolution == Duration(seconds=60)
    assert top.growth_from.seconds % 60 == 59


async def test_a_rolling_window_says_from_when_on_and_how_fast(served: Served) -> None:
    add = pb.AddAndGetCountRequest(namespace="rolling", counter_name="views", delta=10)
    value = (await served.call("AddAndGetCount", add)).value
    assert (value.count, value.strategy) == (10, pb.STRATEGY_ROLLING_WINDOW)
    first = served.parts.layout.start_ns(served.parts.window - 9)
    assert value.window_start == stamp(first)
    assert value.rate_per_s == 10 / ((served.parts.clock.now_ns() - first) / NS_PER_S)


NOW_S = 1_700_000_000
FUTURE = Timestamp(seconds=NOW_S + PLATFORM.accept_limit_ms // 1_000, nanos=1)


@pytest.mark.parametrize(
    ("rpc", "request_", "reason", "field"),
    [
        ("GetCountAt", pb.GetCountAtRequest(), "TIME_MALFORMED", "time"),
        ("GetCountAt", pb.GetCountAtRequest(time=FUTURE), "TIME_MALFORMED", "time"),
        ("GetCountAt", pb.GetCountAtRequest(time=Timestamp(seconds=-1)), "TIME_MALFORMED", "time"),
        ("GetCountHistory", pb.GetCountHistoryRequest(), "TIME_MALFORMED", "start"),
        ("GetCountHistory", pb.GetCountHistoryRequest(start=FUTURE), "TIME_MALFORMED", "start"),
        (
            "GetCountHistory",
            pb.GetCountHistoryRequest(start=Timestamp(seconds=NOW_S), end=FUTURE),
            "TIME_MALFORMED",
            "end",
        ),
        (
            "GetCountHistory",
            pb.GetCountHistoryRequest(start=Timestamp(seconds=NOW_S), step=Duration()),
            "STEP_NOT_KEPT",
            "step",
        ),
        (
            "GetCountHistory",
            pb.GetCountHistoryRequest(start=Timestamp(seconds=NOW_S), step=Duration(nanos=1)),
            "STEP_NOT_KEPT",
            "step",
        ),
        ("ListCounters", pb.ListCountersRequest(prefix="p" * 257), "NAME_TOO_LONG", "prefix"),
        ("ListCounters", pb.ListCountersRequest(page_token="x"), "PAGE_MALFORMED", "page_token"),
        (
            "TopCounters",
            pb.TopCountersRequest(rank_by=pb.RANK_BY_GROWTH),
            "TIME_MALFORMED",
            "period",
        ),
        ("AdjustCount", pb.AdjustCountRequest(reason="r", delta=1), "NOTE_MALFORMED", "author"),
        (
            "AdjustCount",
            pb.AdjustCountRequest(author="a" * 101, reason="r", delta=1),
            "NOTE_MALFORMED",
            "author",
        ),
        (
            "AdjustCount",
            pb.AdjustCountRequest(author="a", reason=" \n", delta=1),
            "NOTE_MALFORMED",
            "reason",
        ),
        (
            "AdjustCount",
            pb.AdjustCountRequest(author="a", reason="r" * 501, delta=1),
            "NOTE_MALFORMED",
            "reason",
        ),
        ("AdjustCount", pb.AdjustCountRequest(author="a", reason="r"), "DELTA_ZERO", "delta"),
        (
            "AdjustCount",
            pb.AdjustCountRequest(author="a", reason="r", delta=-MAX_DELTA_LIMIT - 1),
            "DELTA_TOO_LARGE",
            "delta",
        ),
    ],
)
async def test_mistakes_have_a_reason_and_a_field(
    served: Served, rpc: str, request_: Any, reason: str, field: str
) -> None:
    assert served.parts.clock.now_ns() == NOW_S * NS_PER_S
    request = type(request_)(namespace="plays")
    if hasattr(request, "counter_name"):
        request.counter_name = "views"
    request.MergeFrom(request_)
    assert await served.refused(rpc, request) == (reason, field)


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("GetCountAt", pb.GetCountAtRequest(counter_name="v", time=Timestamp(seconds=NOW_S))),
        (
            "GetCountHistory",
            pb.GetCountHistoryRequest(counter_name="v", start=Timestamp(seconds=NOW_S)),
        ),
        ("ListCounters", pb.ListCountersRequest()),
        ("TopCounters", pb.TopCountersRequest()),
        (
            "AdjustCount",
            pb.AdjustCountRequest(counter_name="v", delta=1, author="a", reason="r"),
        ),
    ],
)
async def test_best_effort_has_none_of_this(served: Served, rpc: str, request_: Any) -> None:
    request_.namespace = "hits"
    with pytest.raises(Aborted) as aborted:
        await served.call(rpc, request_)
    assert (aborted.value.code, aborted.value.reason) == (
        "FAILED_PRECONDITION",
        "STRATEGY_UNSUPPORTED",
    )


# Adjustments.


def adjustment(delta: int, token: pb.IdempotencyToken | None = None) -> pb.AdjustCountRequest:
    return pb.AdjustCountRequest(
        namespace="plays",
        counter_name="views",
        delta=delta,
        idempotency_token=token,
        author="ada",
        reason="audit of May",
    )


async def test_an_adjustment_is_an_add_with_a_note(served: Served) -> None:
    parts = served.parts
    with capture_logs() as logs:
        response = await served.call("AdjustCount", adjustment(-MAX_DELTA_LIMIT))
    assert not response.duplicate
    [line] = logs
    assert (line["action"], line["author"], line["reason"]) == (
        *("count_adjusted", "ada", "audit of May"),
    )
    refs = await parts.stores.event_log.refs(parts.shard("views"), 0, FOREVER)
    [body] = await parts.stores.event_log.bodies(refs)
    assert body is not None
    [event] = decode(body)
    assert (event.delta, event.note) == (-MAX_DELTA_LIMIT, ("ada", "audit of May"))
    assert event.token == response.idempotency_token.token
    # Sent again it is the same one, also when it is folded.
    again = adjustment(-MAX_DELTA_LIMIT, response.idempotency_token)
    assert not (await served.call("AdjustCount", again)).duplicate
    parts.clock.advance_ms(10_000)
    await parts.fold_through(parts.window - 6)
    assert (await served.call("AdjustCount", again)).duplicate
    get = pb.GetCountRequest(namespace="plays", counter_name="views")
    assert (await served.call("GetCount", get)).value.count == -MAX_DELTA_LIMIT
    history = pb.GetCountHistoryRequest(
        namespace="plays", counter_name="views", start=served.ago(60)
    )
    [noted] = (await served.call("GetCountHistory", history)).adjustments
    assert (noted.delta, noted.author, noted.reason) == (-MAX_DELTA_LIMIT, "ada", "audit of May")
    assert noted.time == response.idempotency_token.generation_time


async def test_what_became_of_an_adjustment_is_logged(served: Served) -> None:
    parts = served.parts
    late = pb.IdempotencyToken(token="late", generation_time=served.ago(2))
    await parts.fold_through(parts.window - 1)
    with capture_logs() as logs, pytest.raises(Aborted) as aborted:
        await served.call("AdjustCount", adjustment(5, late))
    assert aborted.value.reason == "TOKEN_EXPIRED"
    assert [each["action"] for each in logs] == ["count_adjusted"]
    assert "never will be" in logs[0]["problem"]


async def test_few_adjustments_at_once(served: Served) -> None:
    release = served.parts.script.hold("event_log.append")
    calls = [
        asyncio.create_task(served.call("AdjustCount", adjustment(1)))
        for _ in range(ADJUSTMENTS_IN_FLIGHT_MAX)
    ]
    await settle()
    with pytest.raises(Aborted) as aborted:
        await served.call("AdjustCount", adjustment(1))
    assert (aborted.value.code, aborted.value.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
    release.set()
    await asyncio.gather(*calls)
    await served.call("AdjustCount", adjustment(1))
