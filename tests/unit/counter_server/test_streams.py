"""Streams of adds: what they answer, when, how much they take in, and how they end."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from counter.clock import ManualClock
from counter.errors import StoreUnavailable
from counter.metrics import CALL_ERRORS, CALL_SECONDS, CALLS_IN_FLIGHT, ITEM_ERRORS
from counter.namespaces import Definition, Strategy
from counter.namespaces import Limits as NamespaceLimits
from counter.v1 import counter_service_pb2 as pb
from counter_server.commit import CommitLimits
from counter_server.limits import Limits
from counter_server.streams import ADDS_UNANSWERED_MAX, BATCHES_UNANSWERED_MAX
from tests.tampered import settle
from tests.unit.counter_server.parts import PLATFORM, Parts
from tests.unit.counter_server.served import Served, serve
from tests.unit.counter_server.streamed import Stream, columns, count, items, reasons

RPC = "StreamAddCount"


async def served_on(parts: Parts, *, age_s: float = 3_600, unread_s_max: float = 3_600) -> Served:
    limits = Limits(parts.rollup_store, monotonic_ns=parts.clock.now_ns)
    served = serve(parts, limits, age_s=age_s, unread_s_max=unread_s_max)
    await served.switch(
        Definition(name="plays", strategy=Strategy.ACCURATE),
        Definition(name="recent", strategy=Strategy.ROLLING_WINDOW, rolling_window_ms=60_000),
        Definition(name="hits", strategy=Strategy.BEST_EFFORT, dedupe_ttl_ms=60_000),
        Definition(name="shadowed", strategy=Strategy.BEST_EFFORT, shadow=Strategy.ACCURATE),
        Definition(
            name="limited",
            strategy=Strategy.ACCURATE,
            limits=NamespaceLimits(adds_per_s=2, batch_items=3, names="[a-z]+"),
        ),
        Definition(name="full", strategy=Strategy.ACCURATE, limits=NamespaceLimits(counters=1)),
    )
    return served


@pytest.fixture
async def served(parts: Parts) -> Served:
    return await served_on(parts)


@pytest.fixture(autouse=True)
async def nothing_leaks() -> AsyncIterator[None]:
    """No test leaves a task behind, nor an exception that nobody took."""
    before = asyncio.all_tasks()
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    await settle()
    gc.collect()
    assert asyncio.all_tasks() - before == {asyncio.current_task()}
    assert complaints == []


def calls(code: str) -> int:
    counts, _ = CALL_SECONDS.at(rpc=RPC, code=code).state
    return sum(counts)


# What is answered.


async def test_columns_are_added_and_answered_in_short(served: Served) -> None:
    stream = Stream(served)
    stream.send(columns(served, 1, "a", "b"), columns(served, 5, "a", delta=7))
    stream.half_close()
    answers = sorted(await stream.end(), key=lambda each: each.sequence_number)
    assert answers == [
        pb.StreamAddCountResponse(sequence_number=1, all_added=True),
        pb.StreamAddCountResponse(sequence_number=5, all_added=True),
    ]
    assert [await count(served, each) for each in ("a", "b")] == [8, 1]


async def test_items_are_answered_as_in_a_batch_call(served: Served) -> None:
    stream = Stream(served)
    batch = items(served, 1, "a", "")
    stream.send(batch, items(served, 2, "a", made=False))
    [told, made] = await stream.answers(2)
    same = pb.BatchAddCountRequest(namespace="plays", items=batch.items)
    assert list(told.outcomes) == list((await served.call("BatchAddCount", same)).outcomes)
    assert reasons(told) == ["OK", "NAME_EMPTY"]
    assert reasons(made) == ["OK"]
    token = made.outcomes[0].idempotency_token
    status = pb.GetTokenStatusRequest(namespace="plays", counter_name="a", idempotency_token=token)
    assert (await served.call("GetTokenStatus", status)).status == pb.TOKEN_STATUS_PENDING
    assert await count(served, "a") == 2
    stream.half_close()
    await stream.end()


async def test_a_bad_add_does_not_fail_the_others(served: Served) -> None:
    batch = columns(served, 1, "a", "", "a", "a", "a", "a", "b" * 257, "a")
    batch.columns.delta[2] = 0
    batch.columns.token[3] = ""
    batch.columns.generation_time_ns[4] += 60 * 10**9
    batch.columns.generation_time_ns[5] = -1
    batch.columns.delta[7] = -3
    stream = Stream(served)
    stream.send(batch)
    [answer] = await stream.answers(1)
    assert reasons(answer) == [
        "OK",
        "NAME_EMPTY",
        "DELTA_ZERO",
        "TOKEN_MALFORMED",
        "TOKEN_FROM_FUTURE",
        "TOKEN_MALFORMED",
        "NAME_TOO_LONG",
        "OK",
    ]
    assert answer.outcomes[4].HasField("server_time")
    assert await count(served, "a") == -2
    stream.half_close()
    await stream.end()


async def test_regions_are_looked_at(served: Served) -> None:
    batch = columns(served, 1, "a", "a", "a")
    batch.columns.region.extend(["", "test", "mars"])
    stream = Stream(served)
    stream.send(batch)
    stream.half_close()
    [answer] = await stream.end()
    assert reasons(answer) == ["OK", "OK", "WRONG_REGION"]


async def test_a_batch_that_is_sent_again_counts_once(served: Served) -> None:
    batch = columns(served, 1, "a", "b")
    for _ in range(2):  # the second stream knows nothing of the first
        stream = Stream(served)
        stream.send(batch)
        stream.half_close()
        assert [each.all_added for each in await stream.end()] == [True]
    assert await count(served, "a") == 1
    served.parts.clock.advance_ms(10_000)
    await served.parts.fold_through(served.parts.window - 3)
    served.parts.admission.observe(await served.parts.ledger.closed())
    fresh = columns(served, 2, "a")
    batch.columns.MergeFrom(fresh.columns)
    stream = Stream(served)
    stream.send(batch)
    stream.half_close()
    [answer] = await stream.end()
    assert reasons(answer) == ["duplicate", "duplicate", "OK"]
    assert await count(served, "a") == 2


@pytest.mark.parametrize("namespace", ["plays", "recent", "hits", "shadowed"])
async def test_every_strategy(served: Served, namespace: str) -> None:
    stream = Stream(served)
    stream.send(
        columns(served, 1, "a", "b", namespace=namespace),
        items(served, 2, "a", namespace=namespace),
    )
    stream.half_close()
    answers = {each.sequence_number: each for each in await stream.end()}
    assert answers[1].all_added
    assert reasons(answers[2]) == ["OK"]
    assert await count(served, "a", namespace) == 2


async def test_a_shadow_gets_what_a_stream_adds(served: Served) -> None:
    stream = Stream(served)
    stream.send(columns(served, 1, "a", "b", namespace="shadowed"))
    stream.half_close()
    await stream.end()
    assert sum(await served.parts.stored_events()) == 2


async def test_best_effort_tells_duplicates(served: Served) -> None:
    batch = columns(served, 1, "a", namespace="hits")
    again = columns(served, 2, "a", "b", namespace="hits")
    again.columns.token[0] = batch.columns.token[0]
    stream = Stream(served)
    stream.send(batch)
    await stream.answers(1)
    stream.send(again)
    stream.half_close()
    assert reasons((await stream.end())[1]) == ["duplicate", "OK"]
    assert await count(served, "a", "hits") == 1


# When it is answered.


async def test_answers_come_as_soon_as_they_are_known(served: Served) -> None:
    written = served.parts.script.hold("event_log.append")
    stream = Stream(served)
    stream.send(columns(served, 1, "a"), columns(served, 2, "a", namespace="hits"))
    await stream.answers(1)
    assert stream.answered == [2]
    written.set()
    await stream.answers(2)
    assert stream.answered == [2, 1]
    stream.half_close()
    await stream.end()


async def test_batches_in_flight_share_a_commit(served: Served) -> None:
    written = served.parts.script.hold("event_log.append")
    stream = Stream(served)
    stream.send(columns(served, 0, "a"))
    await settle()
    stream.send(*(columns(served, number, "a") for number in range(1, 20)))
    await settle()
    written.set()
    await stream.answers(20)
    assert served.parts.script.calls["event_log.append"] == 2
    stream.half_close()
    await stream.end()


@pytest.mark.parametrize(
    ("size", "read"),
    [(1, BATCHES_UNANSWERED_MAX), (9_000, 3), (10_000, 2), (ADDS_UNANSWERED_MAX // 4, 4)],
)
async def test_no_more_is_read_while_too_much_is_unanswered(
    served: Served, size: int, read: int
) -> None:
    written = served.parts.script.hold("event_log.append")
    stream = Stream(served)
    counters = ["a"] * size
    stream.send(*(columns(served, number, *counters) for number in range(read + 3)))
    await settle()
    assert stream.context.reads == read
    assert stream.answered == []
    written.set()
    stream.half_close()
    assert len(await stream.end()) == read + 3
    assert await count(served, "a") == size * (read + 3)


async def test_a_caller_that_does_not_read_cannot_send_for_ever(served: Served) -> None:
    stream = Stream(served)
    stream.context.may_write.clear()
    stream.send(*(columns(served, number, "a") for number in range(200)))
    await settle()
    assert stream.context.reads == BATCHES_UNANSWERED_MAX
    stream.context.may_write.set()
    stream.half_close()
    assert stream.answered == []
    assert len(await stream.end()) == 200


# What is refused, and the stream goes on.


async def refused(served: Served, batch: pb.StreamAddCountRequest) -> list[str]:
    """The reasons of a batch that is refused as a whole; the stream takes the next one."""
    stream = Stream(served)
    stream.send(batch)
    [answer] = await stream.answers(1)
    assert answer.sequence_number == batch.sequence_number
    served.parts.script.answers.clear()
    stream.send(columns(served, batch.sequence_number + 1, "other"))
    stream.half_close()
    assert (await stream.end())[1].all_added
    return reasons(answer)


@pytest.mark.parametrize("make", [columns, items])
async def test_refusals_by_the_namespace(served: Served, make: Any) -> None:
    assert await refused(served, make(served, 1, "a", "b", namespace="playz")) == [
        "NAMESPACE_UNKNOWN",
        "NAMESPACE_UNKNOWN",
    ]
    assert await refused(served, make(served, 1, "a", namespace="")) == ["NAME_EMPTY"]
    too_many = make(served, 1, "a", "b", "c", "d", namespace="limited")
    assert await refused(served, too_many) == ["BATCH_TOO_LARGE"] * 4
    assert await count(served, "a") == 0


async def test_limits_of_a_namespace(served: Served) -> None:
    stream = Stream(served)
    stream.send(columns(served, 1, "a", "B", namespace="limited"))
    [answer] = await stream.answers(1)
    assert reasons(answer) == ["OK", "NAME_NOT_ALLOWED"]
    stream.send(columns(served, 2, "a", "a", "a", namespace="limited"))  # makes a debt
    stream.send(columns(served, 3, "a", "a", namespace="limited"))
    stream.half_close()
    answers = {each.sequence_number: each for each in await stream.end()}
    assert answers[2].all_added
    assert reasons(answers[3]) == ["ADDS_LIMITED"] * 2
    assert answers[3].outcomes[0].HasField("retry_delay")
    assert await count(served, "a", "limited") == 4


async def test_a_namespace_that_is_full(served: Served) -> None:
    stream = Stream(served)
    stream.send(columns(served, 1, "a", namespace="full"))
    await stream.answers(1)
    await served.parts.fold_through(served.parts.window)
    await served.limits.count_counters()
    stream.send(columns(served, 2, "b", "a", namespace="full", age_ms=-1_000))
    stream.half_close()
    answer = (await stream.end())[1]
    assert reasons(answer) == ["COUNTERS_LIMITED", "OK"]
    assert answer.outcomes[0].HasField("retry_delay")


async def test_folds_that_lag(served: Served) -> None:
    served.parts.admission.observe_fold_lag(PLATFORM.log_retention_ns)
    stream = Stream(served)
    stream.send(columns(served, 1, "a", "b"), items(served, 2, "a"))
    for answer in await stream.answers(2):
        assert set(reasons(answer)) == {"FOLD_LAGGING"}
        assert answer.outcomes[0].HasField("retry_delay")
    served.parts.admission.observe_fold_lag(0)
    stream.send(columns(served, 3, "a"))
    stream.half_close()
    assert (await stream.end())[2].all_added
    assert await count(served, "a") == 1


async def test_a_full_buffer(parts: Parts) -> None:
    parts.commit = parts.group_commit(CommitLimits(events_waiting_max=2))
    served = await served_on(parts)
    assert await refused(served, columns(served, 1, "a", "b", "c")) == ["OVERLOADED"] * 3


async def test_a_store_that_is_down(served: Served) -> None:
    async def down(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the store does not answer")

    served.parts.script.answers["event_log.append"] = down
    before = calls("UNAVAILABLE")
    errors = CALL_ERRORS.at(rpc=RPC, reason="STORE_UNAVAILABLE").value
    failed_items = ITEM_ERRORS.at(reason="STORE_UNAVAILABLE").value
    assert await refused(served, columns(served, 1, "a", "b", "c")) == ["STORE_UNAVAILABLE"] * 3
    assert calls("UNAVAILABLE") == before + 1
    assert CALL_ERRORS.at(rpc=RPC, reason="STORE_UNAVAILABLE").value == errors + 1
    assert ITEM_ERRORS.at(reason="STORE_UNAVAILABLE").value == failed_items + 3


async def test_a_bug_fails_one_batch_and_is_logged_once(served: Served) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    served.parts.script.answers["event_log.append"] = broken
    before = calls("INTERNAL")
    with capture_logs() as logs:
        assert await refused(served, columns(served, 1, "a", "b")) == ["INTERNAL"] * 2
    failures = [each for each in logs if each.get("action") == "call_failed"]
    assert [(each["rpc"], each["log_level"]) for each in failures] == [(RPC, "error")]
    assert "a bug" in str(failures[0]["exc_info"])
    assert calls("INTERNAL") == before + 1


# What ends a stream.


def bad_batches(served: Served) -> Iterator[tuple[pb.StreamAddCountRequest, str, str]]:
    yield pb.StreamAddCountRequest(sequence_number=2, namespace="plays"), "BATCH_EMPTY", "items"
    batch = columns(served, 2)
    yield batch, "BATCH_EMPTY", "columns"
    batch = columns(served, 2, "a")
    batch.items.add(counter_name="a", delta=1)
    yield batch, "BATCH_AMBIGUOUS", "columns"
    for column, entry in (("delta", 1), ("token", "t"), ("generation_time_ns", 1)):
        batch = columns(served, 2, "a")
        getattr(batch.columns, column).append(entry)
        yield batch, "COLUMNS_UNEVEN", f"columns.{column}"
    batch = columns(served, 2, "a", "b")
    batch.columns.region.append("")
    yield batch, "COLUMNS_UNEVEN", "columns.region"
    batch = columns(served, 2, "a", "b")
    del batch.columns.counter_name[:]
    yield batch, "COLUMNS_UNEVEN", "columns.delta"
    yield columns(served, 1, "a"), "SEQUENCE_NOT_RISING", "sequence_number"
    yield columns(served, -1, "a"), "SEQUENCE_NOT_RISING", "sequence_number"
    yield items(served, 2, *["a"] * 10_001), "BATCH_TOO_LARGE", "items"
    yield columns(served, 2, *["a"] * 10_001), "BATCH_TOO_LARGE", "columns"


async def test_a_batch_that_cannot_be_answered_ends_the_stream_after_the_others(
    served: Served,
) -> None:
    for bad, reason, field in bad_batches(served):
        before, errors = calls("INVALID_ARGUMENT"), CALL_ERRORS.at(rpc=RPC, reason=reason).value
        written = served.parts.script.hold("event_log.append")
        stream = Stream(served)
        stream.send(columns(served, 1, "kept"), bad, columns(served, 3, "never"))
        assert await stream.is_open()
        written.set()
        aborted = await stream.aborted()
        assert (aborted.code, aborted.reason) == ("INVALID_ARGUMENT", reason)
        assert (aborted.field, bool(aborted.message)) == (field, True)
        assert stream.answered == [1]
        assert calls("INVALID_ARGUMENT") == before + 1
        assert CALL_ERRORS.at(rpc=RPC, reason=reason).value == errors + 1
    assert await count(served, "kept") == 1  # the same token each time
    assert await count(served, "a") == 0
    assert await count(served, "never") == 0


async def test_half_close_waits_for_what_is_under_way(served: Served) -> None:
    written = served.parts.script.hold("event_log.append")
    stream = Stream(served)
    stream.send(columns(served, 1, "a"))
    stream.half_close()
    assert await stream.is_open()
    written.set()
    assert [each.all_added for each in await stream.end()] == [True]


async def test_a_stream_without_batches_ends_with_ok(served: Served) -> None:
    stream = Stream(served)
    stream.half_close()
    assert await stream.end() == []


async def test_a_server_that_stops_answers_what_it_read(served: Served) -> None:
    written = served.parts.script.hold("event_log.append")
    stream, idle = Stream(served), Stream(served)
    stream.send(columns(served, 1, "a"), columns(served, 2, "a"))
    assert await stream.is_open()
    served.stopping.set()
    assert await idle.end() == []
    assert await stream.is_open()
    stream.send(columns(served, 3, "never"))
    assert await stream.is_open()
    written.set()
    await stream.end()
    assert stream.answered == [1, 2]
    assert await count(served, "a") == 2
    assert await count(served, "never") == 0


async def test_a_server_that_stops_while_the_stream_is_full(served: Served) -> None:
    written = served.parts.script.hold("event_log.append")
    stream = Stream(served)
    stream.send(*(columns(served, number, "a") for number in range(100)))
    await settle()
    served.stopping.set()
    assert await stream.is_open()
    written.set()
    assert len(await stream.end()) == BATCHES_UNANSWERED_MAX


async def test_an_old_stream_ends_once_all_is_answered(parts: Parts) -> None:
    served = await served_on(parts, age_s=0.001)
    written = parts.script.hold("event_log.append")
    idle = Stream(served)
    stream = Stream(served)
    stream.send(columns(served, 1, "a"))
    await settle()
    assert await idle.end() == []  # so the other one is old too
    assert await stream.is_open()
    written.set()
    assert [each.all_added for each in await stream.end()] == [True]


async def test_what_is_being_written_when_its_caller_goes_away_is_written(served: Served) -> None:
    before = calls("CANCELLED")
    written = served.parts.script.hold("event_log.append")
    stream = Stream(served)
    stream.send(columns(served, 1, "a"), columns(served, 2, "", "b"))
    assert await stream.is_open()
    assert CALLS_IN_FLIGHT.at(rpc=RPC).value == 2
    stream.call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream.call
    await settle()
    assert CALLS_IN_FLIGHT.at(rpc=RPC).value == 0
    assert calls("CANCELLED") == before + 2
    written.set()
    await settle()
    assert stream.answered == []
    assert await count(served, "a") == 1
    assert await count(served, "b") == 1


async def test_a_caller_that_went_away_after_a_bad_batch(served: Served) -> None:
    written = served.parts.script.hold("event_log.append")
    stream = Stream(served)
    stream.send(columns(served, 1, "a"), columns(served, 1, "a"))
    assert await stream.is_open()
    stream.call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream.call
    written.set()


async def test_nothing_waits_for_a_fold_when_its_caller_has_gone(
    served: Served, clock: ManualClock
) -> None:
    late = columns(served, 1, "a")
    clock.advance_ms(10_000)
    await served.parts.close(served.parts.window - 3)
    served.parts.admission.observe(await served.parts.ledger.closed())
    stream = Stream(served)
    stream.send(late)
    assert await stream.is_open()
    assert CALLS_IN_FLIGHT.at(rpc=RPC).value == 1
    stream.call.cancel()
    await settle()
    assert CALLS_IN_FLIGHT.at(rpc=RPC).value == 0


async def test_a_caller_that_never_reads_is_cut_off(parts: Parts) -> None:
    served = await served_on(parts, unread_s_max=0.01)
    before = calls("UNAVAILABLE")
    stream = Stream(served)
    stream.context.may_write.clear()
    stream.send(*(columns(served, number, "a") for number in range(200)))
    aborted = await stream.aborted()
    assert (aborted.code, aborted.reason) == ("UNAVAILABLE", "ANSWERS_UNREAD")
    assert stream.context.reads == BATCHES_UNANSWERED_MAX
    assert calls("UNAVAILABLE") == before + 1
    assert await count(served, "a") == BATCHES_UNANSWERED_MAX  # written, and to be sent again


async def test_a_slow_store_is_not_taken_for_a_caller_that_does_not_read(parts: Parts) -> None:
    served = await served_on(parts, age_s=0.001, unread_s_max=0.001)
    written = parts.script.hold("event_log.append")
    stream, unread = Stream(served), Stream(served)
    stream.send(columns(served, 1, "a"))
    unread.context.may_write.clear()
    unread.send(columns(served, 1, "a", namespace="hits"))
    await unread.aborted()  # so much time has passed
    assert await stream.is_open()
    written.set()
    assert [each.all_added for each in await stream.end()] == [True]
