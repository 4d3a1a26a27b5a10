"""Tally on one Cassandra node, beside native counters on the same node, in one run.

Rounds take turns: empty handler, native counters, unary adds, cached reads, native counters again,
batches. Server, worker, node and client share the machine; the native run has it for itself.

How the node writes its commit log is the same for both; native counters gain the most from
`periodic` (see `benchmarks.programs`).
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from benchmarks import folds, rollups, surge
from benchmarks.batches import check_batches
from benchmarks.calls import IN_FLIGHT
from benchmarks.figures import Figure, at_least, over_rounds, percentile_ms
from benchmarks.folding import fold_lag_s, folded, rollup_status
from benchmarks.load import Load, call_of, drive, merged
from benchmarks.native import NativeCounters, NativeLoad
from benchmarks.programs import PLATFORM, Fleet, fleet_on_cassandra
from benchmarks.progress import Progress
from benchmarks.requests import (
    BATCH_ITEMS,
    Stamper,
    add_requests,
    batch_template,
    counter_name,
    get_requests,
)
from benchmarks.servers import Server, empty_server
from counter.clock import SystemClock
from counter.storage.cassandra import ClusterSettings
from tally.dev.cassandra_files import CommitlogSync

_COUNTERS = 1_000
_HOT_COUNTERS = 100
_BATCHES_IN_FLIGHT = 8
_ROUND_S = 4.0
# Java compiles the paths of its node meanwhile.
_WARM_UP_S = 6.0


async def measure(
    home: Path,
    *,
    commitlog_sync: CommitlogSync,
    cycles: int,
    fold_counters: int,
    surge_s: float,
    progress: Progress,
) -> AsyncIterator[list[Figure]]:
    progress.say("starting Cassandra, memcached, a server, a worker and a control plane")
    async with (
        fleet_on_cassandra(home, commitlog_sync) as fleet,
        empty_server(home / "empty") as empty,
    ):
        native = NativeCounters(fleet.cluster, counters=_COUNTERS)
        try:
            yield await _measure_calls(fleet, empty, native, cycles, progress)
            yield await surge.measure(
                fleet.server,
                fleet.worker,
                store="cassandra",
                batches_per_s=5,
                seconds=surge_s,
                progress=progress,
            )
            yield [await _measure_folds(fleet.cluster, native, fold_counters, progress)]
            yield await rollups.measure(
                rollups.on_cassandra(fleet.cluster, PLATFORM),
                store="cassandra",
                platform=PLATFORM,
                events=2 * fold_counters,
                repeats=1,
                progress=progress,
            )
        finally:
            native.close()


async def _measure_calls(
    fleet: Fleet, empty: Server, native: NativeCounters, cycles: int, progress: Progress
) -> list[Figure]:
    template = batch_template([(counter_name(number), 1) for number in range(BATCH_ITEMS)])
    stamper = Stamper()
    batches = stamper.stamped(itertools.repeat(template))
    adds, reads = add_requests(_COUNTERS), get_requests(_HOT_COUNTERS)
    call = {name: call_of(fleet.server, name) for name in ("AddCount", "GetCount", "BatchAddCount")}
    rounds: dict[str, list[Load]] = {name: [] for name in ("empty", *call)}
    natives: list[tuple[NativeLoad, NativeLoad]] = []
    lags_s: list[float] = []

    async def round_of(name: str, seconds: float) -> Load:
        if name == "empty":
            return await drive(
                empty, call_of(empty, "AddCount"), adds, in_flight=IN_FLIGHT, seconds=seconds
            )
        requests = {"AddCount": adds, "GetCount": reads, "BatchAddCount": batches}[name]
        in_flight = _BATCHES_IN_FLIGHT if name == "BatchAddCount" else IN_FLIGHT
        load = await drive(fleet.server, call[name], requests, in_flight=in_flight, seconds=seconds)
        if name == "BatchAddCount":
            check_batches(load)
        return load

    for cycle in itertools.chain((None,), range(cycles)):
        progress.say(f"calls, cycle {'-' if cycle is None else cycle + 1} of {cycles}")
        seconds = _WARM_UP_S if cycle is None else _ROUND_S
        before = await asyncio.to_thread(native.drive, seconds)
        for name in ("empty", "AddCount", "GetCount"):
            load = await round_of(name, seconds)
            if cycle is not None:
                rounds[name].append(load)
        after = await asyncio.to_thread(native.drive, seconds)
        load = await round_of("BatchAddCount", 2 * seconds)
        lag_s = fold_lag_s(await rollup_status(fleet.worker))
        await folded(fleet.worker, stamper.last_ns)
        if cycle is not None:
            rounds["BatchAddCount"].append(load)
            natives.append((before, after))
            lags_s.append(lag_s)
    return _figures(rounds, natives, lags_s)


def _figures(
    rounds: dict[str, list[Load]], natives: list[tuple[NativeLoad, NativeLoad]], lags_s: list[float]
) -> list[Figure]:
    native_rates = [(a.updates + b.updates) / (a.elapsed_s + b.elapsed_s) for a, b in natives]
    native_latencies_s = [each for pair in natives for load in pair for each in load.latencies_s]
    empty = merged(rounds["empty"])

    def beside(name: str) -> dict[str, float]:
        load = merged(rounds[name])
        return {
            "calls_per_s": load.calls_per_s,
            **load.latencies(),
            "empty_p99_ms": empty.latencies()["p99_ms"],
            "server_cpu_us_per_call": load.cpu_us_per_call,
        }

    def over_native(name: str, per_call: int = 1) -> list[float]:
        return [
            load.calls_per_s * per_call / native
            for load, native in zip(rounds[name], native_rates, strict=True)
        ]

    batch = merged(rounds["BatchAddCount"])
    return [
        over_rounds(
            "empty handler / native update",
            over_native("empty"),
            unit="x",
            explains={"calls_per_s": empty.calls_per_s, **empty.latencies()},
        ),
        over_rounds(
            "native counters, same driver",
            native_rates,
            unit="updates/s",
            explains={
                "p50_ms": percentile_ms(native_latencies_s, 50),
                "p99_ms": percentile_ms(native_latencies_s, 99),
            },
        ),
        over_rounds(
            "BatchAddCount, adds / native update",
            over_native("BatchAddCount", BATCH_ITEMS),
            unit="x",
            target=at_least(20),
            explains={
                "adds_per_s": batch.calls_per_s * BATCH_ITEMS,
                **batch.latencies(),
                "server_cpu_us_per_add": batch.cpu_us_per_call / BATCH_ITEMS,
                "fold_lag_s_max": max(lags_s),
            },
        ),
        over_rounds(
            "AddCount, calls / native update",
            over_native("AddCount"),
            unit="x",
            target=at_least(0.5),
            explains=beside("AddCount"),
        ),
        over_rounds(
            "GetCount, cached / empty",
            [
                load.calls_per_s / other.calls_per_s
                for load, other in zip(rounds["GetCount"], rounds["empty"], strict=True)
            ],
            unit="x",
            target=at_least(0.85),
            explains=beside("GetCount"),
        ),
    ]


async def _measure_folds(
    cluster: ClusterSettings, native: NativeCounters, counters: int, progress: Progress
) -> Figure:
    """Rows per second of the worker's passes, when every event has a row of its own."""
    layout = PLATFORM.layout(SystemClock().now_ns())
    shape = folds.Shape(name="cold", events=counters, counters=counters)
    segments, last_window = folds.packed_segments(shape, layout)
    progress.say(f"native counters, then folds of {counters:,} cold counters")
    before = await asyncio.to_thread(native.drive, _ROUND_S)

    rows_per_s = counters / await folds.fold_s(
        partial(rollups.on_cassandra(cluster, PLATFORM), "cold"), segments, layout, last_window
    )
    after = await asyncio.to_thread(native.drive, _ROUND_S)
    native_rate = (before.updates + after.updates) / (before.elapsed_s + after.elapsed_s)
    return Figure(
        name="rollups written by folds / native update",
        value=rows_per_s / native_rate,
        unit="x",
        target=at_least(8),
        explains={"rollups_per_s": rows_per_s, "native_updates_per_s": native_rate},
    )
