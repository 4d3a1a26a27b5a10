"""Many counters: that they are all folded and readable, in bounded memory, at a flat cost per add.

* `measure_readable`: a fresh server gets one add for each of so many counters. When they are
  folded, a sample is read back and each count must be exact; the figure is the server's peak
  memory.
* `measure_growth`: the processor time of the server per add, folds included, when so many
  counters exist and adds are spread evenly over them. What the process spends when nobody calls
  is taken off: it would hide differences. Adds of one window to one counter share a row, so a few
  counters under full load cost less per add than many; that is a saving at the one end, not a
  cost at the other. The figure with the target therefore adds to each counter at most once in a
  window; the one without shows the saving.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.batches import check_batches
from benchmarks.figures import Figure, Target, at_most
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
_WINDOW_MS = 100
# When batches are sent within a second, each in the middle of a window of its own. The stamper
# has no times in the first quarter of a second.
_BEATS = (0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
_ADDS = 200_000


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
    home: Path, *, steps: Sequence[int], seconds: int, progress: Progress
) -> list[Figure]:
    paced_us: dict[int, float] = {}
    at_once_us: dict[int, float] = {}
    async with tally_server(home, "--window", f"{_WINDOW_MS}ms") as server:
        stamper = Stamper()
        idle_share = await _idle_share(server)
        present = 0
        for counters in steps:
            progress.say(f"cost per add with {counters:,} counters")
            await _send(server, stamper, _templates(_one_each(present, counters)))
            present = counters
            await folded(server, stamper.last_ns)
            templates = list(_templates(_spread(_ADDS, counters)))
            for send, cost_us in ((_send_paced, paced_us), (_send, at_once_us)):
                cpu_before_s, began_s = server.cpu_s(), time.monotonic()
                sent = templates if send is _send else templates[: seconds * len(_BEATS)]
                await send(server, stamper, iter(sent))
                await folded(server, stamper.last_ns)
                idle_cpu_s = idle_share * (time.monotonic() - began_s)
                cpu_s = server.cpu_s() - cpu_before_s - idle_cpu_s
                cost_us[counters] = cpu_s / (len(sent) * BATCH_ITEMS) * 1_000_000
    growth = f"{steps[0]:,} to {steps[-1]:,} counters"
    return [
        _growth(f"cost per add, {growth}", paced_us, at_most(1.5)),
        _growth(f"the same as fast as it goes, {growth}", at_once_us, None),
    ]


def _growth(name: str, cost_us: dict[int, float], target: Target | None) -> Figure:
    return Figure(
        name=name,
        value=max(cost_us.values()) / next(iter(cost_us.values())),
        unit="x",
        target=target,
        explains={f"{counters}_counters_cpu_us": cost for counters, cost in cost_us.items()},
    )


async def _send_paced(server: Server, stamper: Stamper, templates: Iterator[bytes]) -> None:
    """One batch per window, so that no two adds to a counter share a fold, however few exist."""
    call = call_of(server, "BatchAddCount")
    second = int(time.time()) + 1
    while True:
        for beat_s in _BEATS:
            template = next(templates, None)
            if template is None:
                return
            await asyncio.sleep(max(0.0, second + beat_s - time.time()))
            await call(next(stamper.stamped([template])))
        second += 1


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
