"""Latency against offered load, in an open loop (see `benchmarks.open_loop`).

Each system is first driven in a closed loop, which tells its peak, and is then offered shares of
that. So every curve ends where its system does, and says how near to its end a system can be used.

The figure with a target compares at one and the same offered load: half of the peak of Tally's
unary AddCount, or of the empty handler's if that is less, since near its own peak it would have any
latency. It is Tally's p99 beside twice the empty handler's and one write of the store. The write is
measured raw, in the same run and while nobody calls, and its median is taken: the stricter choice,
since the slow writes that make up a p99 are then Tally's to answer for.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.calls import IN_FLIGHT
from benchmarks.figures import Figure, at_most, over_rounds
from benchmarks.load import call_of
from benchmarks.open_loop import (
    OpenLoad,
    Operation,
    Overrun,
    Subject,
    offer_poisson,
    peak_per_s,
)
from benchmarks.peer_operations import native_counters, peers_of
from benchmarks.peers.children import let_pass
from benchmarks.programs import fleet_on_cassandra
from benchmarks.progress import Progress
from benchmarks.requests import add_requests, counter_name
from benchmarks.series import Curve, LoadPoint, Series
from benchmarks.servers import NAMESPACE, Server, empty_server, tally_server
from benchmarks.store_writes import StoreWrite, cassandra_write, sqlite_write
from clients import CounterClient

HALF = 0.5
_COUNTERS = 1_000
# Of `await client.add(...)`, as many tasks as keep the SDK's batches full.
_SDK_IN_FLIGHT = 2_000
_WARM_UP_S = 1.0
_SEED = 7
_TALLY, _EMPTY = "Tally", "empty handler"

MeasureWrite = Callable[[], Coroutine[Any, Any, StoreWrite]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    shares: Sequence[float] = (0.10, 0.25, 0.50, 0.75, 0.90)
    peak_s: float = 4.0
    step_s: float = 8.0
    cycles: int = 5  # of the comparison at half of the peak
    cycle_s: float = 4.0
    on_cassandra: bool = True
    # Java compiles for about a minute what it is asked to do.
    node_warm_up_s: float = 60.0
    beside_peers: bool = True


FULL = Plan()
QUICK = Plan(
    shares=(0.25, HALF),
    peak_s=2.0,
    step_s=1.5,
    cycles=2,
    cycle_s=2.0,
    on_cassandra=False,
    beside_peers=False,
)


async def measure(
    home: Path, plan: Plan, *, progress: Progress, series: Series
) -> AsyncIterator[list[Figure]]:
    let_pass(home)
    async with empty_server(home / "empty") as empty:
        empty_calls = unary_adds(_EMPTY, empty)
        await _curve(empty_calls, plan, progress, series)
        async with tally_server(home / "tally") as tally:
            embedded = unary_adds("Tally embedded, unary", tally)
            write = partial(sqlite_write, home / "raw")
            yield await _at_half(embedded, empty_calls, "embedded", write, plan, progress)
            await _curve(embedded, plan, progress, series)
            await _sdk_curve("Tally embedded, SDK", tally, plan, progress, series)
        if plan.on_cassandra:
            progress.say("starting a fleet on Cassandra")
            async with fleet_on_cassandra(home / "fleet", "batch") as fleet:
                unary = unary_adds("Tally on Cassandra, unary", fleet.server)
                progress.say("warming the node up: Java is slow at first")
                await peak_per_s(unary.operation, in_flight=IN_FLIGHT, seconds=plan.node_warm_up_s)
                write = partial(cassandra_write, fleet.cluster)
                yield await _at_half(unary, empty_calls, "Cassandra", write, plan, progress)
                await _curve(unary, plan, progress, series)
                await _sdk_curve("Tally on Cassandra, SDK", fleet.server, plan, progress, series)
                async with native_counters(fleet) as native:
                    await _curve(native, plan, progress, series)
    for opened in peers_of(home) if plan.beside_peers else ():
        async with opened as peer:
            await _curve(peer, plan, progress, series)
    yield [latency_figure(curve) for curve in series.curves if curve.points]


def unary_adds(name: str, server: Server) -> Subject:
    """One AddCount, over 1,000 counters, each with a token of its own."""
    call = call_of(server, "AddCount")
    requests = add_requests(_COUNTERS)

    async def add() -> None:
        await call(next(requests))

    return Subject(name=name, operation=add, in_flight=IN_FLIGHT)


def sdk_adds(client: CounterClient) -> Operation:
    names = [counter_name(number) for number in range(_COUNTERS)]
    position = 0

    async def add() -> None:
        nonlocal position
        position += 1
        await client.add(names[position % _COUNTERS])

    return add


async def _sdk_curve(
    name: str, server: Server, plan: Plan, progress: Progress, series: Series
) -> None:
    async with CounterClient(server.address, namespace=NAMESPACE) as client:
        subject = Subject(name=name, operation=sdk_adds(client), in_flight=_SDK_IN_FLIGHT)
        await _curve(subject, plan, progress, series)


async def _curve(subject: Subject, plan: Plan, progress: Progress, series: Series) -> None:
    peak = await _peak(subject, plan, progress)
    points: list[LoadPoint] = []
    for share in plan.shares:
        progress.say(f"{subject.name}: {share:.0%} of its peak, {share * peak:,.0f} calls/s")
        try:
            load = await offer_poisson(
                subject.operation,
                rate_per_s=share * peak,
                seconds=plan.step_s,
                random=Random(_SEED),
            )
        except Overrun as overrun:
            progress.say(f"  {subject.name} ends here: {overrun}")
            break
        points.append(load.point(share))
    series.curves.append(Curve(system=subject.name, peak_per_s=peak, points=points))


async def _peak(subject: Subject, plan: Plan, progress: Progress) -> float:
    progress.say(f"{subject.name}: its peak in a closed loop")
    await peak_per_s(subject.operation, in_flight=subject.in_flight, seconds=_WARM_UP_S)
    return await peak_per_s(subject.operation, in_flight=subject.in_flight, seconds=plan.peak_s)


async def _at_half(
    tally: Subject,
    empty: Subject,
    store: str,
    write: MeasureWrite,
    plan: Plan,
    progress: Progress,
) -> list[Figure]:
    peaks = [await _peak(subject, plan, progress) for subject in (empty, tally)]
    rate_per_s = HALF * min(peaks)
    rounds: list[tuple[OpenLoad, OpenLoad, StoreWrite]] = []
    for cycle in range(plan.cycles):
        progress.say(
            f"{tally.name} and empty in turns at {rate_per_s:,.0f} calls/s, "
            f"cycle {cycle + 1} of {plan.cycles}"
        )
        random = Random(_SEED + cycle)  # the same arrivals would meet the same folds
        loads = [
            await offer_poisson(
                subject.operation, rate_per_s=rate_per_s, seconds=plan.cycle_s, random=random
            )
            for subject in (empty, tally)
        ]
        rounds.append((loads[0], loads[1], await write()))
    return [half_figure(store, rate_per_s, rounds)]


def half_figure(
    store: str, rate_per_s: float, rounds: Sequence[tuple[OpenLoad, OpenLoad, StoreWrite]]
) -> Figure:
    """p99 of Tally as a share of what it may be."""
    empties = [empty.percentile_ms(99) for empty, _, _ in rounds]
    tallies = [tally.percentile_ms(99) for _, tally, _ in rounds]
    writes = [write.p50_ms for _, _, write in rounds]
    return over_rounds(
        f"p99 at half of the peak, {store}: AddCount / (2 x empty + one store write)",
        [
            mine / (2 * its + write_ms)
            for mine, its, write_ms in zip(tallies, empties, writes, strict=True)
        ],
        unit="x",
        target=at_most(1.0),
        explains={
            "offered_calls_per_s": rate_per_s,
            "p99_ms": median(tallies),
            "p50_ms": median([tally.percentile_ms(50) for _, tally, _ in rounds]),
            "p999_ms": median([tally.percentile_ms(99.9) for _, tally, _ in rounds]),
            "empty_p99_ms": median(empties),
            "store_write_p50_ms": median(writes),
            "store_write_p99_ms": median([write.p99_ms for _, _, write in rounds]),
        },
    )


def latency_figure(curve: Curve) -> Figure:
    """What the curve says, for the table: p99 at half of its own peak."""
    at_half = min(curve.points, key=lambda point: abs(point.share_of_peak - HALF))
    return Figure(
        name=f"p99 at {at_half.share_of_peak:.0%} of its own peak: {curve.system}",
        value=at_half.p99_ms,
        unit="ms",
        explains={
            "peak_per_s": curve.peak_per_s,
            "offered_per_s": at_half.offered_per_s,
            "p50_ms": at_half.p50_ms,
            "p999_ms": at_half.p999_ms,
        },
    )


def quicker(curves: Sequence[Curve]) -> list[str]:
    """In sentences: which of the others answer sooner than Tally does, each at half of its peak."""
    figures = {curve.system: latency_figure(curve) for curve in curves if curve.points}
    others = {name: each for name, each in figures.items() if not name.startswith((_TALLY, _EMPTY))}
    sentences = []
    for name, mine in figures.items():
        sooner = [
            f"{other} ({_at_load(its)})" for other, its in others.items() if its.value < mine.value
        ]
        if name.startswith(_TALLY) and sooner:
            sentences.append(
                f"Quicker than {name} ({_at_load(mine)}), each at half of its own peak: "
                f"{', '.join(sooner)}."
            )
    return sentences


def _at_load(figure: Figure) -> str:
    return f"p99 {figure.value:.1f} ms at {figure.explains['offered_per_s']:,.0f} calls/s"
