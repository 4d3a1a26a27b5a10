"""The stores that the state machine runs on, each to be opened again as after a restart."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from counter.clock import ManualClock
from counter.settings import Platform
from tests.stateful.installation import OpenStores
from tests.stores import Stores, cassandra_of, memory, sqlite

Opened = tuple[Platform, OpenStores]


def _platform(region: str) -> Platform:
    """Windows are long enough for nothing to happen by itself while a test takes its time."""
    return Platform(
        region=region,
        window_ms=10_000,
        shards=2,
        lanes=2,
        accept_limit_ms=20_000,
        max_clock_skew_ms=1_000,
        log_retention_s=3_600,
    )


def _memory(directory: Path, clock: ManualClock) -> Opened:
    kept: list[Stores] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[Stores]:
        if not kept:
            async with memory(directory, clock) as stores:
                kept.append(stores)
        yield kept[0]

    return _platform("test"), opened


def _sqlite(directory: Path, clock: ManualClock) -> Opened:
    return _platform("test"), lambda: sqlite(directory / "data", clock)


def _cassandra(directory: Path, clock: ManualClock) -> Opened:
    platform = _platform(f"stateful-{secrets.token_hex(8)}")
    return platform, lambda: cassandra_of(platform, clock)


BACKENDS: dict[str, Callable[[Path, ManualClock], Opened]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "cassandra": _cassandra,
}
