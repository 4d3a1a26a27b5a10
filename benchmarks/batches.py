"""BatchAddCount of 1,000 items beside the empty handler: adds for each call of it, and the same
batches where they are parsed and nothing else.

Windows close some seconds after they begin (6.5 with the default settings) and are then folded by
the same process, so the first seconds of a load are flattered: nothing is folded yet. Each cycle
therefore loads the server for longer than that before it begins to measure; from then on every
second of adds is folded during a second of adds. How far behind the folds are at the end shows
whether they keep up.
"""

import itertools
from collections.abc import Iterator

from benchmarks.calls import IN_FLIGHT as EMPTY_IN_FLIGHT
from benchmarks.figures import Figure, at_least, at_most, over_rounds
from benchmarks.folding import fold_lag_s, folded, rollup_status
from benchmarks.load import Load, call_of, drive, merged
from benchmarks.progress import Progress
from benchmarks.requests import (
    BATCH_ITEMS,
    OK_BATCH,
    Stamper,
    add_requests,
    batch_template,
    counter_name,
)
from benchmarks.servers import Server

_IN_FLIGHT = 4
_SPREAD_COUNTERS = 10_000
_COUNTERS = 1_000  # as many as a batch has items: each adds to every counter
_EMPTY_ROUND_S = 2.0


async def measure(
    empty: Server,
    tally: Server,
    *,
    cycles: int,
    fill_s: float,
    measured_s: float,
    progress: Progress,
) -> list[Figure]:
    """`fill_s`: until windows are being folded as fast as they are filled."""
    templates = [
        batch_template([(counter_name(number), 1) for number in range(start, start + BATCH_ITEMS)])
        for start in range(0, _COUNTERS, BATCH_ITEMS)
    ]
    stamper = Stamper()
    requests = stamper.stamped(itertools.cycle(templates))
    call = call_of(tally, "BatchAddCount")
    empties = [await _empty(empty)]
    parsed = [await _parsed(empty, requests)]
    loads: list[Load] = []
    lags_s: list[float] = []
    for cycle in range(cycles):
        progress.say(f"batches of {BATCH_ITEMS:,} adds, cycle {cycle + 1} of {cycles}")
        await drive(tally, call, requests, in_flight=_IN_FLIGHT, seconds=fill_s)
        load = await drive(tally, call, requests, in_flight=_IN_FLIGHT, seconds=measured_s)
        check_batches(load)
        loads.append(load)
        lags_s.append(fold_lag_s(await rollup_status(tally)))
        await folded(tally, stamper.last_ns)
        empties.append(await _empty(empty))
        parsed.append(await _parsed(empty, requests))
    all_cycles = merged(loads)
    explains = {
        "adds_per_s": all_cycles.calls_per_s * BATCH_ITEMS,
        **all_cycles.latencies(),
        "server_cpu_us_per_add": all_cycles.cpu_us_per_call / BATCH_ITEMS,
        "fold_lag_s_max": max(lags_s),
    }
    return [
        over_rounds(
            "BatchAddCount, adds / empty call",
            [ratio * BATCH_ITEMS for ratio in _beside(loads, empties)],
            unit="adds",
            target=at_least(60),
            explains=explains,
        ),
        over_rounds(
            # Without a target, which is for clients that make their batches (`peers`): these are
            # bytes that were made before, so the handler has hardly anything to do.
            "BatchAddCount / empty handler that parses the same batches, prepared",
            _beside(loads, parsed),
            unit="x",
            explains={
                "empty_adds_per_s": merged(parsed).calls_per_s * BATCH_ITEMS,
                "empty_cpu_us_per_add": merged(parsed).cpu_us_per_call / BATCH_ITEMS,
            },
        ),
    ]


async def measure_hot(tally: Server, *, seconds: float, progress: Progress) -> list[Figure]:
    """Processor time of the server per add, folds included: all on one counter, beside 10,000."""
    cost_us: dict[int, float] = {}
    for counters in (_SPREAD_COUNTERS, 1):
        progress.say(f"batches of {BATCH_ITEMS:,} adds over {counters:,} counters")
        names = [counter_name(number % counters) for number in range(_SPREAD_COUNTERS)]
        templates = [
            batch_template([(name, 1) for name in names[start : start + BATCH_ITEMS]])
            for start in range(0, _SPREAD_COUNTERS, BATCH_ITEMS)
        ]
        stamper = Stamper()
        requests = stamper.stamped(itertools.cycle(templates))
        cpu_before_s = tally.cpu_s()
        load = await drive(
            tally,
            call_of(tally, "BatchAddCount"),
            requests,
            in_flight=_IN_FLIGHT,
            seconds=seconds,
        )
        check_batches(load)
        await folded(tally, stamper.last_ns)
        cost_us[counters] = (tally.cpu_s() - cpu_before_s) / (load.calls * BATCH_ITEMS) * 1_000_000
    return [
        Figure(
            name=f"one hot counter / {_SPREAD_COUNTERS:,} counters, server CPU per add",
            value=cost_us[1] / cost_us[_SPREAD_COUNTERS],
            unit="x",
            target=at_most(1.0),
            explains={f"{counters}_counters_cpu_us": cost for counters, cost in cost_us.items()},
        )
    ]


def _beside(loads: list[Load], others: list[Load]) -> list[float]:
    """Each load beside what was measured before and after it: calls for each call of those."""
    return [
        load.calls_per_s / merged([before, after]).calls_per_s
        for load, (before, after) in zip(loads, itertools.pairwise(others), strict=True)
    ]


def check_batches(load: Load) -> None:
    """Every item of every batch was acknowledged."""
    bad = sum(response != OK_BATCH for response in load.responses)
    if bad:
        raise RuntimeError(f"{bad} of {load.calls} batches had items that were not acknowledged")


async def _empty(server: Server) -> Load:
    return await drive(
        server,
        call_of(server, "AddCount"),
        add_requests(_COUNTERS),
        in_flight=EMPTY_IN_FLIGHT,
        seconds=_EMPTY_ROUND_S,
    )


async def _parsed(server: Server, batches: Iterator[bytes]) -> Load:
    return await drive(
        server,
        call_of(server, "BatchAddCount"),
        batches,
        in_flight=_IN_FLIGHT,
        seconds=_EMPTY_ROUND_S,
    )
