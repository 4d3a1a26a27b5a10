"""Single adds through what users would pick instead, as operations of an open loop."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from benchmarks.open_loop import Subject
from benchmarks.peers.cassandra_counters import cassandra_counters
from benchmarks.peers.checks import check_counts
from benchmarks.peers.jetstream import jetstream
from benchmarks.peers.loops import OneByOne, Taken
from benchmarks.peers.postgres import postgres
from benchmarks.peers.redis_lua import redis_lua
from benchmarks.peers.system import Driver
from benchmarks.programs import Fleet
from benchmarks.workloads import ZIPF, Stream

Opened = AbstractAsyncContextManager[Subject]


def peers_of(home: Path) -> list[Opened]:
    """Those that need no Cassandra; each is started when it is entered."""
    return [
        _single_adds(redis_lua(home / "everysec", fsync="everysec")),
        _single_adds(redis_lua(home / "always", fsync="always")),
        _single_adds(postgres(home / "postgres")),
        _single_adds(jetstream(home / "nats")),
    ]


@asynccontextmanager
async def native_counters(fleet: Fleet) -> AsyncIterator[Subject]:
    opened = cassandra_counters(fleet.cluster, fleet.home, commitlog_sync="batch")
    async with opened as (drivers, _), _checked(drivers) as subject:
        yield subject


@asynccontextmanager
async def _single_adds(opened: AbstractAsyncContextManager[list[Driver]]) -> AsyncIterator[Subject]:
    async with opened as drivers, _checked(drivers) as subject:
        yield subject


@asynccontextmanager
async def _checked(drivers: list[Driver]) -> AsyncIterator[Subject]:
    """The way in which each add is awaited; its counts are looked at in the end."""
    driver = next(each for each in drivers if isinstance(each, OneByOne))
    stream = Stream(ZIPF)
    perform = await driver.performer(stream)
    taken = Taken(stream)

    async def add() -> None:
        await perform(*next(taken.operations))

    yield Subject(name=driver.name, operation=add, in_flight=driver.tasks)
    taken.performed()
    await check_counts(driver.peer, [stream])
