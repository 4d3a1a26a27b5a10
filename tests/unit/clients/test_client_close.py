"""Closing: nothing hangs, nothing leaks, and what was under way ends with what is known."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from clients import Add, ClientClosed, CounterClient, OutcomeUnknown, SyncCounterClient
from counter import errors

DEADLINE_S = 20.0


async def test_a_closed_client_says_so(client: Any) -> None:
    await client("add", "title-42")
    await client("close")
    await client("close")
    for method, argument in [
        ("add", "title-42"),
        ("get", "title-42"),
        ("batch_add", [Add("title-42")]),
        ("batch_get", ["title-42"]),
    ]:
        with pytest.raises(ClientClosed):
            await client(method, argument)


async def test_a_client_that_was_never_used_closes(connect: Any) -> None:
    await connect()("close")


async def test_calls_under_way_end_with_what_is_known(client: Any, platform: Any) -> None:
    platform.hang(after_applying=True)
    adding = asyncio.create_task(client("add", "title-42"))
    await platform.seen(1)
    platform.hang()
    reading = asyncio.create_task(client("get", "title-42"))
    await platform.seen(2)
    # This one waits between two attempts.
    platform.refuse(errors.StoreUnavailable("store down", retry_after_ms=5_000))
    waiting = asyncio.create_task(client("batch_add", [Add("title-42")]))
    await platform.seen(3)
    async with asyncio.timeout(DEADLINE_S):
        await client("close")
        with pytest.raises(OutcomeUnknown):
            await adding
        with pytest.raises(ClientClosed):
            await reading
        (outcome,) = await waiting
    assert isinstance(outcome.error, OutcomeUnknown)


async def test_cancelling_the_caller_cancels_the_call(target: str, platform: Any) -> None:
    platform.hang()
    async with CounterClient(target, namespace="plays") as client:
        adding = asyncio.create_task(client.add("title-42"))
        await platform.seen(1)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding


async def test_the_synchronous_client_leaves_no_thread(target: str) -> None:
    before = set(threading.enumerate())

    def use() -> None:
        with SyncCounterClient(target, namespace="plays") as client:
            client.add("title-42")
            started.update(set(threading.enumerate()) - before)

    started: set[threading.Thread] = set()
    await asyncio.to_thread(use)
    mine = [thread for thread in started if thread.name == "tally-client"]
    assert len(mine) == 1
    assert not mine[0].is_alive()


async def test_a_script_that_forgets_to_close_ends_quietly(target: str) -> None:
    script = (
        "from clients import SyncCounterClient\n"
        f"client = SyncCounterClient({target!r}, namespace='plays')\n"
        "print(client.add_and_get('title-42', 7).value.count)\n"
    )
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "7\n", "")
