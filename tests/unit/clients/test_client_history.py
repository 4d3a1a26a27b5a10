"""The past of a counter, lists, rankings and corrections."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from clients import (
    Adjustment,
    CounterClient,
    CountHistory,
    HistoryOff,
    HistoryPoint,
    HistoryTooOld,
    InvalidRequest,
    OutcomeUnknown,
    Source,
)
from counter import errors
from counter.v1 import counter_service_pb2 as pb

START_NS = 1_700_000_040_000_000_000
START = datetime(2023, 11, 14, 22, 14, tzinfo=UTC)
MINUTE_NS = 60_000_000_000


def stamp(time_ns: int) -> Timestamp:
    return Timestamp(seconds=time_ns // 10**9, nanos=time_ns % 10**9)


async def entries(client: Any, *args: Any, **options: Any) -> list[Any]:
    """All that `list_counters` gives, from either client."""
    listing = client.client.list_counters(*args, **options)
    if isinstance(client.client, CounterClient):
        return [entry async for entry in listing]
    return await asyncio.to_thread(list, listing)


async def test_count_at(client: Any, platform: Any) -> None:
    value = pb.CountValue(count=7, complete_through=stamp(START_NS - 1), source=pb.SOURCE_HISTORY)
    platform.answers["GetCountAt"] = pb.GetCountAtResponse(
        value=value, resolution=Duration(seconds=60)
    )
    answer = await client("count_at", "a", START)
    assert (answer.value.count, answer.value.source) == (7, Source.HISTORY)
    assert answer.value.complete_through_ns == START_NS - 1
    assert answer.resolution == timedelta(minutes=1)
    platform.answers["GetCountAt"] = pb.GetCountAtResponse(value=value)
    assert (await client("count_at", "a", START_NS + 1)).resolution is None
    first, second = platform.requests
    assert (first.namespace, first.counter_name, first.time) == ("plays", "a", stamp(START_NS))
    assert second.time == stamp(START_NS + 1)


async def test_history(client: Any, platform: Any) -> None:
    response = pb.GetCountHistoryResponse(
        step=Duration(seconds=120),
        resolution=Duration(seconds=60),
        complete_through=stamp(START_NS + 5),
    )
    response.points.add(start=stamp(START_NS - 120 * 10**9))
    response.points.add(start=stamp(START_NS), delta=-3, count=4, epoch=1, known=True)
    response.adjustments.add(time=stamp(START_NS + 1), delta=-3, author="oncall", reason="bug 1")
    platform.answers["GetCountHistory"] = response
    history = await client("history", "a", start=START, end=START_NS + 9, step=timedelta(minutes=2))
    assert history == CountHistory(
        points=(
            HistoryPoint(
                start_ns=START_NS - 2 * MINUTE_NS,
                delta=0,
                count=0,
                epoch=0,
                saturated=False,
                known=False,
            ),
            HistoryPoint(
                start_ns=START_NS, delta=-3, count=4, epoch=1, saturated=False, known=True
            ),
        ),
        step=timedelta(minutes=2),
        resolution=timedelta(minutes=1),
        complete_through_ns=START_NS + 5,
        adjustments=(Adjustment(time_ns=START_NS + 1, delta=-3, author="oncall", reason="bug 1"),),
    )
    assert (history.points[1].start, history.adjustments[0].time) == (START, START)
    (request,) = platform.requests
    assert (request.start, request.end) == (stamp(START_NS), stamp(START_NS + 9))
    assert request.step == Duration(seconds=120)
    await client("history", "a", start=START)
    assert not platform.requests[-1].HasField("end")
    assert not platform.requests[-1].HasField("step")


async def test_a_time_without_a_zone_is_not_sent(client: Any, platform: Any) -> None:
    naive = datetime(2024, 1, 1)
    for call in (
        client("count_at", "a", naive),
        client("history", "a", start=naive),
        client("history", "a", start=START, end=naive),
    ):
        with pytest.raises(InvalidRequest, match="has no time zone") as caught:
            await call
        assert caught.value.reason == "TIME_MALFORMED"
    assert platform.requests == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.HistoryOff("no history"), HistoryOff),
        (errors.HistoryTooOld("gone"), HistoryTooOld),
        (errors.InvalidRequest("STEP_NOT_KEPT", "step", "no such step"), InvalidRequest),
    ],
)
async def test_what_the_history_does_not_have(
    client: Any, platform: Any, error: Any, kind: Any
) -> None:
    platform.refuse(error)
    with pytest.raises(kind) as caught:
        await client("history", "a", start=START)
    assert caught.value.reason == error.reason
    assert len(platform.requests) == 1


async def test_list_counters_reads_every_page(client: Any, platform: Any) -> None:
    for name in ("b-1", "b-2", "b-3", "b-4", "b-5", "c"):
        await client("add", name, 2)
    platform.requests.clear()
    listed = await entries(client, "b-", page_size=2)
    assert [entry.counter for entry in listed] == ["b-1", "b-2", "b-3", "b-4", "b-5"]
    assert {entry.value.count for entry in listed} == {2}
    assert [request.page_token for request in platform.requests] == ["", "b-2", "b-4"]
    assert await entries(client, "nothing") == []


async def test_one_page_of_counters(client: Any, platform: Any) -> None:
    await client("add", "a")
    await client("add", "b")
    page = await client("list_counters_page", page_size=1)
    assert [entry.counter for entry in page.counters] == ["a"]
    assert page.complete_through_ns == 1_700_000_000_123_456_789
    rest = await client("list_counters_page", page_token=page.next_page_token)
    assert [entry.counter for entry in rest.counters] == ["b"]
    assert rest.next_page_token == ""


async def test_a_page_that_fails_is_read_again(client: Any, platform: Any) -> None:
    await client("add", "a")
    await client("add", "b")
    platform.break_with(grpc.StatusCode.UNAVAILABLE)
    listed = await entries(client, page_size=1)
    assert [entry.counter for entry in listed] == ["a", "b"]


async def test_top_counters(client: Any, platform: Any) -> None:
    response = pb.TopCountersResponse(complete_through=stamp(START_NS), counters_seen=12)
    response.counters.add(counter_name="a", value=pb.CountValue(count=9))
    platform.answers["TopCounters"] = response
    top = await client("top_counters")
    assert [(each.counter, each.value.count, each.growth) for each in top.counters] == [
        ("a", 9, None)
    ]
    assert (top.complete_through, top.counters_seen) == (START, 12)
    assert (top.growth_from, top.resolution) == (None, None)
    assert platform.requests[-1].rank_by == pb.RANK_BY_COUNT
    assert platform.requests[-1].limit == 10


async def test_top_counters_by_growth(client: Any, platform: Any) -> None:
    response = pb.TopCountersResponse(growth_from=stamp(START_NS), resolution=Duration(seconds=60))
    response.counters.add(counter_name="a", value=pb.CountValue(count=9), growth=0)
    platform.answers["TopCounters"] = response
    top = await client("top_counters", limit=3, prefix="x", growth_over=timedelta(minutes=10))
    assert top.counters[0].growth == 0
    assert (top.growth_from, top.resolution) == (START, timedelta(minutes=1))
    (request,) = platform.requests
    assert (request.rank_by, request.limit, request.prefix) == (pb.RANK_BY_GROWTH, 3, "x")
    assert request.period == Duration(seconds=600)


async def test_sizes_that_make_no_sense_are_not_sent(client: Any, platform: Any) -> None:
    for call in (client("top_counters", limit=0), client("list_counters_page", page_size=2**31)):
        with pytest.raises(InvalidRequest) as caught:
            await call
        assert caught.value.reason == "PAGE_MALFORMED"
    assert platform.requests == []


async def test_an_adjustment_is_sent_again_with_its_token(client: Any, platform: Any) -> None:
    platform.break_with(grpc.StatusCode.UNAVAILABLE, after_applying=True)
    result = await client("adjust", "a", -5, author="oncall", reason="bug 1")
    assert platform.count("a") == -5
    assert len(set(platform.tokens())) == 1
    assert len(platform.tokens()) == 2
    assert result.duplicate
    for request in platform.requests:
        assert (request.author, request.reason, request.delta) == ("oncall", "bug 1", -5)
    again = await client("adjust", "a", -5, author="oncall", reason="bug 1", token=result.token)
    assert again.token.token == result.token.token
    assert platform.count("a") == -5


async def test_an_adjustment_with_an_expired_token_gets_a_new_one(
    client: Any, platform: Any
) -> None:
    platform.refuse(errors.TokenExpired("late", server_time_ns=START_NS))
    await client("adjust", "a", 5, author="oncall", reason="bug 1")
    assert platform.count("a") == 5
    assert len(set(platform.tokens())) == 2


async def test_an_adjustment_of_unknown_outcome_says_what_it_was(
    connect: Any, platform: Any
) -> None:
    client = connect(timeout_s=0.4)
    for _ in range(20):
        platform.hang()
    with pytest.raises(OutcomeUnknown, match="the adjustment of 5 to 'a'") as caught:
        await client("adjust", "a", 5, author="oncall", reason="bug 1")
    assert caught.value.token.token == platform.tokens()[0]


async def test_a_note_that_is_refused(client: Any, platform: Any) -> None:
    platform.refuse(errors.InvalidRequest("NOTE_MALFORMED", "author", "no author"))
    with pytest.raises(InvalidRequest) as caught:
        await client("adjust", "a", 5, author="", reason="bug 1")
    assert (caught.value.reason, caught.value.field) == ("NOTE_MALFORMED", "author")
    with pytest.raises(InvalidRequest, match="surrogate"):
        await client("adjust", "a", 5, author="bad \ud800", reason="bug 1")
