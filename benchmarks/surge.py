"""Ten times the normal load for a minute, and then normal again: do folds keep up by themselves?

Batches are sent at a fixed rate, whatever the answers do, up to a number in flight. Meanwhile the
fold lag and the memory of the process that folds are watched. A lag that only grows, or that stays
where the surge left it, would show; so would memory that follows the backlog.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from benchmarks.figures import Figure
from benchmarks.folding import fold_lag_s, folded, rollup_status
from benchmarks.load import Call, call_of
from benchmarks.progress import Progress
from benchmarks.requests import BATCH_ITEMS, OK_BATCH, Stamper, batch_template, counter_name
from benchmarks.servers import Server

TIMES = 10
_COUNTERS = 10_000
_IN_FLIGHT_MAX = 32
_LOOK_EVERY_S = 0.5
# The lag is back when it is no more than this beyond what it was.
_BACK_WITHIN_S = 1.0
_MEGABYTE = 1_000_000


@dataclass(kw_only=True, slots=True)
class _Phase:
    sent: int = 0
    elapsed_s: float = 0.0
    lags_s: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)


async def measure(
    server: Server,
    worker: Server,
    *,
    store: str,
    batches_per_s: int,
    seconds: float,
    progress: Progress,
) -> list[Figure]:
    """`worker`: the process that folds; embedded it is the server itself."""
    stamper = Stamper()
    batches = stamper.stamped(itertools.cycle(_templates()))
    call = call_of(server, "BatchAddCount")
    before = sum(shard.folded_events for shard in (await rollup_status(worker)).shards)
    phases: dict[str, _Phase] = {}
    for name, times, phase_s in (
        ("warm up", 1, 10.0),
        ("before", 1, 10.0),
        ("surge", TIMES, seconds),
        ("after", 1, 20.0),
    ):
        progress.say(f"{name}: {times * batches_per_s * BATCH_ITEMS:,} adds/s on {store}")
        phases[name] = await _phase(call, batches, worker, times * batches_per_s, phase_s)
    await folded(worker, stamper.last_ns)
    sent = sum(each.sent for each in phases.values()) * BATCH_ITEMS
    status = await rollup_status(worker)
    counted = sum(shard.folded_events for shard in status.shards) - before
    if counted != sent:
        raise RuntimeError(f"{counted} events were folded, {sent} were acknowledged")
    return _figures(phases, store)


def _figures(phases: dict[str, _Phase], store: str) -> list[Figure]:
    before, surge, after = phases["before"], phases["surge"], phases["after"]
    normal_s = median(before.lags_s)
    late = [at for at, lag_s in enumerate(after.lags_s) if lag_s > normal_s + _BACK_WITHIN_S]
    back_s = (late[-1] + 1) * _LOOK_EVERY_S if late else 0.0
    return [
        Figure(
            name=f"fold lag, {TIMES}x load at worst / normal, {store}",
            value=max(surge.lags_s) / normal_s,
            unit="x",
            explains={
                "adds_per_s": surge.sent * BATCH_ITEMS / surge.elapsed_s,
                "normal_s": normal_s,
                "worst_s": max(surge.lags_s),
                "back_to_normal_after_s": back_s,
            },
        ),
        Figure(
            name=f"memory of the process that folds, {TIMES}x load / normal, {store}",
            value=max(surge.memory_bytes) / median(before.memory_bytes),
            unit="x",
            explains={
                "normal_mb": median(before.memory_bytes) / _MEGABYTE,
                "worst_mb": max(surge.memory_bytes) / _MEGABYTE,
                "afterwards_mb": after.memory_bytes[-1] / _MEGABYTE,
            },
        ),
    ]


async def _phase(
    call: Call, batches: Iterator[bytes], worker: Server, batches_per_s: int, seconds: float
) -> _Phase:
    phase = _Phase()
    in_flight: set[asyncio.Task[None]] = set()

    async def send() -> None:
        if await call(next(batches)) != OK_BATCH:
            raise RuntimeError("a batch was not acknowledged as a whole")
        phase.sent += 1

    async def look() -> None:
        while True:
            phase.lags_s.append(fold_lag_s(await rollup_status(worker)))
            phase.memory_bytes.append(worker.memory_bytes())
            await asyncio.sleep(_LOOK_EVERY_S)

    looking = asyncio.create_task(look())
    began_s = time.perf_counter()
    for number in itertools.count():
        due_s = began_s + number / batches_per_s
        if due_s >= began_s + seconds:
            break
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        if len(in_flight) >= _IN_FLIGHT_MAX:
            await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
        done = {each for each in in_flight if each.done()}
        for each in done:
            each.result()
        in_flight -= done
        in_flight.add(asyncio.create_task(send()))
    await asyncio.gather(*in_flight)
    phase.elapsed_s = time.perf_counter() - began_s
    looking.cancel()
    return phase


def _templates() -> list[bytes]:
    return [
        batch_template([(counter_name(start + at), 1) for at in range(BATCH_ITEMS)])
        for start in range(0, _COUNTERS, BATCH_ITEMS)
    ]
