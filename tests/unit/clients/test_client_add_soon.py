"""Adds that nobody waits for: settled like any other, and never lost without a word."""

import asyncio
import logging
import subprocess
import sys
from typing import Any

import grpc
import pytest

from clients import (
    AddOutcome,
    ClientClosed,
    CounterClient,
    InvalidRequest,
    Overloaded,
    SyncCounterClient,
    Unavailable,
)
from counter import errors

DEADLINE_S = 30


async def test_it_returns_at_once_and_counts(client: Any, platform: Any) -> None:
    tokens = [await client("add_soon", "title-1", 2) for _ in range(100)]
    await client("flush")
    assert platform.count("title-1") == 200
    assert set(platform.tokens()) == {token.token for token in tokens}


async def test_the_callers_token_is_used(client: Any, platform: Any) -> None:
    token = await client("new_token")
    assert await client("add_soon", "title-1", token=token) == token
    await client("add", "title-1", token=token)
    await client("flush")
    assert platform.count("title-1") == 1


async def test_lost_replies_are_sent_again(client: Any, platform: Any) -> None:
    platform.break_with(grpc.StatusCode.UNAVAILABLE, after_applying=True)
    await client("add_soon", "title-1")
    await client("flush")
    assert platform.streams == 2
    assert platform.count("title-1") == 1


async def test_closing_waits_for_them(connect: Any, platform: Any) -> None:
    client = connect()
    answers = asyncio.Event()
    platform.hold(answers)
    await client("add_soon", "title-1")
    await platform.seen(1)
    closing = asyncio.create_task(client("close"))
    await asyncio.wait([closing], timeout=0.1)
    assert not closing.done()
    answers.set()
    await closing
    assert platform.count("title-1") == 1
    with pytest.raises(ClientClosed):
        await client("add_soon", "title-1")


async def test_without_room_it_refuses_at_once(connect: Any, platform: Any) -> None:
    client = connect(unsettled_max=3)
    answers = asyncio.Event()
    platform.hold(answers)
    platform.hold(answers)
    for _ in range(3):
        await client("add_soon", "title-1")
    await platform.seen(1)
    with pytest.raises(Overloaded) as caught:
        await client("add_soon", "title-1")
    assert caught.value.reason == "CLIENT_FULL"
    answers.set()
    await client("flush")
    await client("add_soon", "title-1")  # there is room again
    await client("flush")
    assert platform.count("title-1") == 4


async def test_mistakes_are_told_at_once(client: Any, platform: Any) -> None:
    with pytest.raises(InvalidRequest):
        await client("add_soon", "title-1", 2**63)
    with pytest.raises(ValueError, match="timeout_s"):
        await client("add_soon", "title-1", timeout_s=0)
    await client("flush")
    assert platform.requests == []


async def test_a_failure_is_told_to_the_callback(connect: Any, platform: Any) -> None:
    failed: list[AddOutcome] = []
    client = connect(on_add_failed=failed.append)
    platform.refusals["bad"] = [errors.InvalidRequest("DELTA_ZERO", "delta", "delta is 0")]
    token = await client("add_soon", "bad")
    await client("add_soon", "good")
    await client("flush")
    (outcome,) = failed
    assert (outcome.counter, outcome.token) == ("bad", token)
    assert isinstance(outcome.error, InvalidRequest)
    assert platform.count("good") == 1


async def test_a_callback_that_raises_ends_nothing(connect: Any, platform: Any) -> None:
    def callback(_: AddOutcome) -> None:
        raise RuntimeError("the application's own mistake")

    client = connect(on_add_failed=callback)
    platform.refusals["bad"] = [errors.InvalidRequest("DELTA_ZERO", "delta", "delta is 0")]
    await client("add_soon", "bad")
    await client("add_soon", "good")
    await client("flush")
    assert platform.count("good") == 1


async def test_many_failures_are_one_line_in_the_log(
    client: Any, platform: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = errors.InvalidRequest("DELTA_ZERO", "delta", "delta is 0")
    platform.refusals["bad"] = [refusal] * 200
    with caplog.at_level(logging.WARNING, logger="clients"):
        for _ in range(200):
            await client("add_soon", "bad")
        await client("flush")
        await client("close")
    lines = [record for record in caplog.records if "add_soon failed" in record.getMessage()]
    assert 1 <= len(lines) <= 3
    assert sum(record.args[0] for record in lines) == 200  # type: ignore[index, misc]


async def test_a_flush_that_takes_too_long_says_so(client: Any, platform: Any) -> None:
    answers = asyncio.Event()
    platform.hold(answers)
    await client("add_soon", "title-1")
    with pytest.raises(Unavailable) as caught:
        await client("flush", timeout_s=0.05)
    assert caught.value.reason == "NOT_SETTLED"
    answers.set()
    await client("flush")
    assert platform.count("title-1") == 1


async def test_flush_does_not_wait_for_what_came_later(target: str, platform: Any) -> None:
    async with CounterClient(target, namespace="plays") as client:
        first, second = asyncio.Event(), asyncio.Event()
        platform.hold(first)
        platform.hold(second)
        client.add_soon("title-1")
        await platform.seen(1)
        flushing = asyncio.create_task(client.flush())
        await asyncio.sleep(0)
        client.add_soon("title-2")
        await platform.seen(2)
        first.set()
        await flushing
        assert platform.count("title-2") == 0
        second.set()


# The end of the program.


async def _ended(program: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


async def test_the_synchronous_client_flushes_at_exit(target: str, platform: Any) -> None:
    ended = await _ended(
        "from clients import SyncCounterClient\n"
        f"client = SyncCounterClient({target!r}, namespace='plays')\n"
        "for _ in range(5000): client.add_soon('title-1')\n"
        "del client\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert platform.count("title-1") == 5_000


async def test_an_asyncio_program_that_ends_too_early_says_so(target: str, platform: Any) -> None:
    platform.hang()
    ended = await _ended(
        "import asyncio, logging\n"
        "from clients import CounterClient\n"
        "logging.basicConfig()\n"
        "async def main():\n"
        f"    client = CounterClient({target!r}, namespace='plays')\n"
        "    for _ in range(3): client.add_soon('title-1')\n"
        "asyncio.run(main())\n"
    )
    assert ended.returncode == 0
    assert "3 adds made with add_soon were not settled when the program ended" in ended.stderr


def test_both_clients_take_the_same(target: str) -> None:
    assert SyncCounterClient.add_soon.__annotations__ == CounterClient.add_soon.__annotations__
