"""Batches: every item has an outcome of its own, and is settled like a single add."""

import asyncio
import time
from typing import Any

import grpc
import pytest

from clients import (
    Add,
    ClientClosed,
    CounterClient,
    InvalidRequest,
    NamespaceUnknown,
    OutcomeUnknown,
    Overloaded,
    TokenExpired,
)
from clients.batch import CALLS_IN_FLIGHT_MAX, in_flight, pieces
from counter import errors
from counter.clock import NS_PER_S, ManualClock
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb


def sent(platform: Any) -> list[list[str]]:
    """The counters of each batch that arrived."""
    return [list(batch.columns.counter_name) for batch in platform.batches]


async def test_a_batch_is_cut_and_answered_in_order(client: Any, platform: Any) -> None:
    adds = [Add(f"title-{number}", number + 1) for number in range(2_500)]
    outcomes = await client("batch_add", iter(adds))
    assert [len(counters) for counters in sent(platform)] == [1_000, 1_000, 500]
    assert [outcome.counter for outcome in outcomes] == [add.counter for add in adds]
    assert all(outcome.error is None and not outcome.duplicate for outcome in outcomes)
    assert all(platform.count(add.counter) == add.delta for add in adds)
    values = await client("batch_get", (add.counter for add in adds[:25]), items_per_call=10)
    assert [value.count for value in values] == [add.delta for add in adds[:25]]


async def test_an_empty_batch_is_no_call(client: Any, platform: Any) -> None:
    assert await client("batch_add", []) == []
    assert await client("batch_get", []) == []
    assert platform.requests == []


@pytest.mark.parametrize("size", [0, 10_001])
async def test_the_size_of_a_call_is_bounded(client: Any, size: int) -> None:
    with pytest.raises(ValueError, match="items_per_call"):
        await client("batch_get", ["title-42"], items_per_call=size)


async def test_a_lost_reply_counts_every_item_once(client: Any, platform: Any) -> None:
    platform.break_with(grpc.StatusCode.UNAVAILABLE, after_applying=True)
    outcomes = await client("batch_add", [Add("a"), Add("b", 2)])
    assert [outcome.duplicate for outcome in outcomes] == [True, True]
    assert (platform.count("a"), platform.count("b")) == (1, 2)
    first, second = platform.batches
    assert first.columns == second.columns


async def test_only_what_is_not_settled_is_sent_again(client: Any, platform: Any) -> None:
    platform.refusals["b"] = [errors.Overloaded("busy", retry_after_ms=10)]
    platform.refusals["c"] = [errors.StoreUnavailable("store down")] * 2
    outcomes = await client("batch_add", [Add("a"), Add("b"), Add("c")])
    assert [outcome.error for outcome in outcomes] == [None] * 3
    first, *later = sent(platform)
    assert first == ["a", "b", "c"]
    assert sorted(each for counters in later for each in counters) == ["b", "c", "c"]
    tokens = {token for batch in platform.batches for token in batch.columns.token}
    assert tokens == {outcome.token.token for outcome in outcomes}


async def test_a_bad_item_does_not_fail_the_others(client: Any, platform: Any) -> None:
    zero = errors.InvalidRequest("DELTA_ZERO", "delta", "the delta is 0")
    platform.refusals["zero"] = [zero]
    adds = [Add("a"), Add("zero", 0), Add("huge", 2**70), Add("bad \ud800"), Add("b")]
    outcomes = await client("batch_add", adds)
    reasons = [outcome.error and outcome.error.reason for outcome in outcomes]
    assert reasons == [None, "DELTA_ZERO", "DELTA_TOO_LARGE", "NAME_MALFORMED", None]
    assert isinstance(outcomes[1].error, InvalidRequest)
    assert sent(platform) == [["a", "zero", "b"]]


async def test_expired_items_get_new_tokens_unless_they_are_the_callers(
    connect: Any, platform: Any
) -> None:
    clock = ManualClock()
    server_time_ns = clock.now_ns() + 3_600 * NS_PER_S
    calls = connect(clock=clock)
    mine = Token(token="mine", generation_time_ns=clock.now_ns())
    late = errors.TokenExpired("too late", server_time_ns=server_time_ns)
    platform.refusals = {"a": [late], "b": [late]}
    ours, callers = await calls("batch_add", [Add("a"), Add("b", token=mine)])
    assert ours.error is None
    assert ours.token.generation_time_ns >= server_time_ns
    assert isinstance(callers.error, TokenExpired)
    assert callers.token == mine
    assert (platform.count("a"), platform.count("b")) == (1, 0)


async def test_each_item_ends_with_what_is_known_of_it(client: Any, platform: Any) -> None:
    forever = 60_000
    platform.refusals = {
        "busy": [errors.Overloaded("busy", retry_after_ms=forever)],
        "down": [errors.StoreUnavailable("store down", retry_after_ms=forever)],
    }
    ok, busy, down = await client("batch_add", [Add("ok"), Add("busy"), Add("down")])
    assert ok.error is None
    assert isinstance(busy.error, Overloaded)
    assert isinstance(down.error, OutcomeUnknown)
    assert (down.error.token, down.error.counter) == (down.token, "down")


async def test_a_call_refused_as_a_whole_is_every_items_error(client: Any, platform: Any) -> None:
    platform.refuse(errors.NamespaceUnknown("no namespace 'plays'"))
    outcomes = await client("batch_add", [Add("a"), Add("b")])
    assert all(isinstance(outcome.error, NamespaceUnknown) for outcome in outcomes)


async def test_items_that_were_never_sent_say_so(connect: Any, platform: Any) -> None:
    platform.hang()
    calls = connect(unsettled_max=2)
    # Shorter than the smallest share of an attempt, so the first two use it up.
    adds = [Add("a"), Add("b"), Add("c"), Add("d", token=Token("mine", time.time_ns()))]
    *sent_ones, unsent, last = await calls("batch_add", adds, timeout_s=0.2)
    assert all(isinstance(outcome.error, OutcomeUnknown) for outcome in sent_ones)
    for outcome in (unsent, last):
        assert isinstance(outcome.error, Overloaded)
        assert outcome.error.reason == "CLIENT_FULL"
        assert platform.count(outcome.counter) == 0
    assert last.token.token == "mine"


async def test_more_than_fits_at_once_goes_out_bit_by_bit(connect: Any, platform: Any) -> None:
    calls = connect(unsettled_max=10)
    outcomes = await calls("batch_add", [Add(f"title-{number}") for number in range(100)])
    assert all(outcome.error is None for outcome in outcomes)
    assert max(len(counters) for counters in sent(platform)) <= 10
    assert sum(platform.count(f"title-{number}") for number in range(100)) == 100


async def test_a_batch_that_nobody_waits_for_is_not_sent_on(target: str, platform: Any) -> None:
    async with CounterClient(target, namespace="plays", unsettled_max=10) as client:
        answers = asyncio.Event()
        platform.hold(answers)
        adding = asyncio.create_task(client.batch_add([Add("a")] * 5_000))
        await platform.seen(1)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        answers.set()
        await client.add("b")
    assert (platform.count("a"), platform.count("b")) == (10, 1)  # as many as were on their way


async def test_a_closed_client_adds_nothing(connect: Any, platform: Any) -> None:
    calls = connect()
    await calls("close")
    with pytest.raises(ClientClosed):
        await calls("batch_add", [Add("a")])


async def test_answers_that_do_not_match_are_not_believed(client: Any, platform: Any) -> None:
    async def too_few(_: Any, batch: Any, *__: Any) -> pb.StreamAddCountResponse:
        number = batch.sequence_number
        return pb.StreamAddCountResponse(sequence_number=number, outcomes=[pb.AddCountOutcome()])

    platform.script.append(too_few)
    outcomes = await client("batch_add", [Add("a"), Add("b")])
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert (platform.count("a"), platform.count("b")) == (1, 1)


async def test_calls_in_flight_are_bounded() -> None:
    running = most = 0

    async def call() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return most

    assert len(await in_flight([call] * 50)) == 50
    assert most == CALLS_IN_FLIGHT_MAX


async def test_the_first_error_ends_the_calls_in_flight() -> None:
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await in_flight([hang, fail])
    assert cancelled.is_set()


def test_pieces_cover_everything_once() -> None:
    for count in (0, 1, 9, 10, 11, 100):
        assert [n for piece in pieces(count, 10) for n in piece] == list(range(count))


async def test_a_long_batch_does_not_age_its_tokens(connect: Any, platform: Any) -> None:
    calls = connect(unsettled_max=1)
    platform.refuse(errors.Overloaded("busy", retry_after_ms=100))
    started_ns = time.time_ns()
    first, last = await calls("batch_add", [Add("a"), Add("b")])
    assert first.token.generation_time_ns - started_ns < 100_000_000
    assert last.token.generation_time_ns - started_ns >= 100_000_000
