"""Adds that are made at once travel together, and each caller gets the outcome of its own."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from clients import CounterClient, InvalidRequest, OutcomeUnknown, Overloaded, SyncCounterClient
from clients.adds import FREE_BATCHES, IN_FLIGHT_MAX
from clients.batch import ITEMS_PER_CALL
from counter import errors
from counter.v1 import counter_service_pb2 as pb

DEADLINE_S = 20


@pytest.fixture
async def alone(target: str) -> Any:
    """The asyncio client by itself, for what depends on turns of its event loop."""
    async with CounterClient(target, namespace="plays", timeout_s=10.0) as client:
        yield client


def sizes(platform: Any) -> list[int]:
    return [len(batch.columns.counter_name) for batch in platform.batches]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens on the server
            await asyncio.sleep(0.005)


async def test_adds_of_one_turn_are_few_batches(alone: Any, platform: Any) -> None:
    results = await asyncio.gather(*(alone.add(f"title-{n % 50}", n) for n in range(5_000)))
    assert sum(sizes(platform)) == 5_000
    assert len(platform.batches) <= 5_000 / ITEMS_PER_CALL + FREE_BATCHES
    assert platform.streams == 1
    assert len({result.token for result in results}) == 5_000
    assert platform.count("title-7") == sum(n for n in range(5_000) if n % 50 == 7)


async def test_a_lone_add_waits_for_nobody(alone: Any, platform: Any) -> None:
    await alone.add("title-1")
    platform.hang()
    slow = asyncio.create_task(alone.add("title-2"))
    await platform.seen(2)
    await alone.add("title-3")  # another batch, while one is in flight
    assert sizes(platform) == [1, 1, 1]
    slow.cancel()


async def test_batches_grow_while_others_are_in_flight(alone: Any, platform: Any) -> None:
    answers = asyncio.Event()
    for _ in range(FREE_BATCHES):
        platform.hold(answers)
    first = [asyncio.create_task(alone.add("title-1")) for _ in range(1)]
    await platform.seen(1)
    first.append(asyncio.create_task(alone.add("title-1")))
    await platform.seen(2)
    later = []
    for _ in range(100):  # a hundred turns of the loop
        later.append(asyncio.create_task(alone.add("title-1")))
        await asyncio.sleep(0)
    assert sizes(platform) == [1, 1]
    answers.set()
    await asyncio.gather(*first, *later)
    assert sizes(platform) == [1, 1, 100]


async def test_only_so_many_full_batches_are_in_flight(alone: Any, platform: Any) -> None:
    await alone.add("title-1")
    answers = asyncio.Event()
    for _ in range(IN_FLIGHT_MAX):  # a further one would be answered at once
        platform.hold(answers)
    adding = asyncio.gather(*(alone.add("title-1") for _ in range(12 * ITEMS_PER_CALL)))
    await until(lambda: len(platform.batches) >= 1 + IN_FLIGHT_MAX)
    await alone.get("title-1")  # a round trip: what was sent before it has arrived
    assert len(platform.batches) == 1 + IN_FLIGHT_MAX
    answers.set()
    await adding
    assert platform.count("title-1") == 1 + 12 * ITEMS_PER_CALL


async def test_each_add_has_its_own_outcome(client: Any, platform: Any) -> None:
    platform.refusals["bad"] = [errors.InvalidRequest("DELTA_ZERO", "delta", "delta is 0")]
    platform.refusals["busy"] = [errors.Overloaded("later", retry_after_ms=20)]
    good, bad, busy = await asyncio.gather(
        client("add", "good"), client("add", "bad"), client("add", "busy"), return_exceptions=True
    )
    assert not good.duplicate
    assert isinstance(bad, InvalidRequest)
    assert (bad.reason, bad.field) == ("DELTA_ZERO", "delta")
    assert not busy.duplicate
    assert (platform.count("good"), platform.count("bad"), platform.count("busy")) == (1, 0, 1)


async def test_a_stream_that_breaks_is_sent_again_with_the_same_tokens(
    alone: Any, platform: Any
) -> None:
    platform.break_with(grpc.StatusCode.UNAVAILABLE, after_applying=True)
    results = await asyncio.gather(*(alone.add(f"title-{n}") for n in range(500)))
    assert platform.streams == 2
    assert all(result.duplicate for result in results)
    assert set(platform.tokens()) == {result.token.token for result in results}
    assert len(platform.applied) == 500


async def test_a_stream_that_the_server_ends_is_opened_again(alone: Any, platform: Any) -> None:
    for number in range(5):
        await alone.add("title-1")
        platform.end_streams()
        await until(lambda number=number: platform.streams_ended == number + 1)
    await asyncio.gather(*(alone.add("title-1") for _ in range(10)))
    assert platform.streams == 6
    assert platform.count("title-1") == 15


async def test_a_batch_too_large_for_the_namespace_is_halved(alone: Any, platform: Any) -> None:
    platform.batch_items_max = 100
    await asyncio.gather(*(alone.add("title-1") for _ in range(1_000)))
    assert platform.count("title-1") == 1_000
    platform.batches.clear()
    await asyncio.gather(*(alone.add("title-1") for _ in range(1_000)))
    assert max(sizes(platform)) <= 100  # it is remembered
    values = await asyncio.gather(*(alone.get(f"title-{n}") for n in range(250)))
    assert values[1].count == 2_000


async def test_a_cancelled_add_that_was_not_sent_is_not_sent(alone: Any, platform: Any) -> None:
    answers = asyncio.Event()
    held = []
    for number in range(FREE_BATCHES):
        platform.hold(answers)
        held.append(asyncio.create_task(alone.add("held")))
        await platform.seen(number + 1)
    stays = asyncio.create_task(alone.add("stays"))
    goes = asyncio.create_task(alone.add("goes"))
    await asyncio.sleep(0)
    goes.cancel()
    with pytest.raises(asyncio.CancelledError):
        await goes
    answers.set()
    await asyncio.gather(*held, stays)
    assert platform.count("stays") == 1
    assert platform.count("goes") == 0


async def test_a_short_deadline_ends_nobody_elses_add(alone: Any, platform: Any) -> None:
    platform.hang(after_applying=True)
    short, long = await asyncio.gather(
        alone.add("title-1", timeout_s=0.2), alone.add("title-2"), return_exceptions=True
    )
    # The attempt ended with the shorter deadline, and one of them has time for another one.
    assert isinstance(short, OutcomeUnknown)
    assert long.duplicate
    assert platform.count("title-2") == 1


async def test_adds_beyond_the_limit_wait_for_room(connect: Any, platform: Any) -> None:
    client = connect(unsettled_max=2)
    answers = asyncio.Event()
    for _ in range(2):
        platform.hold(answers)
    adding = [asyncio.create_task(client("add", "title-1")) for _ in range(5)]
    await platform.seen(2)
    with pytest.raises(Overloaded) as caught:
        await client("add", "title-2", timeout_s=0.2)
    assert caught.value.reason == "CLIENT_FULL"
    assert "unsettled_max" in caught.value.message
    answers.set()
    await asyncio.gather(*adding)
    assert platform.count("title-1") == 5
    assert platform.count("title-2") == 0


async def test_names_and_deltas_that_cannot_travel_fail_alone(client: Any, platform: Any) -> None:
    good, long_name, half, large, too_small = await asyncio.gather(
        client("add", "good"),
        client("add", "x" * 2_000_000),
        client("add", "\ud800"),
        client("add", "title-1", 2**63),
        client("add", "title-1", -(2**63) - 1),
        return_exceptions=True,
    )
    assert not isinstance(good, Exception)
    assert [each.reason for each in (long_name, half, large, too_small)] == [
        "NAME_TOO_LONG",
        "NAME_MALFORMED",
        "DELTA_TOO_LARGE",
        "DELTA_TOO_LARGE",
    ]
    assert len(platform.applied) == 1


async def test_threads_share_batches(target: str, platform: Any) -> None:
    await asyncio.to_thread(_add_from_threads, target)
    assert platform.count("title-1") == 400
    assert platform.streams == 1
    assert len(platform.batches) < 400


def _add_from_threads(target: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with (
        SyncCounterClient(target, namespace="plays") as client,
        ThreadPoolExecutor(max_workers=40) as pool,
    ):
        list(pool.map(lambda _: client.add("title-1"), range(400)))


# Reads.


async def test_reads_of_one_turn_are_one_call(alone: Any, platform: Any) -> None:
    await asyncio.gather(*(alone.add(f"title-{n}", n + 1) for n in range(100)))
    platform.requests.clear()
    values = await asyncio.gather(*(alone.get(f"title-{n % 100}") for n in range(300)))
    assert [value.count for value in values] == [n % 100 + 1 for n in range(300)]
    (request,) = platform.requests
    assert isinstance(request, pb.BatchGetCountRequest)
    assert len(request.counter_name) == 100  # a counter that several ask for is asked for once


async def test_a_lone_read_is_a_call_of_its_own(alone: Any, platform: Any) -> None:
    await alone.get("title-1")
    assert isinstance(platform.requests[0], pb.GetCountRequest)


async def test_reads_with_other_wishes_are_other_calls(alone: Any, platform: Any) -> None:
    await asyncio.gather(
        alone.get("title-1"),
        alone.get("title-2"),
        alone.get("title-1", at_least=5),
        alone.in_namespace("likes").get("title-1"),
    )
    assert sorted(type(request).__name__ for request in platform.requests) == [
        "BatchGetCountRequest",
        "GetCountRequest",
        "GetCountRequest",
    ]


async def test_a_bad_name_fails_its_own_read_only(alone: Any, platform: Any) -> None:
    async def refuse_second(_: Any, request: Any, __: Any, ___: Any) -> Any:
        assert request.counter_name[1] == ""
        platform.refuse_with(
            errors.InvalidRequest("NAME_EMPTY", "counter_name[1]", "counter_name[1] is empty")
        )

    platform.script.append(refuse_second)
    first, bad, third = await asyncio.gather(
        alone.get("title-1"), alone.get(""), alone.get("title-3"), return_exceptions=True
    )
    assert (first.count, third.count) == (0, 0)
    assert isinstance(bad, InvalidRequest)
    assert (bad.reason, bad.field) == ("NAME_EMPTY", "counter_name")
    assert bad.message == "counter_name is empty"


async def test_a_cancelled_read_ends_nobody_elses(alone: Any, platform: Any) -> None:
    answers = asyncio.Event()
    platform.hold(answers)
    stays = asyncio.create_task(alone.get("title-1"))
    goes = asyncio.create_task(alone.get("title-1"))
    await platform.seen(1)
    goes.cancel()
    answers.set()
    assert (await stays).count == 0
    with pytest.raises(asyncio.CancelledError):
        await goes
