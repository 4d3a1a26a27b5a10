"""Every backend that Tally's ports run on, and what its tests put into them.

A new backend is one entry in BACKENDS: all contract tests and the worker's tests then run on it.
"""

import secrets
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from counter.clock import Clock
from counter.events import Event
from counter.keys import counter_hash, namespace_prefix
from counter.segments import Segment, SegmentRef, encode
from counter.settings import Platform
from counter.storage.cassandra import (
    CassandraEventLog,
    CassandraHistoryStore,
    CassandraLedger,
    CassandraMembership,
    CassandraNamespaceStore,
    CassandraRollupStore,
)
from counter.storage.memcached import MemcachedBestEffortCounters, MemcachedCountCache
from counter.storage.memory import (
    MemoryBestEffortCounters,
    MemoryCountCache,
    MemoryEventLog,
    MemoryHistoryStore,
    MemoryLedger,
    MemoryMembership,
    MemoryNamespaceStore,
    MemoryRollupStore,
)
from counter.storage.ports import (
    BestEffortCounters,
    CountCache,
    EventLog,
    FoldCommit,
    HistoryStore,
    Ledger,
    Membership,
    NamespaceStore,
    RollupStore,
)
from counter.storage.sqlite import (
    Database,
    SqliteEventLog,
    SqliteFoldCommit,
    SqliteHistoryStore,
    SqliteLedger,
    SqliteNamespaceStore,
    SqliteRollupStore,
)
from counter.storage.stepwise import StepwiseFoldCommit
from counter_server.app import Stores as ServerStores
from rollup_worker.rollup import FoldStores
from tests.backends import memcached_server
from tests.cassandra_store import shared_session
from tests.memcached_client import connected

REGION = "test"
ENTRIES_MAX = 1_000  # of the bounded stores; small, so that tests reach it

# Of counters, to be told apart.
NAMES = [
    "plain",
    "",
    " spaces around ",
    "nul\x00in the middle",
    "nul\x00in the",
    "\x00",
    "quotes ' \" ` ; -- %_",
    "line\nbreak\r\n\ttab",
    "ünïcödé",
    "u\u0308 is not \u00fc",
    "\u00fc is not u\u0308",
    "emoji 🎬🍿👩‍👩‍👧",
    "\U0010ffff\ufffe\uffff",
    "العربية",
    "a" * 256,
    "é" * 128,
    "🎬" * 64,
    "Case",
    "case",
    "1",
    "01",
    "1.0",
]


@dataclass(frozen=True, kw_only=True)
class Stores:
    event_log: EventLog
    ledger: Ledger
    rollup_store: RollupStore
    history_store: HistoryStore
    fold_commit: FoldCommit
    count_cache: CountCache
    best_effort_counters: BestEffortCounters
    namespace_store: NamespaceStore
    membership: Membership  # of the workers
    processes: Membership
    # Segments, records and history of some stores expire by themselves instead of being dropped.
    expires_by_itself: bool = False
    # Of the count cache and the best_effort counters; None: bounded by bytes, not by number.
    entries_max: int | None = ENTRIES_MAX
    # Whether tokens of best_effort counters end by the clock of the store, in real seconds.
    tokens_in_real_time: bool = False


@asynccontextmanager
async def memory(directory: Path, clock: Clock) -> AsyncIterator[Stores]:
    ledger, rollup_store = MemoryLedger(clock), MemoryRollupStore()
    history_store = MemoryHistoryStore()
    yield Stores(
        event_log=MemoryEventLog(ledger),
        ledger=ledger,
        rollup_store=rollup_store,
        history_store=history_store,
        fold_commit=StepwiseFoldCommit(ledger, history_store, rollup_store),
        count_cache=MemoryCountCache(entries_max=ENTRIES_MAX, monotonic_ns=clock.now_ns),
        best_effort_counters=MemoryBestEffortCounters(
            counters_max=ENTRIES_MAX, tokens_max=ENTRIES_MAX, monotonic_ns=clock.now_ns
        ),
        namespace_store=MemoryNamespaceStore(),
        membership=MemoryMembership(monotonic_ns=clock.now_ns),
        processes=MemoryMembership(monotonic_ns=clock.now_ns),
    )


@asynccontextmanager
async def sqlite(directory: Path, clock: Clock) -> AsyncIterator[Stores]:
    """The embedded product: SQLite, and in memory what may be lost."""
    database = Database(directory)
    try:
        yield sqlite_stores(database, clock)
    finally:
        await database.close()
    # Nothing leaked: no thread is left, and the file can be opened again.
    assert not [each for each in threading.enumerate() if each.name == "sqlite-writer"]
    again = Database(directory)
    await again.close()


def sqlite_stores(database: Database, clock: Clock) -> Stores:
    ledger = SqliteLedger(database, clock, region=REGION)
    rollup_store = SqliteRollupStore(database, region=REGION)
    history_store = SqliteHistoryStore(database, region=REGION)
    return Stores(
        event_log=SqliteEventLog(database, clock, region=REGION),
        ledger=ledger,
        rollup_store=rollup_store,
        history_store=history_store,
        fold_commit=SqliteFoldCommit(database, ledger, history_store, rollup_store),
        count_cache=MemoryCountCache(entries_max=ENTRIES_MAX, monotonic_ns=clock.now_ns),
        best_effort_counters=MemoryBestEffortCounters(
            counters_max=ENTRIES_MAX, tokens_max=ENTRIES_MAX, monotonic_ns=clock.now_ns
        ),
        namespace_store=SqliteNamespaceStore(database),
        membership=MemoryMembership(monotonic_ns=clock.now_ns),
        processes=MemoryMembership(monotonic_ns=clock.now_ns),
    )


@asynccontextmanager
async def cassandra(directory: Path, clock: Clock) -> AsyncIterator[Stores]:
    """The fleet's stores. Each test has a region of its own, in one keyspace for all."""
    platform = Platform(region=f"test {secrets.token_hex(8)}", log_retention_s=3_600)
    async with cassandra_of(platform, clock) as stores:
        yield stores


@asynccontextmanager
async def cassandra_of(platform: Platform, clock: Clock) -> AsyncIterator[Stores]:
    """The same of a given region: opened again, they hold what they held."""
    session = await shared_session()
    ledger = CassandraLedger(session, platform, store_clock=clock)
    rollup_store = CassandraRollupStore(session, platform)
    history_store = CassandraHistoryStore(session, platform)
    async with connected([memcached_server()], prefix=platform.region) as servers:
        yield Stores(
            event_log=CassandraEventLog(session, ledger, clock, platform),
            ledger=ledger,
            rollup_store=rollup_store,
            history_store=history_store,
            fold_commit=StepwiseFoldCommit(ledger, history_store, rollup_store),
            count_cache=MemcachedCountCache(servers, clock=clock),
            best_effort_counters=MemcachedBestEffortCounters(servers),
            namespace_store=CassandraNamespaceStore(session, platform_name=platform.region),
            membership=CassandraMembership(session, platform),
            processes=CassandraMembership(session, platform, group="processes"),
            expires_by_itself=True,
            entries_max=None,
            tokens_in_real_time=True,
        )


def server_stores(stores: Stores, clock: Clock) -> ServerStores:
    """As one server has them, with a cache of its own."""
    return ServerStores(
        event_log=stores.event_log,
        ledger=stores.ledger,
        rollup_store=stores.rollup_store,
        history_store=stores.history_store,
        local_cache=MemoryCountCache(monotonic_ns=clock.now_ns),
        shared_cache=stores.count_cache,
        best_effort_counters=stores.best_effort_counters,
    )


def fold_stores(stores: Stores) -> FoldStores:
    """As a worker has them."""
    return FoldStores(
        event_log=stores.event_log,
        ledger=stores.ledger,
        rollup_store=stores.rollup_store,
        history_store=stores.history_store,
        fold_commit=stores.fold_commit,
        shared_cache=stores.count_cache,
        namespace_store=stores.namespace_store,
    )


Backend = Callable[[Path, Clock], AbstractAsyncContextManager[Stores]]

BACKENDS: dict[str, Backend] = {"memory": memory, "sqlite": sqlite, "cassandra": cassandra}
# Those that keep what is old until they are told to forget it.
KEEPING = ["memory", "sqlite"]


def segment(
    events: Sequence[Event],
    *,
    window: int,
    shard: int = 0,
    lane: int = 0,
    namespace_id: int = 1,
    segment_id: bytes | None = None,
) -> Segment:
    ref = SegmentRef(
        window=window,
        namespace_id=namespace_id,
        segment_id=segment_id or secrets.token_bytes(16),
        event_count=len(events),
        shard=shard,
        lane=lane,
    )
    return Segment(ref, encode(events))


def shard_of(namespace_id: int, counter: str, shards: int) -> int:
    return counter_hash(namespace_prefix(namespace_id), counter) % shards
