"""Calls of best_effort that come together share requests, and notice nothing of it."""

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counter.errors import Overloaded, StoreUnavailable, TallyError
from counter.events import Event
from counter.metrics import BEST_EFFORT_ADDS, BEST_EFFORT_REQUEST_EVENTS
from counter.namespaces import Namespace, Strategy
from counter.storage.memcached import MemcachedBestEffortCounters
from counter.storage.memory import MemoryBestEffortCounters
from counter.storage.ports import BestEffortAdd, BestEffortOutcome, CounterKey
from counter_server.strategies import BestEffort
from counter_server.strategies.coalesced_counters import CoalescedCounters
from counter_server.strategies.coalescer import CoalescingLimits
from counter_server.strategies.strategy import ANY_FRESHNESS
from tests.backends import start_memcached
from tests.memcached_client import ask, connected

_tokens = count()


class Store:
    """Counters in memory that tell what they were asked, and wait or fail when told to."""

    def __init__(self) -> None:
        self._counters = MemoryBestEffortCounters()
        self.requests: list[list[tuple[str, int | None]]] = []
        self.reads: list[list[str]] = []
        self.away: set[str] = set()  # of some counters, the server does not answer
        self.mistake: Exception | None = None
        self.in_flight = self.in_flight_max = 0
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        """Until `release`, requests are taken and not answered."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def apply(
        self, adds: Sequence[BestEffortAdd], *, dedupe_ttl_ms: int
    ) -> Sequence[BestEffortOutcome]:
        self.requests.append([(key[1], delta) for key, delta, _ in adds])
        await self._wait()
        present = [each for each in adds if each.key[1] not in self.away]
        outcomes = iter(await self._counters.apply(present, dedupe_ttl_ms=dedupe_ttl_ms))
        return [away() if each.key[1] in self.away else next(outcomes) for each in adds]

    async def read(self, keys: Sequence[CounterKey]) -> list[int]:
        self.reads.append([counter for _, counter in keys])
        await self._wait()
        if any(counter in self.away for _, counter in keys):
            raise away()
        return await self._counters.read(keys)

    async def _wait(self) -> None:
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await self._open.wait()
            if self.mistake is not None:
                raise self.mistake
        finally:
            self.in_flight -= 1


def away() -> StoreUnavailable:
    return StoreUnavailable("its server does not answer")


def hits(dedupe_ttl_ms: int | None = None) -> Namespace:
    return Namespace(id=9, name="hits", strategy=Strategy.BEST_EFFORT, dedupe_ttl_ms=dedupe_ttl_ms)


def event(counter: str, delta: int | None = 1, token: str | None = None) -> Event:
    return Event(counter, 1, f"t{next(_tokens)}" if token is None else token, delta)


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.fixture
async def counters(store: Store) -> CoalescedCounters:
    return CoalescedCounters(hits(), store)


async def together(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """All in one turn of the loop; what each answered or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def turns(number: int = 4) -> None:
    """Whatever is ready in so many turns of the loop is done; nothing here needs time to pass."""
    for _ in range(number):
        await asyncio.sleep(0)


# What goes out, and when.


async def test_calls_of_one_turn_are_one_request_with_one_entry_per_counter(
    store: Store, counters: CoalescedCounters
) -> None:
    batch = [event("views", 5), event("plays", 7), event("views", -2)]
    answers = await together(
        *(counters.add([event("views")]) for _ in range(100)),
        counters.add(batch),
        counters.add([event("likes")]),
    )
    assert answers == [[False]] * 100 + [[False] * 3, [False]]
    assert store.requests == [[("views", 103), ("plays", 7), ("likes", 1)]]
    assert await counters.read(["views", "plays", "likes"]) == [103, 7, 1]


async def test_a_lone_call_goes_out_at_the_end_of_its_turn(
    store: Store, counters: CoalescedCounters
) -> None:
    store.hold()
    call = asyncio.create_task(counters.add([event("views")]))
    await turns(1)  # the call itself
    assert store.requests == []
    await turns(1)
    assert store.requests == [[("views", 1)]]
    store.release()
    assert await call == [False]


async def test_what_comes_while_requests_are_under_way_goes_out_together(store: Store) -> None:
    counters = CoalescedCounters(hits(), store, CoalescingLimits(requests_in_flight=2))
    store.hold()
    calls = []
    for _ in range(20):
        calls.append(asyncio.create_task(counters.add([event("views")])))
        await turns()
    assert store.requests == [[("views", 1)]] * 2
    store.release()
    assert await asyncio.gather(*calls) == [[False]] * 20
    assert store.requests == [[("views", 1)], [("views", 1)], [("views", 18)]]
    assert store.in_flight_max == 2


async def test_a_full_request_takes_no_further_call_and_no_call_is_split(store: Store) -> None:
    limits = CoalescingLimits(requests_in_flight=1, events_per_request=3)
    counters = CoalescedCounters(hits(), store, limits)
    calls = [counters.add([event(f"c{at}"), event("views")]) for at in range(3)]
    assert await together(*calls) == [[False, False]] * 3
    assert store.requests == [
        [("c0", 1), ("views", 2), ("c1", 1)],
        [("c2", 1), ("views", 1)],
    ]


async def test_more_than_one_request_holds_goes_out_as_several_at_once(store: Store) -> None:
    limits = CoalescingLimits(requests_in_flight=2, events_per_request=3)
    counters = CoalescedCounters(hits(), store, limits)
    store.hold()
    calls = [asyncio.create_task(counters.add([event("views")] * 3)) for _ in range(4)]
    await turns()
    assert store.requests == [[("views", 3)]] * 2
    store.release()
    assert await asyncio.gather(*calls) == [[False] * 3] * 4
    assert store.requests == [[("views", 3)]] * 4
    assert store.in_flight_max == 2


async def test_an_empty_call_asks_nobody(store: Store, counters: CoalescedCounters) -> None:
    assert await together(counters.add([]), counters.read([])) == [[], []]
    assert (store.requests, store.reads) == ([], [])


# Counts, clears and tokens.


async def test_a_count_is_the_one_right_after_the_own_add(
    store: Store, counters: CoalescedCounters
) -> None:
    calls = []
    for _ in range(10):
        calls += [counters.add([event("views", 3), event("plays")])]
        calls += [counters.add_and_read(event("views"))]
        calls += [counters.add([event("views", 10)])]
    answers = await together(*calls)
    assert answers[1::3] == [(14 * at + 4, False) for at in range(10)]
    assert len(store.requests) == 1


async def test_clears_stay_between_the_adds_before_and_after(
    store: Store, counters: CoalescedCounters
) -> None:
    await together(
        counters.add([event("views", 5), event("plays", 5)]),
        counters.add([event("views", None)]),
        counters.add([event("views", 2), event("plays", 2)]),
        counters.add([event("views", 1)]),
    )
    assert store.requests == [[("views", 5), ("plays", 7), ("views", None), ("views", 3)]]
    assert await counters.read(["views", "plays"]) == [3, 7]


async def test_each_token_is_looked_at_by_itself(store: Store) -> None:
    counters = CoalescedCounters(hits(dedupe_ttl_ms=60_000), store)
    answers = await together(
        counters.add([event("views", 5, "a"), event("views", 5, "b")]),
        counters.add([event("views", 5, "a")]),
        counters.add_and_read(event("views", 1, "c")),
        counters.add_and_read(event("views", 1, "b")),
    )
    assert answers == [[False, False], [True], (11, False), (11, True)]
    assert len(store.requests) == 1
    assert await counters.add([event("views", 5, "c")]) == [True]


_CALLS = st.lists(
    st.tuples(
        st.booleans(),  # whether the call reads too; then it is of one event
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b"]),
                st.one_of(st.none(), st.integers(-9, 9).filter(bool)),
                st.integers(0, 3),
            ),
            min_size=1,
            max_size=4,
        ),
    ),
    max_size=12,
)


@given(turns_of_calls=st.lists(_CALLS, max_size=3), with_tokens=st.booleans())
@settings(max_examples=200, deadline=None)
def test_calls_together_answer_as_if_they_came_one_by_one(
    turns_of_calls: list[list[tuple[bool, list[tuple[str, int | None, int]]]]], with_tokens: bool
) -> None:
    async def compare() -> None:
        ttl_ms = 60_000 if with_tokens else None
        store, plain = Store(), MemoryBestEffortCounters()
        counters = CoalescedCounters(hits(ttl_ms), store)
        for of_turn in turns_of_calls:
            calls: list[Coroutine[Any, Any, Any]] = []
            wanted: list[Any] = []
            for reads, drawn in of_turn:
                events = [event(name, delta, f"t{token}") for name, delta, token in drawn]
                if reads:
                    del events[1:]
                    calls.append(counters.add_and_read(events[0]))
                else:
                    calls.append(counters.add(events))
                one_by_one = await plain.apply(
                    [
                        BestEffortAdd((9, each.counter), each.delta, each.token if ttl_ms else None)
                        for each in events
                    ],
                    dedupe_ttl_ms=ttl_ms or 0,
                )
                wanted.append(one_by_one[0] if reads else [seen for _, seen in one_by_one])
            store.requests.clear()
            assert await together(*calls) == wanted
            assert len(store.requests) == bool(of_turn)
        assert await counters.read(["a", "b"]) == await plain.read([(9, "a"), (9, "b")])

    asyncio.run(compare())


# Failures, and callers that go away.


async def test_an_error_reaches_only_those_who_touch_its_counter(
    store: Store, counters: CoalescedCounters
) -> None:
    store.away = {"plays"}
    before = counted()
    answers = await together(
        counters.add([event("views")]),
        counters.add([event("plays"), event("views")]),
        counters.add_and_read(event("plays")),
        counters.add_and_read(event("views")),
    )
    assert len(store.requests) == 1
    assert answers[0] == [False]
    assert isinstance(answers[1][0], StoreUnavailable)
    assert answers[1][1] is False
    assert isinstance(answers[2], TallyError)  # answered, for the strategy to raise
    assert answers[3] == (3, False)
    assert counted() - before == 3


async def test_add_and_read_of_the_strategy_raises_it(store: Store) -> None:
    store.away = {"plays"}
    strategy = BestEffort(hits(), store)
    with pytest.raises(StoreUnavailable):
        await strategy.add_and_read(event("plays"), wait_s=0)


async def test_a_request_that_fails_fails_its_calls_and_not_the_next_ones(
    store: Store, counters: CoalescedCounters
) -> None:
    store.mistake = ZeroDivisionError("a mistake of ours")
    answers = await together(
        counters.add([event("views")]),
        counters.add_and_read(event("plays")),
        counters.read(["views"]),
        counters.read(["plays"]),
    )
    assert answers == [store.mistake] * 4
    store.mistake = None
    assert await counters.add([event("views")]) == [False]
    assert await counters.read(["views"]) == [1]


async def test_callers_that_go_away_do_not_disturb_the_others(
    store: Store, counters: CoalescedCounters
) -> None:
    before = counted()
    store.hold()
    calls = [asyncio.create_task(counters.add([event("views")])) for _ in range(6)]
    reading = [asyncio.create_task(counters.add_and_read(event("views"))) for _ in range(2)]
    await turns(1)
    calls[0].cancel()  # before it is sent
    await turns()
    calls[3].cancel()  # while it is under way
    reading[0].cancel()
    await turns()
    store.release()
    answers = await asyncio.gather(*calls, *reading, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in answers] == [
        *(True, False, False, True, False, False),
        *(True, False),
    ]
    assert answers[7] == (8, False)
    assert counted() - before == 8  # they were counted, whoever heard of it
    assert await counters.add_and_read(event("views")) == (9, False)


async def test_a_failure_that_nobody_waits_for_any_more_is_no_noise(
    store: Store, counters: CoalescedCounters
) -> None:
    noise: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    store.hold()
    store.mistake = ZeroDivisionError("a mistake of ours")
    calls = [
        asyncio.create_task(counters.add([event("views")])),
        asyncio.create_task(counters.read(["views"])),
    ]
    await turns()
    for call in calls:
        call.cancel()
    await turns()
    store.release()
    await turns()
    assert noise == []


# Limits.


async def test_beyond_the_limit_a_call_is_refused_and_nothing_of_it_is_counted(
    store: Store,
) -> None:
    limits = CoalescingLimits(requests_in_flight=1, events_waiting_max=10)
    counters = CoalescedCounters(hits(), store, limits)
    store.hold()
    first = asyncio.create_task(counters.add([event("views")] * 4))
    await turns()
    second = asyncio.create_task(counters.add([event("views")] * 5))
    await turns()
    with pytest.raises(Overloaded, match="9 adds of namespace hits wait already, the limit is 10"):
        await counters.add([event("views")] * 2)
    last = asyncio.create_task(counters.add_and_read(event("views")))
    await turns()
    with pytest.raises(Overloaded) as refused:
        await counters.add_and_read(event("views"))
    assert refused.value.retry_after_ms is not None
    store.release()
    assert await asyncio.gather(first, second, last) == [[False] * 4, [False] * 5, (10, False)]
    assert await counters.add([event("views")] * 10) == [False] * 10  # there is room again
    assert await counters.read(["views"]) == [20]


async def test_reads_have_a_limit_of_their_own(store: Store) -> None:
    limits = CoalescingLimits(requests_in_flight=1, events_waiting_max=2)
    counters = CoalescedCounters(hits(), store, limits)
    store.hold()
    calls = [asyncio.create_task(counters.read([name])) for name in ("a", "b")]
    await turns()
    with pytest.raises(Overloaded, match="2 reads of namespace hits wait already"):
        await counters.read(["c"])
    adding = asyncio.create_task(counters.add([event("a")]))
    await turns()
    store.release()
    assert await asyncio.gather(*calls, adding) == [[0], [0], [False]]
    assert await counters.read(["a", "b"]) == [1, 0]


@pytest.mark.parametrize("failure", ["error", "cancelled"])
async def test_room_is_given_back_whatever_became_of_a_request(store: Store, failure: str) -> None:
    limits = CoalescingLimits(requests_in_flight=1, events_waiting_max=2)
    counters = CoalescedCounters(hits(), store, limits)
    for _ in range(5):
        if failure == "error":
            store.mistake = ZeroDivisionError()
            with pytest.raises(ZeroDivisionError):
                await counters.add([event("views")] * 2)
        else:
            store.hold()
            call = asyncio.create_task(counters.add([event("views")] * 2))
            await turns()
            call.cancel()
            store.release()
            await turns()
    store.mistake = None
    assert await counters.add([event("views")] * 2) == [False] * 2


# Reads.


async def test_reads_of_one_turn_are_one_request_for_each_counter_once(
    store: Store, counters: CoalescedCounters
) -> None:
    await counters.add([event("views", 3), event("plays", 4)])
    answers = await together(
        counters.read(["views"]),
        counters.read(["plays", "views", "plays"]),
        counters.read(["likes"]),
    )
    assert answers == [[3], [4, 3, 4], [0]]
    assert store.reads == [["views", "plays", "likes"]]


async def test_a_read_has_what_was_acknowledged_before_it(
    store: Store, counters: CoalescedCounters
) -> None:
    async def add_then_read(number: int) -> None:
        own = f"c{number % 7}"
        await counters.add([event(own), event("views")])
        [views, count] = await counters.read(["views", own])
        acknowledged.append(own)
        assert count >= acknowledged.count(own)
        assert views >= len(acknowledged)

    acknowledged: list[str] = []
    await asyncio.gather(*(add_then_read(number) for number in range(100)))
    assert len(store.reads) < 10
    assert await counters.read(["views"]) == [100]


async def test_a_counter_that_cannot_be_read_fails_only_those_who_ask_for_it(
    store: Store, counters: CoalescedCounters
) -> None:
    await counters.add([event("views", 3)])
    store.away = {"plays"}
    answers = await together(
        counters.read(["views"]),
        counters.read(["views", "plays"]),
        counters.read(["plays"]),
        counters.read(["likes", "views"]),
    )
    assert [answers[0], answers[3]] == [[3], [0, 3]]
    assert all(isinstance(each, StoreUnavailable) for each in answers[1:3])
    store.reads.clear()
    with pytest.raises(StoreUnavailable):
        await counters.read(["plays"])
    assert store.reads == [["plays"]]  # alone, it need not be asked again


# Metrics, and a real memcached.


def counted(result: str = "counted") -> int:
    return BEST_EFFORT_ADDS.at(result=result).value


async def test_metrics_count_events_and_not_entries(store: Store) -> None:
    counters = CoalescedCounters(hits(dedupe_ttl_ms=60_000), store)
    before = counted(), counted("duplicate"), BEST_EFFORT_REQUEST_EVENTS.at().state
    await together(*(counters.add([event("views", 1, "t")]) for _ in range(30)))
    counts, total = BEST_EFFORT_REQUEST_EVENTS.at().state
    assert (counted() - before[0], counted("duplicate") - before[1]) == (1, 29)
    assert (sum(counts) - sum(before[2].counts), total - before[2].sum) == (1, 30)


async def test_on_memcached_many_callers_of_one_counter_are_few_commands() -> None:
    server = start_memcached()
    try:
        async with connected([server], prefix=secrets.token_hex(8)) as servers:
            strategy = BestEffort(hits(), MemcachedBestEffortCounters(servers))
            await strategy.add([event("views")], wait_s=0)
            calls = [strategy.add([event("views")], wait_s=0) for _ in range(400)]
            reads = [strategy.add_and_read(event("views"), wait_s=0) for _ in range(100)]
            answers = await together(*calls, *reads)
            assert answers[:400] == [[False]] * 400
            assert [value.count for _, value in answers[400:]] == list(range(402, 502))
        stats = ask(server, b"stats\r\n").split(b"\r\n")
    finally:
        server.kill()
    assert b"STAT incr_hits 1" in stats  # the first add made it


@pytest.mark.parametrize("away", ["hung", "killed"])
async def test_without_memcached_every_caller_is_told_and_nobody_waits(away: str) -> None:
    server = start_memcached()
    try:
        async with connected([server], timeout_ms=50) as servers:
            strategy = BestEffort(hits(), MemcachedBestEffortCounters(servers))
            assert await strategy.add([event("views", -7)], wait_s=0) == [False]
            before = counted()
            if away == "hung":
                server.pause()
            else:
                server.kill()
            answers = await together(
                *(strategy.add([event("views")], wait_s=0) for _ in range(200)),
                *(strategy.add_and_read(event("views"), wait_s=0) for _ in range(50)),
                *(strategy.read(["views"], ANY_FRESHNESS) for _ in range(50)),
            )
            told = [each[0] if isinstance(each, list) else each for each in answers]
            assert [type(each) for each in told] == [StoreUnavailable] * 300
            assert counted() == before  # nothing was acknowledged
    finally:
        server.kill()
