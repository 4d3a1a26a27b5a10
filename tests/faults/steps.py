"""Steps of a write, of a close and of a fold pass, at which a process can be made to fail.

`places` says where each is in the product. What is one transaction on SQLite is several requests on
Cassandra. At the start of a program of the fleet some of them are also passed when it opens its
store: arm a process that serves.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple


class Step(StrEnum):
    # Of a write, in a server.
    BEFORE_WRITE = "before the segment write"
    WRITTEN = "after the segment write, before the close check"
    BEFORE_REPLY = "after the close check, before the reply"
    # Of a close, in a worker.
    BEFORE_CLOSE = "before the close"
    CLOSED = "after the close"
    # Of a fold pass, in a worker.
    LOG_READ = "after the log read"
    RECORDED = "after the fold record"
    BETWEEN_ROLLUPS = "between rollup rows"
    BEFORE_WATERMARK = "after the rollups, before the watermark"
    WATERMARK = "after the watermark"
    BEFORE_CACHE = "before the cache"
    PASSED = "after the cache"


WRITE_STEPS = (Step.BEFORE_WRITE, Step.WRITTEN, Step.BEFORE_REPLY)
CLOSE_STEPS = (Step.BEFORE_CLOSE, Step.CLOSED)
FOLD_STEPS = (
    Step.LOG_READ,
    Step.RECORDED,
    Step.BETWEEN_ROLLUPS,
    Step.BEFORE_WATERMARK,
    Step.WATERMARK,
    Step.BEFORE_CACHE,
    Step.PASSED,
)


class Place(NamedTuple):
    """A method of the product, and the step that is reached at its start, in the middle of the
    rows that it is given, or at its end."""

    owner: type
    method: str
    start: Step | None = None
    middle: Step | None = None
    end: Step | None = None


def places(program: str) -> Iterator[Place]:
    """Imports the product: to be called in the process that runs it."""
    if program == "serve":
        yield from _embedded()
    else:
        yield from _fleet()
    from counter_server.strategies.logged import Logged
    from rollup_worker.record_folds import RecordFolds
    from rollup_worker.rollup import Rollup

    yield Place(Logged, "add", end=Step.BEFORE_REPLY)
    yield Place(RecordFolds, "_events", end=Step.LOG_READ)
    yield Place(Rollup, "_refresh_cache", start=Step.BEFORE_CACHE, end=Step.PASSED)


def _embedded() -> Iterator[Place]:
    """A fold is one transaction: up to its end a crash takes all of it back."""
    from counter.storage.sqlite import (
        SqliteEventLog,
        SqliteFoldCommit,
        SqliteLedger,
        SqliteRollupStore,
    )

    yield Place(SqliteEventLog, "append", start=Step.BEFORE_WRITE, end=Step.WRITTEN)
    yield Place(SqliteLedger, "close", start=Step.BEFORE_CLOSE, end=Step.CLOSED)
    yield Place(SqliteLedger, "propose_in", end=Step.RECORDED)
    yield Place(SqliteRollupStore, "write_in", middle=Step.BETWEEN_ROLLUPS)
    yield Place(SqliteLedger, "advance_in", start=Step.BEFORE_WATERMARK)
    yield Place(SqliteFoldCommit, "commit", end=Step.WATERMARK)


def _fleet() -> Iterator[Place]:
    from counter.storage.cassandra import CassandraEventLog, CassandraLedger, CassandraRollupStore
    from counter.storage.stepwise import StepwiseFoldCommit

    # The close check is a request of its own, after the last write of an append.
    yield Place(CassandraEventLog, "append", start=Step.BEFORE_WRITE)
    yield Place(CassandraEventLog, "_append", end=Step.WRITTEN)
    yield Place(CassandraLedger, "close", start=Step.BEFORE_CLOSE, end=Step.CLOSED)
    yield Place(CassandraLedger, "propose", end=Step.RECORDED)
    yield Place(CassandraRollupStore, "write", middle=Step.BETWEEN_ROLLUPS)
    yield Place(CassandraLedger, "advance", start=Step.BEFORE_WATERMARK)
    yield Place(StepwiseFoldCommit, "commit", end=Step.WATERMARK)
