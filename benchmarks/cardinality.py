"""Many counters: that they are all folded and readable, in bounded memory, at a flat cost per add.

* `measure_readable`: a fresh server gets one add for each of so many counters. When they are
  folded, a sample is read back and each count must be exact; the figure is the server's peak
  memory.
* `measure_growth`: the processor time of the server per add, folds included, when so many
  counters exist and the same number of adds is spread evenly over them. What the process spends
  when nobody calls is taken off: it would hide differences.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.batches import check_batches
from benchmarks.figures import Figure, at_most
from benchmarks.folding import folded
from benchmarks.load import Load, call_of, drive
from benchmarks.progress import Progress
from benchmarks.requests import BATCH_ITEMS, Add, Stamper, batch_template, counter_name
from benchmarks.servers import NAMESPACE, Server, tally_server
from counter.v1 import counter_service_pb2 as pb

_IN_FLIGHT = 4
_SAMPLE = 1_000
_SEED = 1
_IDLE_S = 2.0
_MEGABYTE = 1_000_000


async def measure_readable(home: Path, *, counters: int, progress: Progress) -> list[Figure]:
    progress.say(f"{counters:,} counters with one add each, in a fresh process")
    async with tally_server(home) as server:
        stamper = Stamper()
        load = await _send(server, stamper, _templates(_one_each(0, counters)))
        began_s = time.monotonic()
        status = await folded(server, stamper.last_ns)
        folded_s = time.monotonic() - began_s
        events = sum(shard.folded_events for shard in status.shards)
        if events != counters:
            raise RuntimeError(f"{events} events were folded, {counters} were acknowledged")
        progress.say(f"reading {_SAMPLE:,} of them back")
        await _check_sample(server, counters)
        peak_bytes = server.peak_memory_bytes()
    return [
        Figure(
            name=f"{counters:,} counters: peak memory",
            value=peak_bytes / _MEGABYTE,
            unit="MB",
            target=at_most(600),
            explains={
                "adds_per_s": load.calls_per_s * BATCH_ITEMS,
                "folded_after_last_add_s": folded_s,
                "exact_of_sample": _SAMPLE,
            },
        )
    ]


async def measure_growth(
    home: Path, *, steps: Sequence[int], adds: int, progress: Progress
) -> list[Figure]:
    cost_us: dict[int, float] = {}
    async with tally_server(home) as server:
        stamper = Stamper()
        idle_share = await _idle_share(server)
        present = 0
        for counters in steps:
            progress.say(f"cost per add with {counters:,} counters")
            await _send(server, stamper, _templates(_one_each(present, counters)))
            present = counters
            await folded(server, stamper.last_ns)
            templates = list(_templates(_spread(adds, counters)))
            cpu_before_s, began_s = server.cpu_s(), time.monotonic()
            await _send(server, stamper, iter(templates))
            await folded(server, stamper.last_ns)
            idle_cpu_s = idle_share * (time.monotonic() - began_s)
            cost_us[counters] = (server.cpu_s() - cpu_before_s - idle_cpu_s) / adds * 1_000_000
    return [
        Figure(
            name=f"cost per add, {steps[0]:,} to {steps[-1]:,} counters",
            value=max(cost_us.values()) / cost_us[steps[0]],
            unit="x",
            target=at_most(1.5),
            explains={
                f"{counters}_counters_server_cpu_us": cost for counters, cost in cost_us.items()
            }
            | {"idle_share_of_a_core": idle_share},
        )
    ]


async def _send(server: Server, stamper: Stamper, templates: Iterator[bytes]) -> Load:
    requests = stamper.stamped(templates)
    load = await drive(server, call_of(server, "BatchAddCount"), requests, in_flight=_IN_FLIGHT)
    check_batches(load)
    return load


async def _idle_share(server: Server) -> float:
    """Of one processor, what the server uses when nobody calls."""
    before_s = server.cpu_s()
    await asyncio.sleep(_IDLE_S)
    return (server.cpu_s() - before_s) / _IDLE_S


async def _check_sample(server: Server, counters: int) -> None:
    sample = random.Random(_SEED).sample(range(counters), _SAMPLE)
    request = pb.BatchGetCountRequest(
        namespace=NAMESPACE, counter_name=[counter_name(number) for number in sample]
    )
    answer = await call_of(server, "BatchGetCount")(request.SerializeToString())
    values = pb.BatchGetCountResponse.FromString(answer).values
    wrong = [
        f"{counter_name(number)} is {value.count}, not {_delta(number)}"
        for number, value in zip(sample, values, strict=True)
        if value.count != _delta(number)
    ]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {_SAMPLE} counters are wrong: {', '.join(wrong[:5])}")


def _delta(number: int) -> int:
    """Different for neighbours, so that a count under another's name shows."""
    return number % 997 + 1


def _one_each(start: int, end: int) -> Iterator[Add]:
    return ((counter_name(number), _delta(number)) for number in range(start, end))


def _spread(adds: int, counters: int) -> Iterator[Add]:
    """Evenly: each counter as often as the others, or every so-manyth counter once."""
    stride = max(1, counters // adds)
    return ((counter_name(number * stride % counters), 1) for number in range(adds))


def _templates(adds: Iterator[Add]) -> Iterator[bytes]:
    while batch := [add for _, add in zip(range(BATCH_ITEMS), adds, strict=False)]:
        yield batch_template(batch)
