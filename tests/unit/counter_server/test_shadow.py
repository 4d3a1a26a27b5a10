"""A shadow phase: both are written, answers are the old ones, and the shadow fails no call."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from counter.clock import NS_PER_MS
from counter.errors import InvalidRequest, ShadowOff, StoreUnavailable, Unsupported
from counter.events import Event
from counter.metrics import SHADOW_ADDS, SHADOW_COMPARED
from counter.namespaces import Definition, Strategy, next_snapshot
from counter.storage.memory import MemoryBestEffortCounters
from counter.storage.ports import BestEffortAdd, BestEffortOutcome
from counter.v1 import counter_service_pb2 as pb
from counter_server.adjustments import Adjustments
from counter_server.comparison import ComparedCounter, Comparison
from counter_server.limits import Limits
from counter_server.listing import Listing
from counter_server.registry import Registry
from counter_server.shadow_watch import ShadowWatch
from counter_server.strategies import BestEffort, Eventual, Freshness, Shadow
from counter_server.strategies.strategy import ANY_FRESHNESS
from tests.tampered import settle
from tests.unit.counter_server.parts import Parts
from tests.unit.counter_server.served import Served, serve

A_LONG_TIME_S = 60.0


class OldCounters:
    """Counters in memory, of which some refuse adds."""

    def __init__(self) -> None:
        self._counters = MemoryBestEffortCounters()
        self.refused: set[str] = set()
        self.read = self._counters.read

    async def apply(
        self, adds: Sequence[BestEffortAdd], *, dedupe_ttl_ms: int
    ) -> Sequence[BestEffortOutcome]:
        refusal = StoreUnavailable("the memcached server of this counter does not answer")
        taken = [each for each in adds if each.key[1] not in self.refused]
        outcomes = iter(await self._counters.apply(taken, dedupe_ttl_ms=dedupe_ttl_ms))
        return [refusal if each.key[1] in self.refused else next(outcomes) for each in adds]


@dataclass
class Phase:
    parts: Parts
    old_counters: OldCounters
    strategy: Shadow
    comparison: Comparison
    now_s: float = 0.0

    async def add(self, *events: Event, wait_s: float = A_LONG_TIME_S) -> list[Any]:
        return await self.strategy.add(events, wait_s=wait_s)

    async def counts(self, *names: str) -> list[tuple[int, int]]:
        """Of the old strategy and of the shadow."""
        old = await self.strategy.read(names, ANY_FRESHNESS)
        shadow = await self.strategy.shadow.read_accurately(names)
        return [(each.count, other.count) for each, other in zip(old, shadow, strict=True)]

    async def fold(self) -> None:
        """Until all that was added so far is folded: only then it is listed."""
        self.parts.clock.advance_ms(2_000)
        await self.parts.fold_through(self.parts.window - 1)

    async def compare(self, prefix: str = "") -> dict[str, tuple[int, int]]:
        page = await self.comparison.page(self.strategy, prefix, 0, "")
        assert page.next_token == ""
        return {each.counter: (each.count, each.shadow_count) for each in page.counters}


async def phase_of(parts: Parts, **settings: Any) -> Phase:
    fields = {"strategy": Strategy.BEST_EFFORT, "shadow": Strategy.EVENTUAL}
    namespace = await parts.define(**fields, dedupe_ttl_ms=settings.pop("dedupe_ttl_ms", None))
    counters = OldCounters()
    later = replace(namespace, strategy=Strategy.EVENTUAL, shadow=None)
    listing = Listing(parts.ledger, parts.rollup_store, parts.layout, parts.clock)
    phase: Phase
    strategy = Shadow(
        BestEffort(namespace, counters=counters),
        Eventual(later, parts.path(), []),
        monotonic_s=lambda: phase.now_s,
        **settings,
    )
    phase = Phase(parts, counters, strategy, Comparison(listing, settle_s=0))
    return phase


@pytest.fixture
async def phase(parts: Parts) -> Phase:
    return await phase_of(parts)


class Counted:
    """What became of events in the shadow since this was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        return {each: SHADOW_ADDS.at(result=each).value for each in ("written", "late", "failed")}

    @property
    def events(self) -> dict[str, int]:
        now = self._now()
        return {
            each: now[each] - self._before[each] for each in now if now[each] > self._before[each]
        }


async def test_adds_and_clears_are_written_to_both(phase: Phase) -> None:
    counted, parts = Counted(), phase.parts
    assert await phase.add(parts.event("views", 5, "a"), parts.event("likes", 2, "b")) == [
        False,
        False,
    ]
    assert await phase.counts("views", "likes") == [(5, 5), (2, 2)]
    parts.clock.advance_ms(1)
    await phase.add(parts.event("views", None, "c"))
    parts.clock.advance_ms(1)
    duplicate, value = await phase.strategy.add_and_read(
        parts.event("views", 1, "d"), wait_s=A_LONG_TIME_S
    )
    assert (duplicate, value.count) == (False, 1)
    assert await phase.counts("views", "likes") == [(1, 1), (2, 2)]
    assert counted.events == {"written": 4}
    await phase.fold()
    assert await phase.counts("views", "likes") == [(1, 1), (2, 2)]


async def test_answers_are_those_of_the_old_strategy(phase: Phase) -> None:
    [value] = await phase.strategy.read(["views"], ANY_FRESHNESS)
    assert value.complete_through_ns is None
    with pytest.raises(Unsupported, match="best_effort"):
        await phase.strategy.read(["views"], Freshness(max_staleness_ns=0))
    with pytest.raises(Unsupported, match="best_effort"):
        await phase.strategy.token_status(phase.parts.event("views"))


async def test_a_token_that_is_sent_again_counts_once_in_the_shadow(phase: Phase) -> None:
    event = phase.parts.event("views", 3)
    for _ in range(3):
        assert await phase.add(event) == [False]
    assert await phase.counts("views") == [(9, 3)]


async def test_the_old_strategy_may_know_a_token_too(parts: Parts) -> None:
    phase = await phase_of(parts, dedupe_ttl_ms=60_000)
    event = parts.event("views", 3)
    assert [await phase.add(event) for _ in range(2)] == [[False], [True]]
    assert await phase.counts("views") == [(3, 3)]


async def test_the_shadow_gets_only_what_the_old_strategy_took(phase: Phase) -> None:
    parts = phase.parts
    phase.old_counters.refused = {"likes"}
    views, likes = parts.event("views", 1, "a"), parts.event("likes", 1, "b")
    taken, refused = await phase.add(views, likes)
    assert taken is False
    assert isinstance(refused, StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        await phase.strategy.add_and_read(likes, wait_s=A_LONG_TIME_S)
    phase.old_counters.refused = set()
    assert await phase.counts("views", "likes") == [(1, 1), (0, 0)]
    assert await phase.add(likes) == [False]  # as its caller was told to do
    assert await phase.counts("views", "likes") == [(1, 1), (1, 1)]


async def test_a_late_token_is_taken_by_the_old_strategy_alone_and_at_once(phase: Phase) -> None:
    counted, parts = Counted(), phase.parts
    late = parts.event("views", 2, "late")
    parts.clock.advance_ms(10_000)
    await parts.close(parts.window - 3)  # closed, and no fold has decided yet
    parts.admission.observe(await parts.stores.ledger.closed())
    assert await phase.add(late, parts.event("views", 1, "b")) == [False, False]
    assert counted.events == {"written": 1, "late": 1}
    assert await phase.counts("views") == [(3, 1)]
    assert parts.script.calls["ledger.folds"] <= 1  # that was the read; nobody looked it up


async def test_an_event_that_was_written_too_late_is_left_to_the_fold(phase: Phase) -> None:
    counted, parts = Counted(), phase.parts
    event = parts.event("views", 2)
    parts.clock.advance_ms(10_000)
    await parts.close(parts.window - 3)  # and the server does not know it yet
    assert await phase.add(event) == [False]
    assert counted.events == {"late": 1}


async def fail(call: Any, *args: Any, **kwargs: Any) -> Any:
    raise StoreUnavailable("the store does not answer")


async def mistake(call: Any, *args: Any, **kwargs: Any) -> Any:
    raise ZeroDivisionError("a mistake of ours")


@pytest.mark.parametrize("answer", [fail, mistake])
async def test_a_shadow_that_fails_fails_no_call(phase: Phase, answer: Any) -> None:
    counted, parts = Counted(), phase.parts
    parts.script.answers["event_log.append"] = answer
    with capture_logs() as logs:
        for number in range(5):
            assert await phase.add(parts.event("views", 1, f"{number}")) == [False]
        phase.now_s += 10
        assert await phase.add(parts.event("views", 1, "last")) == [False]
    assert [(each["action"], each["events"]) for each in logs] == [
        ("shadow_lacks_events", 1),
        ("shadow_lacks_events", 5),
    ]
    assert counted.events == {"failed": 6}
    del parts.script.answers["event_log.append"]
    await phase.add(parts.event("views", 1, "after"))
    assert await phase.counts("views") == [(7, 1)]


async def test_what_admission_refuses_is_taken_by_the_old_strategy(phase: Phase) -> None:
    counted, parts = Counted(), phase.parts
    parts.admission.observe_fold_lag(3_600 * 1_000 * NS_PER_MS)
    assert await phase.add(parts.event("views", 1)) == [False]
    assert counted.events == {"failed": 1}
    assert await phase.counts("views") == [(1, 0)]


async def test_calls_wait_for_a_slow_shadow_only_until_it_is_known_to_be_slow(parts: Parts) -> None:
    phase = await phase_of(parts, wait_s_max=0.01)
    counted = Counted()
    opened = parts.script.hold("event_log.append")
    with capture_logs() as logs:
        assert await phase.add(parts.event("views", 1, "a")) == [False]  # after 10 ms
        for number in range(100):
            # None of these waits: a loop in which nothing has to be waited for is over at once.
            adding = asyncio.ensure_future(phase.add(parts.event("views", 1, f"b{number}")))
            for _ in range(3):
                await asyncio.sleep(0)
            assert adding.done()
    assert [each["action"] for each in logs] == ["shadow_slow"]
    assert counted.events == {}
    opened.set()
    del parts.script.held["event_log.append"]
    await phase.strategy.settled()
    assert counted.events == {"written": 101}
    assert await phase.counts("views") == [(101, 101)]
    # What was written after the store was back took no time: calls wait again.
    parts.script.hold("event_log.append")
    adding = asyncio.ensure_future(phase.add(parts.event("views", 1, "c")))
    await settle()
    assert not adding.done()
    assert await adding == [False]


async def test_only_so_many_events_wait_for_the_shadow(parts: Parts) -> None:
    phase = await phase_of(parts, wait_s_max=0.001, events_in_flight_max=10)
    counted = Counted()
    opened = parts.script.hold("event_log.append")
    events = [parts.event("views", 1, f"{at}") for at in range(8)]
    assert await phase.add(*events) == [False] * 8
    assert await phase.add(*(replace_token(each) for each in events)) == [False] * 8
    assert counted.events == {"failed": 8}
    opened.set()
    await phase.strategy.settled()
    assert await phase.counts("views") == [(16, 8)]


def replace_token(event: Event) -> Event:
    return Event(event.counter, event.time_ns, event.token + "again", event.delta)


async def test_a_caller_that_goes_away_does_not_keep_its_add_from_the_shadow(phase: Phase) -> None:
    parts = phase.parts
    opened = parts.script.hold("event_log.append")
    adding = asyncio.ensure_future(phase.add(parts.event("views", 4)))
    await settle()
    adding.cancel()
    opened.set()
    await phase.strategy.settled()
    assert await phase.counts("views") == [(4, 4)]


# Adjustments.


async def test_an_adjustment_goes_to_the_shadow_alone(phase: Phase) -> None:
    adjustments = Adjustments(phase.parts.admission)
    await phase.add(phase.parts.event("views", 1))
    why = {"author": "oncall", "reason": "what was there before"}
    event = adjustments.event(phase.strategy, "views", 41, None, **why)
    assert event.note is None, "else an audit would take it for the repair of an error"
    added = await adjustments.add(phase.strategy, event, wait_s=A_LONG_TIME_S, **why)
    assert added is False
    assert await phase.counts("views") == [(1, 42)]


# The comparison.


async def test_counters_are_compared_with_what_is_not_folded_yet(phase: Phase) -> None:
    parts = phase.parts
    await phase.strategy.old.add([parts.event("views", 10)], wait_s=0)  # before the phase
    await phase.add(parts.event("views", 1, "a"), parts.event("likes", 2, "b"))
    assert await phase.compare() == {}  # a counter is listed from its first fold on
    await phase.fold()
    await phase.add(parts.event("views", 5, "c"))
    assert await phase.compare() == {"likes": (2, 2), "views": (16, 6)}
    assert await phase.compare("v") == {"views": (16, 6)}


async def test_a_comparison_has_pages(phase: Phase) -> None:
    names = [f"c{at:02}" for at in range(25)]
    await phase.add(*(phase.parts.event(name, 1) for name in names))
    await phase.fold()
    found, token = [], ""
    while True:
        page = await phase.comparison.page(phase.strategy, "", 10, token)
        found += page.counters
        token = page.next_token
        if not token:
            break
    assert found == [ComparedCounter(name, 1, 1) for name in names]
    with pytest.raises(InvalidRequest):
        await phase.comparison.page(phase.strategy, "", 10, "nonsense")


async def test_adds_in_flight_are_no_difference(phase: Phase) -> None:
    parts = phase.parts
    await phase.add(parts.event("views", 1, "a"))
    await phase.fold()
    opened = parts.script.hold("event_log.append")
    adding = asyncio.ensure_future(phase.add(parts.event("views", 7, "b")))
    await settle()
    assert await phase.counts("views") == [(8, 1)]
    comparing = asyncio.ensure_future(phase.compare())
    await settle()
    opened.set()
    assert await comparing == {"views": (8, 8)}
    await adding


async def test_adds_while_it_compares_are_no_difference(phase: Phase) -> None:
    parts = phase.parts
    await phase.add(parts.event("views", 1, "first"))
    await phase.fold()
    number = 0

    async def add_before(call: Any, *args: Any, **kwargs: Any) -> Any:
        """Somebody adds between any two reads of a comparison."""
        nonlocal number
        number += 1
        await phase.add(parts.event("views", number, f"{number}"))
        return await call(*args, **kwargs)

    parts.script.answers["rollup_store.read"] = add_before
    for _ in range(5):
        found = await phase.compare()
        assert found["views"][0] == found["views"][1]
    del parts.script.answers["rollup_store.read"]
    await phase.strategy.old.add([parts.event("views", 1_000)], wait_s=0)
    parts.script.answers["rollup_store.read"] = add_before
    count, shadow_count = (await phase.compare())["views"]
    assert 900 < count - shadow_count <= 1_000  # never more than the true difference


async def test_a_namespace_without_a_shadow_is_not_compared(phase: Phase) -> None:
    with pytest.raises(ShadowOff, match="namespace plays is in no shadow phase"):
        await phase.comparison.page(phase.strategy.old, "", 0, "")


# As the service answers.


@pytest.fixture
async def served(parts: Parts) -> Served:
    served = serve(parts, Limits(parts.rollup_store))
    await served.switch(
        Definition(name="plays", strategy=Strategy.ACCURATE),
        Definition(name="hits", strategy=Strategy.BEST_EFFORT),
        Definition(name="shadowed", strategy=Strategy.BEST_EFFORT, shadow=Strategy.ACCURATE),
    )
    return served


async def test_calls_during_a_phase(served: Served) -> None:
    add = pb.AddCountRequest(namespace="shadowed", counter_name="views", delta=2)
    for _ in range(2):
        await served.call("AddCount", add)
    adjustment = pb.AdjustCountRequest(
        namespace="shadowed", counter_name="views", delta=5, author="oncall", reason="a try"
    )
    await served.call("AdjustCount", adjustment)
    served.parts.clock.advance_ms(10_000)
    await served.parts.fold_through(served.parts.window - 1)
    request = pb.CompareShadowRequest(namespace="shadowed", page_size=10)
    compared = await served.call("CompareShadow", request)
    assert list(compared.counters) == [
        pb.ShadowCount(counter_name="views", count=4, shadow_count=9)
    ]
    assert compared.complete_through.ToNanoseconds() == served.parts.layout.complete_through_ns(
        served.parts.window - 1
    )
    get = pb.GetCountRequest(namespace="shadowed", counter_name="views")
    value = (await served.call("GetCount", get)).value
    assert (value.count, value.strategy) == (4, pb.STRATEGY_BEST_EFFORT)
    # Lists and the past are not for best_effort, and still are not.
    aborted = await served.aborted("ListCounters", pb.ListCountersRequest(namespace="shadowed"))
    assert aborted.reason == "STRATEGY_UNSUPPORTED"


async def test_compare_shadow_refuses(served: Served) -> None:
    for name in ("plays", "hits"):
        aborted = await served.aborted("CompareShadow", pb.CompareShadowRequest(namespace=name))
        assert (aborted.code, aborted.reason) == ("FAILED_PRECONDITION", "SHADOW_OFF")
    request = pb.CompareShadowRequest(namespace="shadowed", page_size=1_001)
    assert await served.refused("CompareShadow", request) == ("PAGE_MALFORMED", "page_size")
    request = pb.CompareShadowRequest(namespace="shadowed", prefix="x" * 257)
    assert await served.refused("CompareShadow", request) == ("NAME_TOO_LONG", "prefix")


# What the background publishes.


async def test_differences_are_published_after_each_round(parts: Parts) -> None:
    registry = await shadowed_registry(parts, "plays", "hits")
    listing = Listing(parts.ledger, parts.rollup_store, parts.layout, parts.clock)
    watch = ShadowWatch(registry, Comparison(listing, settle_s=0))
    plays, hits = (registry.strategies[name] for name in ("plays", "hits"))
    assert isinstance(plays, Shadow)
    assert isinstance(hits, Shadow)
    for each in (plays, hits):
        await each.add([parts.event(f"c{at}", 1) for at in range(3)], wait_s=A_LONG_TIME_S)
    await plays.old.add([parts.event("c1", 5)], wait_s=0)
    await hits.shadow.add([parts.event("c2", 7, "x")], wait_s=0)
    parts.clock.advance_ms(2_000)
    await parts.fold_through(parts.window - 1)
    before = {each: SHADOW_COMPARED.at(result=each).value for each in ("equal", "different")}
    found = []
    for _ in range(2):  # one namespace at a time
        await watch.look()
        found.append(watch.found)
    assert found == [None, (2, 12)]
    after = {each: SHADOW_COMPARED.at(result=each).value for each in ("equal", "different")}
    assert after["equal"] - before["equal"] == 4
    assert after["different"] - before["different"] == 2
    # A cutover in the middle of a round ends the part of its namespace.
    await watch.look()
    registry.switch(
        next_snapshot(
            parts.snapshot,
            [Definition(name=name, strategy=Strategy.EVENTUAL) for name in ("plays", "hits")],
            applied_at_ns=0,
        )
    )
    await watch.look()
    await watch.look()
    assert watch.found == (0, 0)


async def shadowed_registry(parts: Parts, *names: str) -> Registry:
    counters = MemoryBestEffortCounters()
    registry = Registry(
        {
            Strategy.BEST_EFFORT: (BestEffort, lambda each: BestEffort(each, counters=counters)),
            Strategy.EVENTUAL: (Eventual, lambda each: Eventual(each, parts.path(), [])),
        },
        BestEffort.needs | Eventual.needs,
    )
    definitions = [
        Definition(name=name, strategy=Strategy.BEST_EFFORT, shadow=Strategy.EVENTUAL)
        for name in names
    ]
    parts.snapshot = next_snapshot(parts.snapshot, definitions, applied_at_ns=0)
    assert await parts.stores.namespace_store.put(parts.snapshot)
    registry.check(parts.snapshot)
    registry.switch(parts.snapshot)
    return registry
