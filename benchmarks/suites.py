"""The parts of a run, by name: what each of them measures, and how much of it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import (
    batched_reads,
    batches,
    calls,
    cardinality,
    fleet,
    folds,
    hot_path,
    latency,
    peers,
    rollups,
    soak,
    surge,
    unary_from_go,
)
from benchmarks.figures import Figure
from benchmarks.peers.reporting import notes, systems, throughputs
from benchmarks.progress import Progress
from benchmarks.series import Series
from benchmarks.servers import empty_server, tally_server
from counter.settings import Platform
from tally.dev.cassandra_files import CommitlogSync

# Beside the accept limit: the window, how far clocks may be off, and until its fold runs.
_FILL_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    call_cycles: int = 8
    read_cycles: int = 5
    accept_limit_s: float = 5.0  # of the embedded server: decides when its folds begin
    batch_cycles: int = 2
    batch_s: float = 8.0
    hot_s: float = 8.0
    fold_events: int = 500_000
    fold_repeats: int = 3
    counters: int = 1_000_000
    growth_steps: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    growth_s: int = 10
    fleet_cycles: int = 4
    fleet_fold_counters: int = 200_000
    surge_s: float = 60.0
    ghz_cycles: int = 5
    ghz_s: float = 4.0
    ghz_on_cassandra: bool = True
    shapes: tuple[int, ...] = (1, 10_000, 1_000_000)  # counters, of the hot path
    soak_minutes: float = 10.0
    of_latency: latency.Plan = latency.FULL
    of_peers: peers.Plan = peers.FULL


QUICK = Plan(
    call_cycles=2,
    read_cycles=2,
    accept_limit_s=1.0,
    batch_cycles=1,
    batch_s=3.0,
    hot_s=2.0,
    fold_events=100_000,
    fold_repeats=1,
    counters=100_000,
    growth_steps=(1_000, 100_000),
    growth_s=3,
    fleet_cycles=1,
    fleet_fold_counters=50_000,
    surge_s=15.0,
    ghz_cycles=2,
    ghz_s=2.0,
    ghz_on_cassandra=False,
    shapes=(1, 10_000),
    soak_minutes=1.0,
    of_latency=latency.QUICK,
    of_peers=peers.QUICK,
)


@dataclass(kw_only=True)
class Context:
    """Where a suite works and what it fills."""

    plan: Plan
    home: Path
    progress: Progress
    series: Series = field(default_factory=Series)
    notes: list[str] = field(default_factory=list)
    systems: list[dict[str, str]] = field(default_factory=list)


Measure = Callable[[Context], AsyncIterator[list[Figure]]]


@dataclass(frozen=True, kw_only=True)
class Suite:
    title: str
    measure: Measure


async def _calls(context: Context) -> AsyncIterator[list[Figure]]:
    plan, home, progress = context.plan, context.home, context.progress
    accept_limit = ("--accept-limit", f"{plan.accept_limit_s * 1_000:.0f}ms")
    async with (
        empty_server(home / "empty") as empty,
        tally_server(home / "tally", *accept_limit) as tally,
    ):
        yield await calls.measure(empty, tally, cycles=plan.call_cycles, progress=progress)
        yield await batched_reads.measure(empty, tally, cycles=plan.read_cycles, progress=progress)
        yield await batches.measure(
            empty,
            tally,
            cycles=plan.batch_cycles,
            fill_s=plan.accept_limit_s + _FILL_S,
            measured_s=plan.batch_s,
            progress=progress,
        )
        yield await batches.measure_hot(tally, seconds=plan.hot_s, progress=progress)


async def _embedded(context: Context) -> AsyncIterator[list[Figure]]:
    async for figures in _calls(context):
        yield figures
    plan, home, progress = context.plan, context.home, context.progress
    async with tally_server(home / "surge") as tally:
        yield await surge.measure(
            tally, tally, store="sqlite", batches_per_s=10, seconds=plan.surge_s, progress=progress
        )
    yield await cardinality.measure_readable(
        home / "readable", counters=plan.counters, progress=progress
    )
    yield await cardinality.measure_growth(
        home / "growth", steps=plan.growth_steps, seconds=plan.growth_s, progress=progress
    )
    yield await folds.measure(
        home / "folds", events=plan.fold_events, repeats=plan.fold_repeats, progress=progress
    )
    platform = Platform()
    yield await rollups.measure(
        lambda name: folds.on_sqlite(home / "rollups" / name, platform),
        store="sqlite",
        platform=platform,
        events=plan.fold_events,
        repeats=plan.fold_repeats,
        progress=progress,
    )


async def _on_cassandra(
    context: Context, *, commitlog_sync: CommitlogSync
) -> AsyncIterator[list[Figure]]:
    plan = context.plan
    async for figures in fleet.measure(
        context.home,
        commitlog_sync=commitlog_sync,
        cycles=plan.fleet_cycles,
        fold_counters=plan.fleet_fold_counters,
        surge_s=plan.surge_s,
        progress=context.progress,
    ):
        yield figures


async def _ghz(context: Context) -> AsyncIterator[list[Figure]]:
    plan = context.plan
    async for figures in unary_from_go.measure(
        context.home,
        cycles=plan.ghz_cycles,
        seconds=plan.ghz_s,
        on_cassandra=plan.ghz_on_cassandra,
        progress=context.progress,
        series=context.series,
    ):
        yield figures


async def _peers(context: Context) -> AsyncIterator[list[Figure]]:
    results: list[peers.Result] = []
    async for figures in peers.measure(
        context.home, context.plan.of_peers, context.progress, results=results
    ):
        yield figures
    context.series.throughputs += throughputs(results)
    context.notes += notes(results)
    context.systems += systems(results)


async def _latency(context: Context) -> AsyncIterator[list[Figure]]:
    async for figures in latency.measure(
        context.home, context.plan.of_latency, progress=context.progress, series=context.series
    ):
        yield figures
    context.notes += latency.quicker(context.series.curves)


async def _hot_path(context: Context) -> AsyncIterator[list[Figure]]:
    async for figures in hot_path.measure(
        context.home, context.plan.shapes, progress=context.progress
    ):
        yield figures


async def _soak(context: Context) -> AsyncIterator[list[Figure]]:
    async for figures in soak.measure(
        context.home,
        minutes=context.plan.soak_minutes,
        on_cassandra=True,
        progress=context.progress,
        series=context.series,
    ):
        yield figures


SUITES: dict[str, Suite] = {
    "calls": Suite(title="Calls and batches of Tally, embedded", measure=_calls),
    "embedded": Suite(title="Tally, embedded", measure=_embedded),
    "cassandra": Suite(
        title="Tally on one Cassandra node, commitlog_sync: batch",
        measure=partial(_on_cassandra, commitlog_sync="batch"),
    ),
    "cassandra-periodic": Suite(
        title="Tally on one Cassandra node, commitlog_sync: periodic",
        measure=partial(_on_cassandra, commitlog_sync="periodic"),
    ),
    "peers": Suite(title="Tally and what one could use instead", measure=_peers),
    "ghz": Suite(title="Unary calls from ghz, a client in Go", measure=_ghz),
    "latency": Suite(title="Latency against offered load", measure=_latency),
    "hot-path": Suite(title="Where the time of an add goes, by stage", measure=_hot_path),
    "soak": Suite(title="Memory at full load", measure=_soak),
}
# `calls` is the beginning of `embedded`, and there for quick runs.
ALL = tuple(name for name in SUITES if name != "calls")
# What fits into five minutes, and says the most.
QUICK_ONES = ("calls", "peers", "ghz", "latency")
