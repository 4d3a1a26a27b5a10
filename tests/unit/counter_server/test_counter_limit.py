"""Namespaces that may only have so many counters."""

from typing import Any

import pytest
from google.rpc import code_pb2
from structlog.testing import capture_logs

from counter.errors import StoreUnavailable
from counter.namespaces import Cardinality, Definition, Strategy
from counter.namespaces import Limits as NamespaceLimits
from counter.v1 import counter_service_pb2 as pb
from tests.unit.counter_server.limited import (
    add,
    batch,
    events_written,
    get_all,
    limited,
    plays,
)
from tests.unit.counter_server.served import Served


async def fold(served: Served) -> None:
    served.parts.clock.advance_ms(10_000)
    await served.parts.fold_through(served.parts.window - 1)
    served.parts.admission.observe(await served.parts.stores.ledger.closed())


async def test_new_counters_are_refused_from_the_first_count_at_the_limit_on(
    served: Served,
) -> None:
    await served.switch(plays(counters=2))
    await served.limits.count_counters()
    await served.call("BatchAddCount", batch("a", "b", "c"))  # nothing is folded yet
    assert served.limits.traffic()[0].counters == 0
    await fold(served)
    await served.call("AddCount", add("d"))  # nor counted
    await served.limits.count_counters()
    assert served.limits.traffic()[0].counters == 3
    before, written = limited("counters"), await events_written(served)
    refused = await served.aborted("AddCount", add("e"))
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "COUNTERS_LIMITED")
    assert "namespace plays has as many counters as it may have, 2" in refused.message
    assert refused.retry_after_ms == 10_000
    clear = pb.ClearCountRequest(namespace="plays", counter_name="e")
    assert (await served.aborted("ClearCount", clear)).reason == "COUNTERS_LIMITED"
    both = pb.AddAndGetCountRequest(namespace="plays", counter_name="e", delta=1)
    assert (await served.aborted("AddAndGetCount", both)).reason == "COUNTERS_LIMITED"
    assert limited("counters") - before == 3
    assert await events_written(served) == written
    # d was taken, and is there as soon as it is folded.
    assert (await served.aborted("AddCount", add("d"))).reason == "COUNTERS_LIMITED"
    await fold(served)
    await served.call("AddCount", add("d"))


async def test_counters_that_are_there_go_on_and_are_looked_up_once(served: Served) -> None:
    await served.switch(plays(counters=2))
    await served.call("BatchAddCount", batch("a", "b"))
    await fold(served)
    await served.limits.count_counters()
    reads = served.parts.script.calls
    before = reads["rollup_store.read"]
    response = await served.call("BatchAddCount", batch("a", "new", "", "b", "new", "a", "newer"))
    assert [each.reason for each in response.outcomes] == [
        "",
        "COUNTERS_LIMITED",
        "NAME_EMPTY",
        "",
        "COUNTERS_LIMITED",
        "",
        "COUNTERS_LIMITED",
    ]
    assert response.outcomes[1].code == code_pb2.RESOURCE_EXHAUSTED
    assert response.outcomes[1].retry_delay.seconds == 10
    assert reads["rollup_store.read"] == before + 1
    for _ in range(3):
        await served.call("BatchAddCount", batch("a", "b"))
        await served.call("AddCount", add("a"))
    assert reads["rollup_store.read"] == before + 1
    values = await served.call("BatchGetCount", get_all("a", "b", "new", "newer"))
    assert [each.count for each in values.values] == [9, 5, 0, 0]


async def test_a_raised_limit_of_counters_holds_at_once(served: Served) -> None:
    await served.switch(plays(counters=1))
    await served.call("AddCount", add("a"))
    await fold(served)
    await served.limits.count_counters()
    assert (await served.aborted("AddCount", add("b"))).reason == "COUNTERS_LIMITED"
    await served.switch(plays(counters=2))
    await served.call("AddCount", add("b"))
    await served.switch(plays())
    await served.call("AddCount", add("c"))
    assert served.limits.traffic()[0].counters is None
    await served.switch(plays(counters=1))
    await served.call("AddCount", add("d"))  # it has to be counted anew first


async def test_they_are_counted_every_10_s_and_only_where_there_is_a_limit(served: Served) -> None:
    others = Definition(name="others", strategy=Strategy.ACCURATE)
    hits = Definition(
        name="hits", strategy=Strategy.BEST_EFFORT, limits=NamespaceLimits(counters=1)
    )
    low = plays(counters=2)
    await served.switch(low, others, hits)
    counts = served.parts.script.calls
    await served.limits.count_counters()
    assert counts["rollup_store.count"] == 16
    served.parts.clock.advance_ms(9_999)
    await served.limits.count_counters()
    await served.switch(low, hits)
    await served.limits.count_counters()
    assert counts["rollup_store.count"] == 16
    served.parts.clock.advance_ms(1)
    await served.limits.count_counters()
    assert counts["rollup_store.count"] == 32
    counters = {each.namespace: each.counters for each in served.limits.traffic()}
    assert counters == {"plays": 0, "hits": None}


async def test_while_the_store_cannot_tell_nothing_is_refused(served: Served) -> None:
    async def away(*_: object) -> Any:
        raise StoreUnavailable("gone fishing")

    script = served.parts.script
    script.answers["rollup_store.count"] = away
    await served.switch(plays(counters=1))
    with capture_logs() as logs:
        await served.limits.count_counters()
        served.parts.clock.advance_ms(10_000)
        await served.limits.count_counters()
    assert [each["action"] for each in logs] == ["counters_uncounted"]
    assert (logs[0]["namespace"], logs[0]["problem"]) == ("plays", "gone fishing")
    await served.call("BatchAddCount", batch("a", "b"))
    del script.answers["rollup_store.count"]
    await fold(served)
    await served.limits.count_counters()
    assert (await served.aborted("AddCount", add("c"))).reason == "COUNTERS_LIMITED"
    script.answers["rollup_store.count"] = away
    served.parts.clock.advance_ms(10_000)
    await served.limits.count_counters()  # the last count stays
    assert (await served.aborted("AddCount", add("c"))).reason == "COUNTERS_LIMITED"
    script.answers["rollup_store.read"] = away
    await served.call("AddCount", add("c"))


@pytest.mark.parametrize(
    ("cardinality", "in_each", "most", "about", "asked"),
    [
        (Cardinality.LOW, 12_345, 1_000_000, 12_345, 1),
        (Cardinality.MEDIUM, 3, 100, 48, 16),
        (Cardinality.MEDIUM, 2_500, 100, 40_000, 4),
        (Cardinality.HIGH, 10_000, 100, 2_560_000, 1),
        (Cardinality.HIGH, 1, 1_000, 256, 16),  # far below: no need to look at all
        (Cardinality.HIGH, 2, 1_000, 512, 256),
    ],
)
async def test_some_buckets_tell_about_the_others(
    served: Served, cardinality: Cardinality, in_each: int, most: int, about: int, asked: int
) -> None:
    async def count(*_: object) -> int:
        return in_each

    served.parts.script.answers["rollup_store.count"] = count
    await served.switch(
        Definition(
            name="plays",
            strategy=Strategy.ACCURATE,
            cardinality=cardinality,
            limits=NamespaceLimits(counters=most),
        )
    )
    await served.limits.count_counters()
    assert served.limits.traffic()[0].counters == about
    assert served.parts.script.calls["rollup_store.count"] == asked


async def test_a_count_that_takes_long_is_made_less_often(served: Served) -> None:
    clock = served.parts.clock

    async def count(*_: object) -> int:
        clock.advance_ms(100)
        return 1

    script = served.parts.script
    script.answers["rollup_store.count"] = count
    await served.switch(plays(counters=10))
    await served.limits.count_counters()
    calls = script.calls["rollup_store.count"]
    clock.advance_ms(20 * 1_600 - 1_600 - 1)
    await served.limits.count_counters()
    assert script.calls["rollup_store.count"] == calls
    clock.advance_ms(1)
    await served.limits.count_counters()
    assert script.calls["rollup_store.count"] == 2 * calls
