"""Limits of namespaces, as callers of the service meet them: rates, batches and names."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2
from structlog.testing import capture_logs

from counter.errors import SetupError
from counter.namespaces import Definition, Strategy
from counter.namespaces import Limits as NamespaceLimits
from counter.v1 import counter_service_pb2 as pb
from tests.unit.counter_server.limited import (
    add,
    batch,
    events_written,
    get,
    get_all,
    limited,
    plays,
)
from tests.unit.counter_server.served import Served, Servers

# Adds and reads per second.


async def test_adds_beyond_the_limit_are_refused_before_anything_is_written(
    served: Served,
) -> None:
    await served.switch(plays(adds_per_s=3))
    before = limited("adds_per_s")
    for _ in range(3):
        await served.call("AddCount", add())
    refused = await served.aborted("AddCount", add())
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "ADDS_LIMITED")
    assert "namespace plays takes 3 adds per second (limits.adds_per_s)" in refused.message
    assert refused.retry_after_ms == 1
    assert await events_written(served) == 3
    assert limited("adds_per_s") - before == 1
    served.parts.clock.advance_ms(400)
    await served.call("AddCount", add())
    assert (await served.call("GetCount", get())).value.count == 4  # reads have no limit here


async def test_a_batch_passes_whole_or_not_at_all_and_its_debt_is_paid(served: Served) -> None:
    await served.switch(plays(adds_per_s=10))
    before = limited("adds_per_s")
    await served.call("BatchAddCount", batch(*(f"c{at}" for at in range(30))))
    refused = await served.aborted("BatchAddCount", batch("a", "b"))
    assert refused.reason == "ADDS_LIMITED"
    assert refused.retry_after_ms == 2_001
    assert limited("adds_per_s") - before == 2
    assert await events_written(served) == 30
    served.parts.clock.advance_ms(refused.retry_after_ms)
    await served.call("BatchAddCount", batch("a", "b"))


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("AddCount", add()),
        ("ClearCount", pb.ClearCountRequest(namespace="plays", counter_name="views")),
        ("AddAndGetCount", pb.AddAndGetCountRequest(namespace="plays", counter_name="v", delta=1)),
        ("BatchAddCount", batch("views")),
    ],
)
async def test_what_counts_as_an_add(served: Served, rpc: str, request_: Any) -> None:
    await served.switch(plays(adds_per_s=1, reads_per_s=100))
    await served.call(rpc, request_)
    assert (await served.aborted(rpc, request_)).reason == "ADDS_LIMITED"
    assert (await served.aborted("AddCount", add())).reason == "ADDS_LIMITED"


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("GetCount", get()),
        ("BatchGetCount", get_all("views")),
        ("GetCountAt", pb.GetCountAtRequest(namespace="plays", counter_name="views")),
        ("GetCountHistory", pb.GetCountHistoryRequest(namespace="plays", counter_name="views")),
        ("ListCounters", pb.ListCountersRequest(namespace="plays")),
        ("TopCounters", pb.TopCountersRequest(namespace="plays")),
        ("AddAndGetCount", pb.AddAndGetCountRequest(namespace="plays", counter_name="v", delta=1)),
    ],
)
async def test_what_counts_as_a_read(served: Served, rpc: str, request_: Any) -> None:
    await served.switch(plays(adds_per_s=100, reads_per_s=1))
    if rpc == "GetCountAt":
        request_.time.CopyFrom(served.ago(1))
    if rpc == "GetCountHistory":
        request_.start.CopyFrom(served.ago(1))
    await served.call(rpc, request_)
    refused = await served.aborted(rpc, request_)
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "READS_LIMITED")
    assert (await served.aborted("GetCount", get())).reason == "READS_LIMITED"


async def test_a_read_of_many_counters_is_many_reads(served: Served) -> None:
    await served.switch(plays(reads_per_s=10))
    await served.call("BatchGetCount", get_all(*(f"c{at}" for at in range(30))))
    assert (await served.aborted("GetCount", get())).retry_after_ms == 2_001


async def test_an_add_and_read_that_may_not_read_takes_nothing(served: Served) -> None:
    await served.switch(plays(adds_per_s=1, reads_per_s=1))
    await served.call("GetCount", get())
    request = pb.AddAndGetCountRequest(namespace="plays", counter_name="views", delta=1)
    assert (await served.aborted("AddAndGetCount", request)).reason == "READS_LIMITED"
    assert await events_written(served) == 0
    await served.call("AddCount", add())


async def test_adjustments_and_token_statuses_are_not_limited(served: Served) -> None:
    await served.switch(plays(adds_per_s=1, reads_per_s=1, names="v.*"))
    taken = await served.call("AddCount", add())
    adjust = pb.AdjustCountRequest(
        namespace="plays", counter_name="other", delta=1, author="oncall", reason="ticket 1"
    )
    status = pb.GetTokenStatusRequest(
        namespace="plays", counter_name="views", idempotency_token=taken.idempotency_token
    )
    for _ in range(3):
        await served.call("AdjustCount", adjust)
        await served.call("GetTokenStatus", status)
    await served.call("GetCount", get())


async def test_what_is_refused_as_wrong_costs_nothing(served: Served) -> None:
    await served.switch(plays(adds_per_s=1, reads_per_s=1, batch_items=2, names="[a-z]+"))
    for _ in range(3):
        assert await served.refused("AddCount", add(delta=0)) == ("DELTA_ZERO", "delta")
        assert await served.refused("AddCount", add("")) == ("NAME_EMPTY", "counter_name")
        assert await served.refused("AddCount", add("V")) == ("NAME_NOT_ALLOWED", "counter_name")
        assert await served.refused("BatchAddCount", batch("a", "b", "c")) == (
            "BATCH_TOO_LARGE",
            "items",
        )
        await served.call("BatchAddCount", batch("V", "W"))
        await served.call("BatchAddCount", batch("v", delta=0))
        malformed = get()
        malformed.max_staleness.CopyFrom(Duration(seconds=-1))
        assert (await served.refused("GetCount", malformed))[0] == "FRESHNESS_MALFORMED"
        missing = pb.GetCountAtRequest(namespace="plays", counter_name="views")
        assert (await served.refused("GetCountAt", missing))[0] == "TIME_MALFORMED"
    await served.call("BatchAddCount", batch("v", "V"))
    assert (await served.aborted("AddCount", add())).reason == "ADDS_LIMITED"
    await served.call("GetCount", get())


async def test_namespaces_have_limits_of_their_own(served: Served) -> None:
    others = Definition(name="others", strategy=Strategy.ACCURATE)
    hits = Definition(
        name="hits", strategy=Strategy.BEST_EFFORT, limits=NamespaceLimits(adds_per_s=2)
    )
    await served.switch(plays(adds_per_s=1), others, hits)
    await served.call("AddCount", add())
    assert (await served.aborted("AddCount", add())).reason == "ADDS_LIMITED"
    for _ in range(20):
        request = pb.AddCountRequest(namespace="others", counter_name="views", delta=1)
        await served.call("AddCount", request)
    request = pb.AddCountRequest(namespace="hits", counter_name="views", delta=1)
    await served.call("AddCount", request)
    await served.call("AddCount", request)
    assert (await served.aborted("AddCount", request)).reason == "ADDS_LIMITED"


async def test_a_server_takes_its_share_of_what_the_fleet_may(
    served: Served, servers: Servers
) -> None:
    servers.alive = 4
    await served.switch(plays(adds_per_s=8))
    await served.call("AddCount", add())
    await served.call("AddCount", add())
    refused = await served.aborted("AddCount", add())
    assert "8 adds per second in all, 2 on each of 4 servers" in refused.message
    servers.alive = 1
    served.parts.clock.advance_ms(1_000)
    await served.call("BatchAddCount", batch(*"abcdefgh"))
    assert (await served.aborted("AddCount", add())).reason == "ADDS_LIMITED"


async def test_a_change_of_other_fields_fills_no_bucket(served: Served) -> None:
    await served.switch(plays(adds_per_s=2, reads_per_s=1))
    await served.call("BatchAddCount", batch("a", "b"))
    await served.call("GetCount", get())
    for owner in ("one", "another"):
        definition = plays(adds_per_s=2, reads_per_s=1, batch_items=7)
        await served.switch(
            Definition(
                name="plays",
                strategy=Strategy.ROLLING_WINDOW,
                rolling_window_ms=10_000,
                owner=owner,
                limits=definition.limits,
            )
        )
        assert (await served.aborted("AddCount", add())).reason == "ADDS_LIMITED"
        assert (await served.aborted("GetCount", get())).reason == "READS_LIMITED"


async def test_a_changed_limit_holds_at_once(served: Served) -> None:
    await served.switch(plays(adds_per_s=2))
    await served.call("BatchAddCount", batch(*"abcdefgh"))
    assert (await served.aborted("AddCount", add())).reason == "ADDS_LIMITED"
    await served.switch(plays(adds_per_s=3))
    for _ in range(3):
        await served.call("AddCount", add())
    assert (await served.aborted("AddCount", add())).reason == "ADDS_LIMITED"
    await served.switch(plays())
    for _ in range(20):
        await served.call("AddCount", add())


async def test_a_namespace_that_is_created_anew_begins_anew(served: Served) -> None:
    other = Definition(name="other", strategy=Strategy.ACCURATE)
    await served.switch(plays(adds_per_s=1), other)
    await served.call("AddCount", add())
    await served.switch(other)
    await served.switch(plays(adds_per_s=1), other)
    await served.call("AddCount", add())


# Batches and names.


async def test_batches_have_at_most_so_many_items(served: Served) -> None:
    await served.switch(plays(batch_items=3))
    before = limited("batch_items")
    await served.call("BatchAddCount", batch("a", "b", "c"))
    await served.call("BatchGetCount", get_all("a", "b", "c"))
    refused = await served.aborted("BatchAddCount", batch("a", "b", "c", "d"))
    assert refused.reason == "BATCH_TOO_LARGE"
    assert "namespace plays takes at most 3 at once (limits.batch_items)" in refused.message
    request = get_all("a", "b", "c", "d", "e")
    assert await served.refused("BatchGetCount", request) == ("BATCH_TOO_LARGE", "counter_name")
    assert limited("batch_items") - before == 9
    assert await events_written(served) == 3


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("AddCount", add("title-42/x")),
        ("ClearCount", pb.ClearCountRequest(namespace="plays", counter_name="Title-42")),
        (
            "AddAndGetCount",
            pb.AddAndGetCountRequest(namespace="plays", counter_name="a title-42", delta=1),
        ),
    ],
)
async def test_the_whole_name_must_match(served: Served, rpc: str, request_: Any) -> None:
    await served.switch(plays(names="title-[0-9]+"))
    before = limited("names")
    refused = await served.aborted(rpc, request_)
    assert (refused.code, refused.reason) == ("INVALID_ARGUMENT", "NAME_NOT_ALLOWED")
    assert refused.field == "counter_name"
    assert "the whole name must match title-[0-9]+ (limits.names)" in refused.message
    assert limited("names") - before == 1
    await served.call("AddCount", add("title-42"))
    assert await events_written(served) == 1
    # Reads need no match: what was never added to is 0.
    assert (await served.call("GetCount", get("nothing"))).value.count == 0


async def test_a_batch_with_all_kinds_of_items(served: Served) -> None:
    await served.switch(plays(names="[a-z]+"))
    request = batch("ok", "NO", "", "ok", "nil", "N O", "fine")
    request.items[4].delta = 0
    response = await served.call("BatchAddCount", request)
    assert [each.reason for each in response.outcomes] == [
        "",
        "NAME_NOT_ALLOWED",
        "NAME_EMPTY",
        "",
        "DELTA_ZERO",
        "NAME_NOT_ALLOWED",
        "",
    ]
    assert response.outcomes[1].code == code_pb2.INVALID_ARGUMENT
    for outcome in response.outcomes:
        assert outcome.HasField("idempotency_token") is (outcome.reason == "")
    values = await served.call("BatchGetCount", get_all("ok", "NO", "nil", "N O", "fine"))
    assert [each.count for each in values.values] == [2, 0, 0, 0, 1]


async def test_a_pattern_that_this_server_cannot_read_is_refused(served: Served) -> None:
    with pytest.raises(SetupError, match=r"limits\.names is no pattern here"):
        await served.switch(plays(names="(unclosed"))


# What is said about it.


async def test_the_log_says_who_is_limited_now_and_then(served: Served) -> None:
    await served.switch(plays(adds_per_s=1, names="[a-z]+"))
    clock = served.parts.clock
    await served.call("BatchAddCount", batch(*"abcdefghijklmnopqrstuvwxyz"))
    with capture_logs() as logs:
        served.limits.look()
        assert logs == []
        for _ in range(3):
            await served.aborted("BatchAddCount", batch("a", "b"))
        await served.aborted("AddCount", add("A"))
        served.limits.look()
        assert [(each["limit"], each["refused"]) for each in logs] == [
            ("adds_per_s", 6),
            ("names", 1),
        ]
        assert {each["action"] for each in logs} == {"namespace_limited"}
        assert {each["namespace"] for each in logs} == {"plays"}
        for _ in range(9):
            clock.advance_ms(1_000)
            await served.aborted("AddCount", add())
            served.limits.look()
        assert len(logs) == 2
        clock.advance_ms(1_000)
        served.limits.look()
        assert (logs[2]["limit"], logs[2]["refused"]) == ("adds_per_s", 9)
        clock.advance_ms(60_000)
        served.limits.look()
        assert len(logs) == 3


async def test_traffic_of_the_last_seconds(served: Served) -> None:
    others = Definition(name="others", strategy=Strategy.ACCURATE)
    await served.switch(plays(adds_per_s=20), others)
    clock = served.parts.clock

    async def seconds(number: int) -> None:
        for _ in range(number):
            clock.advance_ms(1_000)
            served.limits.look()

    for _ in range(20):
        await served.call("BatchAddCount", batch("a", "b", "c"))
        await served.call("BatchGetCount", get_all("a", "b"))
        await served.call("ListCounters", pb.ListCountersRequest(namespace="plays"))
        await seconds(1)
    await served.switch(plays(adds_per_s=20, reads_per_s=100), others)  # it goes on
    [idle, busy] = sorted(served.limits.traffic(), key=lambda each: each.adds_per_s)
    assert (busy.namespace, idle.namespace) == ("plays", "others")
    assert (busy.adds_per_s, busy.reads_per_s, busy.limited_per_s) == (3.0, 3.0, 0.0)
    assert (idle.adds_per_s, idle.reads_per_s, idle.limited_per_s) == (0.0, 0.0, 0.0)
    assert busy.counters is None
    await served.call("BatchAddCount", batch(*(str(at) for at in range(90))))
    await served.aborted("BatchAddCount", batch(*(str(at) for at in range(18))))
    [_, busy] = sorted(served.limits.traffic(), key=lambda each: each.adds_per_s)
    assert (busy.adds_per_s, busy.limited_per_s) == (13.0, 2.0)
    await seconds(10)
    assert {(each.adds_per_s, each.limited_per_s) for each in served.limits.traffic()} == {(0, 0)}


async def test_traffic_of_the_first_moment_is_no_rate_yet(served: Served) -> None:
    await served.switch(plays())
    served.parts.clock.advance_ms(1)
    await served.call("AddCount", add())
    [traffic] = served.limits.traffic()
    assert traffic.adds_per_s == 1.0
