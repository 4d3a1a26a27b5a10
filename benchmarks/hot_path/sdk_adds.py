"""The SDK's side of an add, by stage."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import grpc

from benchmarks.hot_path.stages import ROUNDS, Stages, least_us
from benchmarks.peers.limits import parsing
from benchmarks.peers.tally_drivers import TASKS, client_of
from benchmarks.requests import counter_name
from benchmarks.servers import NAMESPACE
from clients.adds import Adds
from clients.batch import BatchSizes
from clients.connection import Connection
from clients.entries import Batch, Entry, Lane
from clients.settling import Settling
from clients.tokens import ClientTokens
from counter.clock import SystemClock
from counter.v1 import counter_service_pb2 as pb

_BATCH = 1_000
_ADDS_PER_TASK = 10
_TIMEOUT_S = 30.0
_ROUNDS = 25

Add = Callable[[str], Awaitable[object]]


async def sdk_stages(home: Path) -> Stages:
    """The whole is against a handler that only parses; without the transport it is against a
    stream that answers at once."""
    names = [counter_name(number) for number in range(TASKS)]
    connection = _Connection()
    adds = Adds(connection, BatchSizes())
    lane = adds.lane(NAMESPACE)
    parts = {
        "token": least_us(lambda: connection.tokens.next_many(_BATCH), _BATCH),
    }
    entry_us = await _entries_us(adds, lane, names)
    parts["entry_and_future"] = entry_us
    entries = [_entry(connection, name) for name in names[:_BATCH]]
    parts["columns"] = least_us(lambda: _request(lane, entries).SerializeToString(), _BATCH)
    parts["settling"] = _settling_us(connection, lane, names)
    alone_us = await _tasks_us(lambda name: adds.add(lane, name, 1, None, _TIMEOUT_S), names)
    parts["tasks_and_wake_ups"] = alone_us - sum(parts.values())
    await connection.close()
    await adds.end()
    async with parsing(home) as (address, _), client_of(address) as client:
        whole_us = await _tasks_us(client.add, names)
    parts["grpc"] = whole_us - alone_us
    return Stages(whole_us=whole_us, parts_us=parts)


class _Connection(Connection):
    """Its stream answers at once that all is added."""

    def __init__(self) -> None:
        super().__init__("nowhere", credentials=None, clock=SystemClock(), random=Random(0))
        self._stream = _Stream()

    @property
    def counters(self) -> Any:
        return self

    def StreamAddCount(self) -> "_Stream":
        return self._stream

    async def close(self) -> None:
        await super().close()
        self._stream.end()


class _Stream:
    def __init__(self) -> None:
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, request: pb.StreamAddCountRequest) -> None:
        request.SerializeToString()
        self._answers.put_nowait(
            pb.StreamAddCountResponse(sequence_number=request.sequence_number, all_added=True)
        )

    async def read(self) -> Any:
        return await self._answers.get()

    def end(self) -> None:
        self._answers.put_nowait(grpc.aio.EOF)  # type: ignore[attr-defined]  # not in the stubs

    def cancel(self) -> None:
        return


async def _entries_us(adds: Adds, lane: Lane, names: list[str]) -> float:
    """From the call to the entry in its lane, with its token and the future."""
    least_s = float("inf")
    for _ in range(ROUNDS):
        began_s = time.process_time()
        waiters = [adds.add(lane, name, 1, None, _TIMEOUT_S) for name in names]
        least_s = min(least_s, time.process_time() - began_s)
        await asyncio.gather(*waiters)
    return least_s / len(names) * 1_000_000


async def _tasks_us(add: Add, names: list[str]) -> float:
    """Tasks that add one after the other, as a service would."""

    async def task(name: str) -> None:
        for _ in range(_ADDS_PER_TASK):
            await add(name)

    least_s = float("inf")
    for _ in range(_ROUNDS):
        began_s = time.process_time()
        await asyncio.gather(*map(task, names))
        least_s = min(least_s, time.process_time() - began_s)
    return least_s / (len(names) * _ADDS_PER_TASK) * 1_000_000


def _entry(connection: Connection, name: str) -> Entry:
    waiter = asyncio.get_running_loop().create_future()
    text, time_ns, _ = connection.tokens.next()
    end_s = asyncio.get_running_loop().time() + _TIMEOUT_S
    return (name, 1, text, time_ns, "", end_s, waiter, True, None)


def _batch(lane: Lane, entries: list[Entry]) -> Batch:
    now_s = asyncio.get_running_loop().time()
    return Batch(lane, entries, now_s=now_s, tokens=ClientTokens(SystemClock()))


def _request(lane: Lane, entries: list[Entry]) -> pb.StreamAddCountRequest:
    return _batch(lane, entries).request(1)


def _settling_us(connection: Connection, lane: Lane, names: list[str]) -> float:
    """Everybody's result into his future. Nobody waits here: wake-ups are the tasks' own."""
    settling = Settling(
        connection,
        BatchSizes(),
        again=lambda *_: None,
        released=lambda _: None,
    )
    answer = pb.StreamAddCountResponse(sequence_number=1, all_added=True)
    least_s = float("inf")
    for _ in range(ROUNDS):
        batch = _batch(lane, [_entry(connection, name) for name in names])
        began_s = time.process_time()
        settling.answered(batch, answer)
        least_s = min(least_s, time.process_time() - began_s)
    return least_s / len(names) * 1_000_000
