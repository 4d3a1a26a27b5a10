"""BatchAddCount of 1,000 items beside the empty handler: adds for each call of it.

Windows close 6.5 s after they begin and are then folded by the same process, so the first seconds
of a load are flattered: nothing is folded yet. Each cycle therefore loads the server for longer
than that before it begins to measure; from then on every second of adds is folded during a second
of adds. How far behind the folds are at the end shows whether they keep up.
"""

import itertools

from benchmarks.calls import IN_FLIGHT as EMPTY_IN_FLIGHT
from benchmarks.figures import Figure, at_least, over_rounds
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
_COUNTERS = 1_000  # as many as a batch has items: each adds to every counter
_EMPTY_ROUND_S = 2.0
_FILL_S = 8.0  # until windows are being folded as fast as they are filled


async def measure(
    empty: Server, tally: Server, *, cycles: int, measured_s: float, progress: Progress
) -> list[Figure]:
    templates = [
        batch_template([(counter_name(number), 1) for number in range(start, start + BATCH_ITEMS)])
        for start in range(0, _COUNTERS, BATCH_ITEMS)
    ]
    stamper = Stamper()
    requests = stamper.stamped(itertools.cycle(templates))
    call = call_of(tally, "BatchAddCount")
    empties = [await _empty(empty)]
    loads: list[Load] = []
    lags_s: list[float] = []
    for cycle in range(cycles):
        progress.say(f"batches of {BATCH_ITEMS:,} adds, cycle {cycle + 1} of {cycles}")
        await drive(tally, call, requests, in_flight=_IN_FLIGHT, seconds=_FILL_S)
        load = await drive(tally, call, requests, in_flight=_IN_FLIGHT, seconds=measured_s)
        check_batches(load)
        loads.append(load)
        lags_s.append(fold_lag_s(await rollup_status(tally)))
        await folded(tally, stamper.last_ns)
        empties.append(await _empty(empty))
    ratios = []
    for load, (before, after) in zip(loads, itertools.pairwise(empties), strict=True):
        ratios.append(load.calls_per_s * BATCH_ITEMS / merged([before, after]).calls_per_s)
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
            ratios,
            unit="adds",
            target=at_least(60),
            explains=explains,
        )
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
