"""Full load for minutes: does the memory of the server and of the worker stay where it is?

Batches of 1,000 adds over 10,000 counters, as many as the server takes. The resident memory of each
process is sampled; the first third is warm-up, in which caches and pools fill. Of the rest, the
highest sample of the last third beside that of the middle third is the figure, and the slope of a
line through both explains it. A leak would show in both; a collection that is due does not.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression

from benchmarks.figures import Figure, at_most
from benchmarks.folding import fold_lag_s, rollup_status
from benchmarks.load import call_of
from benchmarks.programs import fleet_on_cassandra
from benchmarks.progress import Progress
from benchmarks.requests import BATCH_ITEMS, OK_BATCH, Stamper, batch_template, counter_name
from benchmarks.series import Series, Trace
from benchmarks.servers import Server, tally_server

_COUNTERS = 10_000
_IN_FLIGHT = 4
_SAMPLES = 200  # over the whole of it
_SAMPLE_EVERY_S_MIN = 0.5
_SAY_EVERY_S = 30.0
_MEGABYTE = 1_000_000
_FLAT = at_most(1.10)


async def measure(
    home: Path, *, minutes: float, on_cassandra: bool, progress: Progress, series: Series
) -> AsyncIterator[list[Figure]]:
    async with tally_server(home / "embedded") as tally:
        processes = {"embedded": tally}
        yield await _soak(tally, tally, processes, minutes, progress, series)
    if not on_cassandra:
        return
    progress.say("starting a fleet on Cassandra")
    async with fleet_on_cassandra(home / "fleet", "batch") as fleet:
        processes = {"server on Cassandra": fleet.server, "worker on Cassandra": fleet.worker}
        yield await _soak(fleet.server, fleet.worker, processes, minutes, progress, series)


async def _soak(
    server: Server,
    worker: Server,
    processes: Mapping[str, Server],
    minutes: float,
    progress: Progress,
    series: Series,
) -> list[Figure]:
    seconds = minutes * 60
    templates = [
        batch_template([(counter_name(start + at), 1) for at in range(BATCH_ITEMS)])
        for start in range(0, _COUNTERS, BATCH_ITEMS)
    ]
    batches = Stamper().stamped(itertools.cycle(templates))
    call = call_of(server, "BatchAddCount")
    start_s = time.monotonic()
    sent = 0
    at_s: list[float] = []
    memory_mb: dict[str, list[float]] = {name: [] for name in processes}

    async def send() -> None:
        nonlocal sent
        while time.monotonic() < start_s + seconds:
            if await call(next(batches)) != OK_BATCH:
                raise RuntimeError("a batch was not acknowledged as a whole")
            sent += 1

    async def look() -> None:
        said_s = -_SAY_EVERY_S
        while (elapsed_s := time.monotonic() - start_s) < seconds:
            at_s.append(elapsed_s)
            for name, process in processes.items():
                memory_mb[name].append(process.memory_bytes() / _MEGABYTE)
            if elapsed_s >= said_s + _SAY_EVERY_S:
                said_s = elapsed_s
                shown = ", ".join(f"{name} {mb[-1]:.0f} MB" for name, mb in memory_mb.items())
                progress.say(f"soak, {elapsed_s / 60:.1f} of {minutes:g} min: {shown}")
            await asyncio.sleep(max(_SAMPLE_EVERY_S_MIN, seconds / _SAMPLES))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(look())
        for _ in range(_IN_FLIGHT):
            tasks.create_task(send())
    lag_s = fold_lag_s(await rollup_status(worker))
    beside = {
        "adds_per_s": sent * BATCH_ITEMS / (time.monotonic() - start_s),
        "fold_lag_s_at_end": lag_s,
    }
    for name, samples in memory_mb.items():
        series.traces.append(Trace(process=name, seconds=at_s, memory_mb=samples))
    return [
        memory_figure(name, minutes, at_s, samples, beside) for name, samples in memory_mb.items()
    ]


def memory_figure(
    process: str,
    minutes: float,
    at_s: Sequence[float],
    memory_mb: Sequence[float],
    beside: Mapping[str, float],
) -> Figure:
    third = len(memory_mb) // 3
    if third < 2:
        raise ValueError(f"{len(memory_mb)} samples are too few to tell whether memory grows")
    middle, last = memory_mb[third : 2 * third], memory_mb[2 * third :]
    slope_mb_per_s, _ = linear_regression(at_s[third:], memory_mb[third:])
    return Figure(
        name=f"memory over {minutes:g} min at full load, {process}: last third / middle third",
        value=max(last) / max(middle),
        unit="x",
        target=_FLAT,
        explains={
            "mb_per_minute": slope_mb_per_s * 60,
            "middle_mb_max": max(middle),
            "last_mb_max": max(last),
            **beside,
        },
    )
