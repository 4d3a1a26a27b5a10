"""Both clients against a real gRPC server that fails in all the ways that matter."""

import asyncio
import inspect
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_origin

import grpc
import pytest

from clients import (
    CounterClient,
    CountValue,
    InvalidRequest,
    NamespaceLimited,
    NamespaceUnknown,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    Strategy,
    SyncCounterClient,
    TokenExpired,
    TokenFromFuture,
    TokenStatus,
    TokenTooOld,
    Unavailable,
    Unsupported,
)
from counter import errors
from counter.clock import NS_PER_S, ManualClock
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc

HOUR_NS = 3_600 * NS_PER_S
EXACT_NS = 1_700_000_000_123_456_789


async def test_add_get_and_clear(client: Any, platform: Any) -> None:
    first = await client("add", "title-42", 3)
    assert not first.duplicate
    again = await client("add", "title-42", 3, token=first.token)
    assert again.duplicate
    assert again.token == first.token
    value = await client("get", "title-42")
    assert isinstance(value, CountValue)
    assert value.count == 3
    assert value.complete_through_ns == EXACT_NS
    assert value.complete_through == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert (await client("add_and_get", "title-42", -1)).value.count == 2
    await client("clear", "title-42")
    assert (await client("get", "title-42")).count == 0
    assert all(request.namespace == "plays" for request in platform.requests)


async def test_another_namespace_shares_the_connection(client: Any, platform: Any) -> None:
    likes = type(client)(client.client.in_namespace("likes"))
    first = await client("new_token")
    result = await likes("add", "title-42")
    assert result.token.generation_time_ns > first.generation_time_ns
    await likes("close")
    await client("add", "title-42")  # still open
    assert [request.namespace for request in platform.requests] == ["likes", "plays"]


async def test_freshness_goes_out_exactly(client: Any, platform: Any) -> None:
    value = await client("get", "title-42")
    await client("get", "title-42", at_least=value, max_staleness=timedelta(milliseconds=1500))
    request = platform.requests[-1]
    assert request.at_least.ToNanoseconds() == EXACT_NS
    assert request.max_staleness.ToMilliseconds() == 1500
    assert not platform.requests[0].HasField("at_least")


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
    ],
)
async def test_a_lost_reply_is_counted_once(
    client: Any, platform: Any, code: grpc.StatusCode
) -> None:
    platform.break_with(code, after_applying=True)
    platform.break_with(code)
    result = await client("add", "title-42", 5)
    assert result.duplicate
    assert platform.count("title-42") == 5
    assert len(platform.requests) == 3
    assert set(platform.tokens()) == {result.token.token}


async def test_a_hung_attempt_does_not_eat_the_deadline(client: Any, platform: Any) -> None:
    platform.hang(after_applying=True)
    result = await client("add", "title-42", timeout_s=1.5)
    assert result.duplicate
    assert platform.count("title-42") == 1
    assert (await client("get", "title-42", timeout_s=1.5)).count == 1


async def test_a_server_that_starts_late_is_found(connect: Any, platform: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    calls = connect(to=f"127.0.0.1:{port}", random=None)
    adding = asyncio.create_task(calls("add", "title-42"))
    # Long enough for the first attempts to be refused; the outcome does not depend on it.
    await asyncio.wait([adding], timeout=0.3)
    assert not adding.done()
    server = grpc.aio.server()
    pb_grpc.add_CounterServiceServicer_to_server(platform, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        await adding
        assert platform.count("title-42") == 1
    finally:
        await server.stop(None)


async def test_nothing_to_connect_to_is_an_unknown_outcome(connect: Any) -> None:
    calls = connect(to="127.0.0.1:1", random=None)
    token = await calls("new_token")
    with pytest.raises(OutcomeUnknown) as caught:
        await calls("add", "title-42", token=token, timeout_s=0.6)
    error = caught.value
    assert (error.token, error.counter) == (token, "title-42")
    assert isinstance(error.last_error, Unavailable)
    assert "settle('title-42', error.token)" in error.message
    assert "token=error.token" in error.message
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1") as refused:
        await calls("get", "title-42", timeout_s=0.6)
    assert refused.value.reason == "NO_ANSWER"


async def test_the_wait_that_the_server_asks_for_is_kept(client: Any, platform: Any) -> None:
    platform.refuse(errors.Overloaded("queue full", retry_after_ms=300))
    started_s = time.monotonic()
    await client("add", "title-42")
    assert time.monotonic() - started_s >= 0.3
    assert platform.count("title-42") == 1
    assert len(set(platform.tokens())) == 1


async def test_refused_until_the_deadline_is_overloaded(client: Any, platform: Any) -> None:
    for _ in range(10):
        platform.refuse(errors.FoldLagging("folds lag", retry_after_ms=100))
    with pytest.raises(Overloaded, match="Nothing was written") as caught:
        await client("add", "title-42", timeout_s=0.5)
    assert caught.value.reason == "FOLD_LAGGING"
    assert 2 <= len(platform.requests) <= 6


async def test_a_limit_of_the_namespace_is_waited_out(client: Any, platform: Any) -> None:
    platform.refuse(errors.AddsLimited("3 adds per second", retry_after_ms=200))
    started_s = time.monotonic()
    await client("add", "title-42")
    assert time.monotonic() - started_s >= 0.2
    assert platform.count("title-42") == 1
    assert len(set(platform.tokens())) == 1
    platform.refuse(errors.ReadsLimited("3 reads per second", retry_after_ms=200))
    assert (await client("get", "title-42")).count == 1
    platform.refuse(errors.AddsLimited("3 adds per second", retry_after_ms=60_000))
    with pytest.raises(NamespaceLimited, match="Nothing was written") as caught:
        await client("add", "title-42", timeout_s=0.5)
    assert caught.value.reason == "ADDS_LIMITED"


async def test_a_counter_too_many_is_told_at_once(client: Any, platform: Any) -> None:
    platform.refuse(errors.CountersLimited("only 2 counters", retry_after_ms=100))
    with pytest.raises(NamespaceLimited, match=r"^only 2 counters$") as caught:
        await client("add", "title-42")
    assert caught.value.reason == "COUNTERS_LIMITED"
    assert len(platform.requests) == 1
    # It proves nothing about an earlier attempt with the same token.
    platform.break_with(grpc.StatusCode.UNAVAILABLE, after_applying=True)
    platform.refuse(errors.CountersLimited("only 2 counters", retry_after_ms=100))
    with pytest.raises(OutcomeUnknown):
        await client("add", "title-42")


async def test_a_refusal_after_an_unknown_outcome_settles_nothing(
    client: Any, platform: Any
) -> None:
    platform.break_with(grpc.StatusCode.UNAVAILABLE, after_applying=True)
    platform.refuse(errors.NamespaceUnknown("no namespace 'plays'"))
    with pytest.raises(OutcomeUnknown) as caught:
        await client("add", "title-42")
    assert isinstance(caught.value.last_error, NamespaceUnknown)


async def test_a_clock_an_hour_behind_is_not_noticed(connect: Any, platform: Any) -> None:
    clock = ManualClock()
    server_time_ns = clock.now_ns() + HOUR_NS
    calls = connect(clock=clock)
    platform.break_with(grpc.StatusCode.UNAVAILABLE)
    platform.refuse(errors.TokenExpired("too late", server_time_ns=server_time_ns))
    result = await calls("add", "title-42", 4)
    assert platform.count("title-42") == 4
    assert result.token.generation_time_ns == server_time_ns
    first, second, third = platform.tokens()
    assert first == second != third
    # The correction holds for later calls.
    assert (await calls("add", "title-42")).token.generation_time_ns > server_time_ns


async def test_a_clock_an_hour_ahead_is_not_noticed(connect: Any, platform: Any) -> None:
    clock = ManualClock()
    server_time_ns = clock.now_ns() - HOUR_NS
    calls = connect(clock=clock)
    platform.refuse(errors.TokenFromFuture("too early", server_time_ns=server_time_ns))
    result = await calls("add", "title-42", 4)
    assert result.token.generation_time_ns == server_time_ns
    cleared = await calls("clear", "title-42")
    assert cleared.token.generation_time_ns > result.token.generation_time_ns


async def test_a_future_token_that_may_be_written_is_kept(connect: Any, platform: Any) -> None:
    clock = ManualClock()
    calls = connect(clock=clock)
    platform.break_with(grpc.StatusCode.UNAVAILABLE, after_applying=True)
    for _ in range(2):
        platform.refuse(errors.TokenFromFuture("", server_time_ns=clock.now_ns() - 6 * NS_PER_S))
    result = await calls("add", "title-42", 4)
    assert result.duplicate
    assert platform.count("title-42") == 4
    assert set(platform.tokens()) == {result.token.token}


async def test_the_callers_token_is_never_replaced(client: Any, platform: Any) -> None:
    token = await client("new_token")
    platform.refuse(errors.TokenExpired("too late", server_time_ns=time.time_ns()))
    with pytest.raises(TokenExpired):
        await client("add", "title-42", token=token)
    platform.refuse(errors.TokenFromFuture("too early", server_time_ns=time.time_ns()))
    assert (await client("add", "title-42", token=token)).token == token
    far = Token(token="far", generation_time_ns=time.time_ns() + HOUR_NS)
    platform.refuse(errors.TokenFromFuture("too early", server_time_ns=time.time_ns()))
    with pytest.raises(TokenFromFuture):
        await client("add", "title-42", token=far)
    assert set(platform.tokens()) == {token.token, "far"}


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (errors.NamespaceUnknown("m"), NamespaceUnknown, grpc.StatusCode.NOT_FOUND),
        (errors.TokenTooOld("m"), TokenTooOld, grpc.StatusCode.OUT_OF_RANGE),
        (errors.Unsupported("m"), Unsupported, grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
@pytest.mark.parametrize("method", ["add", "add_and_get", "clear", "get"])
async def test_errors_are_typed(
    client: Any, platform: Any, method: str, error: Any, kind: Any, code: grpc.StatusCode
) -> None:
    platform.refuse(error)
    with pytest.raises(kind) as caught:
        await client(method, "title-42")
    assert (caught.value.reason, caught.value.code) == (error.reason, code)
    assert caught.value.message == "m"
    assert len(platform.requests) == 1


async def test_an_invalid_request_names_its_field(client: Any, platform: Any) -> None:
    platform.refuse(errors.InvalidRequest("DELTA_ZERO", "delta", "the delta is 0"))
    with pytest.raises(InvalidRequest) as caught:
        await client("add", "title-42", 0)
    assert (caught.value.reason, caught.value.field) == ("DELTA_ZERO", "delta")


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED]
)
async def test_not_permitted(client: Any, platform: Any, code: grpc.StatusCode) -> None:
    platform.break_with(code)
    with pytest.raises(NotPermitted) as caught:
        await client("add", "title-42")
    assert caught.value.code is code


async def test_a_server_without_the_service_says_so(client: Any) -> None:
    with pytest.raises(Unsupported, match="is it a Tally server") as caught:
        await client("namespaces")
    assert caught.value.reason == "UNIMPLEMENTED"


async def test_reads_go_on_until_there_is_an_answer(client: Any, platform: Any) -> None:
    platform.refuse(errors.NotFreshEnough("not yet", retry_after_ms=10))
    platform.refuse(errors.Overloaded("queue full", retry_after_ms=10))
    platform.break_with(grpc.StatusCode.UNKNOWN)
    assert (await client("get", "title-42")).count == 0
    assert len(platform.requests) == 4


async def test_reads_say_why_there_was_no_answer(client: Any, platform: Any) -> None:
    platform.refuse(errors.NotFreshEnough("not yet", retry_after_ms=60_000))
    with pytest.raises(Unavailable, match="not yet") as caught:
        await client("get", "title-42")
    assert caught.value.reason == "NOT_FRESH_ENOUGH"


async def test_settle_waits_for_the_decision(client: Any, platform: Any) -> None:
    async def pending(*_: Any) -> pb.GetTokenStatusResponse:
        return pb.GetTokenStatusResponse(status=pb.TOKEN_STATUS_PENDING)

    token = await client("new_token")
    platform.script.append(pending)
    assert await client("token_status", "title-42", token) is TokenStatus.PENDING
    platform.script.extend([pending, pending])
    platform.break_with(grpc.StatusCode.UNAVAILABLE)
    platform.refuse(errors.TokenFromFuture("too early", server_time_ns=1))
    assert await client("settle", "title-42", token) is TokenStatus.APPLIED
    platform.status = pb.TOKEN_STATUS_NOT_APPLIED
    assert await client("settle", "title-42", token) is TokenStatus.NOT_APPLIED


async def test_settle_gives_up_at_its_deadline(connect: Any, platform: Any) -> None:
    calls = connect(random=None)
    platform.status = pb.TOKEN_STATUS_PENDING
    token = await calls("new_token")
    with pytest.raises(OutcomeUnknown, match="Call settle again") as caught:
        await calls("settle", "title-42", token, timeout_s=0.4)
    assert caught.value.token == token
    assert len(platform.requests) < 30
    platform.refuse(errors.TokenTooOld("forgotten"))
    with pytest.raises(TokenTooOld):
        await calls("settle", "title-42", token)


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan")])
async def test_a_deadline_in_the_past_is_a_mistake(client: Any, timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        await client("add", "title-42", timeout_s=timeout_s)


async def test_many_threads_and_tasks_share_a_client(client: Any, platform: Any) -> None:
    async def one(number: int) -> Token:
        return (await client("add", f"title-{number % 5}")).token

    tokens = await asyncio.gather(*(one(number) for number in range(200)))
    assert len({token.token for token in tokens}) == 200
    assert len({token.generation_time_ns for token in tokens}) == 200
    assert sum(platform.count(f"title-{number}") for number in range(5)) == 200


def test_strategies_are_the_words_of_the_contract() -> None:
    names = {name.removeprefix("STRATEGY_").lower() for name, _ in pb.Strategy.items()}
    assert names - {"unspecified"} == {strategy.value for strategy in Strategy}


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, Callable[..., Any]]:
        return {
            name: member
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    asynchronous, synchronous = methods(CounterClient), methods(SyncCounterClient)
    assert asynchronous.keys() == synchronous.keys()
    for name in asynchronous:
        ours, theirs = (inspect.signature(methods[name]) for methods in (asynchronous, synchronous))
        if get_origin(ours.return_annotation) is AsyncIterator:
            (each,) = get_args(ours.return_annotation)
            ours = ours.replace(return_annotation=Iterator[each])  # type: ignore[valid-type]
        assert ours == theirs, name
        for method in (asynchronous[name], synchronous[name]):
            assert "client" in (method.__doc__ or ""), f"{method.__qualname__} has no example"
