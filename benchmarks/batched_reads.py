"""BatchGetCount of 1,000 cached counters beside the empty handler: counters for each call of it."""

import itertools

from benchmarks.calls import IN_FLIGHT as EMPTY_IN_FLIGHT
from benchmarks.calls import share_of_local
from benchmarks.figures import Figure, at_least, over_rounds
from benchmarks.folding import folded
from benchmarks.load import Load, call_of, drive, merged
from benchmarks.progress import Progress
from benchmarks.requests import (
    BATCH_ITEMS,
    Stamper,
    add_requests,
    batch_template,
    counter_name,
)
from benchmarks.servers import NAMESPACE, Server
from counter.v1 import counter_service_pb2 as pb

_IN_FLIGHT = 4
_ROUND_S = 2.0
_WARM_UP_S = 1.0
_SAMPLED_ANSWERS = 20


async def measure(empty: Server, tally: Server, *, cycles: int, progress: Progress) -> list[Figure]:
    names = [counter_name(number) for number in range(BATCH_ITEMS)]
    await _fill(tally, names)
    request = pb.BatchGetCountRequest(namespace=NAMESPACE, counter_name=names)
    reads = itertools.repeat(request.SerializeToString())
    adds = add_requests(BATCH_ITEMS)
    loads: list[Load] = []
    empties: list[Load] = []
    for cycle in itertools.chain((None,), range(cycles)):
        progress.say(f"batched reads, cycle {'-' if cycle is None else cycle + 1} of {cycles}")
        seconds = _WARM_UP_S if cycle is None else _ROUND_S
        call = call_of(empty, "AddCount")
        its = await drive(empty, call, adds, in_flight=EMPTY_IN_FLIGHT, seconds=seconds)
        call = call_of(tally, "BatchGetCount")
        mine = await drive(tally, call, reads, in_flight=_IN_FLIGHT, seconds=seconds)
        if cycle is not None:
            empties.append(its)
            loads.append(mine)
    all_cycles = merged(loads)
    return [
        over_rounds(
            f"BatchGetCount of {BATCH_ITEMS:,} cached, counters / empty call",
            [
                mine.calls_per_s * BATCH_ITEMS / its.calls_per_s
                for mine, its in zip(loads, empties, strict=True)
            ],
            unit="counters",
            target=at_least(100),
            explains={
                "counters_per_s": all_cycles.calls_per_s * BATCH_ITEMS,
                **all_cycles.latencies(),
                "server_cpu_us_per_counter": all_cycles.cpu_us_per_call / BATCH_ITEMS,
                "local_share": _local_share(loads),
            },
        )
    ]


async def _fill(tally: Server, names: list[str]) -> None:
    """Counters that exist: a read of one that nobody added to may be cheaper."""
    stamper = Stamper()
    batches = stamper.stamped([batch_template([(name, 1) for name in names])])
    await call_of(tally, "BatchAddCount")(next(batches))
    await folded(tally, stamper.last_ns)


def _local_share(loads: list[Load]) -> float:
    answers = [response for load in loads for response in load.responses]
    sampled = answers[:: max(1, len(answers) // _SAMPLED_ANSWERS)]
    values = [
        value for answer in sampled for value in pb.BatchGetCountResponse.FromString(answer).values
    ]
    absent = sum(value.count == 0 for value in values)
    if absent:
        raise RuntimeError(f"{absent} of {len(values)} counters read 0, and each was added to")
    return share_of_local(values)
