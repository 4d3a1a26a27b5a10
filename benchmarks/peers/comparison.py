"""Tally beside what users would pick instead, and beside the limits of its parts.

Two groups, each in one run of its own, because only what ran together is compared: what needs no
Cassandra, and what runs on it, with Redis beside both. A system that cannot be started is not left
out in silence: its result says why.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.peers import limits, tally_embedded
from benchmarks.peers.cassandra_counters import cassandra_counters
from benchmarks.peers.children import let_pass
from benchmarks.peers.jetstream import NAME as JETSTREAM
from benchmarks.peers.jetstream import jetstream
from benchmarks.peers.plans import Plan
from benchmarks.peers.postgres import postgres
from benchmarks.peers.ratios import CASSANDRA_RATIOS, EMBEDDED_RATIOS, hot_cost, rates, ratios
from benchmarks.peers.redis_lua import redis_lua
from benchmarks.peers.system import Driver, Extent, Result
from benchmarks.peers.tally_cassandra import NAME as ON_CASSANDRA
from benchmarks.peers.tally_cassandra import tally_cassandra
from benchmarks.peers.turns import Turns
from benchmarks.programs import PLATFORM
from benchmarks.progress import Progress
from benchmarks.workloads import ZIPF
from counter.errors import SetupError
from tally.dev.cassandra_files import CommitlogSync


async def measure(
    home: Path, plan: Plan, progress: Progress, *, results: list[Result]
) -> AsyncIterator[list[Figure]]:
    """Figures as they are measured; `results` gets what they, and charts, are made of."""
    let_pass(home)
    async for figures in _embedded(home / "embedded", plan, progress, results):
        yield figures
    for commitlog_sync in plan.commitlog_syncs:
        async for figures in _on_cassandra(home, plan, commitlog_sync, progress, results):
            yield figures


async def _embedded(
    home: Path, plan: Plan, progress: Progress, kept: list[Result]
) -> AsyncIterator[list[Figure]]:
    starts: list[tuple[str, AbstractAsyncContextManager[list[Driver]]]] = [
        (
            tally_embedded.NAME,
            tally_embedded.tally_embedded(home / "tally", accept_limit_s=plan.accept_limit_s),
        ),
        ("Redis everysec", redis_lua(home / "everysec", fsync="everysec")),
        ("Redis always", redis_lua(home / "always", fsync="always")),
        ("PostgreSQL", postgres(home / "postgres")),
        (JETSTREAM, jetstream(home / "nats")),
        (limits.PARSER, limits.parser(home / "parser")),
    ]
    async with AsyncExitStack() as stack:
        drivers: list[Driver] = []
        for name, start in starts:
            drivers += await _started(stack, name, start, progress, kept)
        drivers.append(limits.SegmentsIntoSqlite(home / "sqlite"))
        turns = Turns(drivers, progress, place="")
        await turns.warm_up(plan.zipf, extent=plan.extent)
        found = await turns.take(ZIPF, plan.zipf, extent=plan.extent)
        kept += found
        yield [*rates(found), *ratios(found, EMBEDDED_RATIOS)]
        for workload in plan.others:
            more = await turns.take(workload, plan.other, extent=Extent.EVERYWHERE)
            kept += more
            found += more
            yield rates(more)
        yield hot_cost(found)


async def _on_cassandra(
    home: Path, plan: Plan, commitlog_sync: CommitlogSync, progress: Progress, kept: list[Result]
) -> AsyncIterator[list[Figure]]:
    place = f"commitlog_sync: {commitlog_sync}"
    fleet_home = home / f"cassandra-{commitlog_sync}"
    async with AsyncExitStack() as stack:
        progress.say(f"starting Cassandra, {place}, memcached and Tally's programs")
        try:
            drivers, cluster = await stack.enter_async_context(
                tally_cassandra(
                    fleet_home, commitlog_sync=commitlog_sync, accept_limit_s=plan.accept_limit_s
                )
            )
        except SetupError as error:
            kept.append(_not_measured(ON_CASSANDRA, error, progress, place))
            return
        natives, session = await stack.enter_async_context(
            cassandra_counters(cluster, fleet_home, commitlog_sync=commitlog_sync)
        )
        drivers += natives
        drivers.append(limits.SegmentsIntoCassandra(natives[0].peer, session, PLATFORM))
        redis = redis_lua(fleet_home / "everysec", fsync="everysec")
        drivers += (await _started(stack, "Redis everysec", redis, progress, kept, place))[:1]
        turns = Turns(drivers, progress, place=place)
        await turns.warm_up(plan.zipf_on_cassandra, extent=plan.extent)
        found = await turns.take(ZIPF, plan.zipf_on_cassandra, extent=plan.extent)
        kept += found
        yield [*rates(found), *ratios(found, CASSANDRA_RATIOS)]
        if commitlog_sync == "batch":
            for workload in plan.others_on_cassandra:
                found = await turns.take(
                    workload, plan.other_on_cassandra, extent=Extent.EVERYWHERE
                )
                kept += found
                yield rates(found)


async def _started(
    stack: AsyncExitStack,
    name: str,
    start: AbstractAsyncContextManager[list[Driver]],
    progress: Progress,
    kept: list[Result],
    place: str = "",
) -> list[Driver]:
    progress.say(f"starting {name}")
    try:
        return await stack.enter_async_context(start)
    except SetupError as error:
        kept.append(_not_measured(name, error, progress, place))
        return []


def _not_measured(name: str, error: SetupError, progress: Progress, place: str) -> Result:
    progress.say(f"{name} is not measured: {error}")
    return Result(system=name, place=place, workload=ZIPF.name, not_measured=str(error))
