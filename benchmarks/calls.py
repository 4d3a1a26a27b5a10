"""Unary calls beside the empty handler: AddCount and GetCount at 50 concurrent calls.

The machine may be shared and its speed may drift, so no two figures are compared that were taken
far apart: rounds of two seconds take turns (empty, AddCount, GetCount), each cycle gives one ratio,
and the median of the cycles is the figure. While one server is under load the other idles.

A cycle of three rounds takes about six seconds, which is also how long after an add its window is
folded. So the folds of one cycle's adds run during the next cycle's AddCount round, and are part
of what an add is seen to cost.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import Figure, Target, at_least, over_rounds
from benchmarks.load import Load, call_of, drive, merged
from benchmarks.progress import Progress
from benchmarks.requests import add_requests, get_requests
from benchmarks.servers import Server
from counter.v1 import counter_service_pb2 as pb

IN_FLIGHT = 50
_COUNTERS = 1_000
_HOT_COUNTERS = 100
_ROUND_S = 2.0
_WARM_UP_S = 1.0
# An entry lives for 500 ms, so 100 hot counters miss at most 200 times a second.
_LOCAL_SHARE_MIN = 0.75


@dataclass(frozen=True, kw_only=True)
class _Kind:
    name: str
    server: Server
    method: str


async def measure(empty: Server, tally: Server, *, cycles: int, progress: Progress) -> list[Figure]:
    kinds = (
        _Kind(name="empty", server=empty, method="AddCount"),
        _Kind(name="AddCount", server=tally, method="AddCount"),
        _Kind(name="GetCount", server=tally, method="GetCount"),
    )
    requests = {
        "empty": add_requests(_COUNTERS),
        "AddCount": add_requests(_COUNTERS),
        "GetCount": get_requests(_HOT_COUNTERS),
    }
    calls = {kind.name: call_of(kind.server, kind.method) for kind in kinds}
    rounds: dict[str, list[Load]] = {kind.name: [] for kind in kinds}
    for cycle in itertools.chain((None,), range(cycles)):  # None: warming up
        progress.say(f"unary calls, cycle {'-' if cycle is None else cycle + 1} of {cycles}")
        for kind in kinds:
            load = await drive(
                kind.server,
                calls[kind.name],
                requests[kind.name],
                in_flight=IN_FLIGHT,
                seconds=_WARM_UP_S if cycle is None else _ROUND_S,
            )
            if cycle is not None:
                rounds[kind.name].append(load)
    answers = [response for load in rounds["GetCount"] for response in load.responses]
    return [
        over_rounds(
            "empty handler",
            [load.calls_per_s for load in rounds["empty"]],
            unit="calls/s",
            explains=_explained(rounds["empty"]),
        ),
        _ratio("AddCount / empty", at_least(0.75), rounds["AddCount"], rounds["empty"]),
        _ratio(
            "GetCount from L1 / empty",
            at_least(0.85),
            rounds["GetCount"],
            rounds["empty"],
            local_share=check_local_share(answers),
        ),
    ]


def _ratio(
    name: str, target: Target, loads: list[Load], empties: list[Load], **explains: float
) -> Figure:
    pairs = zip(loads, empties, strict=True)
    return over_rounds(
        name,
        [load.calls_per_s / empty.calls_per_s for load, empty in pairs],
        unit="x",
        target=target,
        explains={"calls_per_s": merged(loads).calls_per_s} | _explained(loads) | explains,
    )


def _explained(loads: list[Load]) -> dict[str, float]:
    all_rounds = merged(loads)
    return all_rounds.latencies() | {"server_cpu_us_per_call": all_rounds.cpu_us_per_call}


def check_local_share(answers: Sequence[bytes]) -> float:
    """Of the reads, how many came from the server's own cache; most of them, or it is an error."""
    values = [pb.GetCountResponse.FromString(answer).value for answer in answers]
    return share_of_local(values)


def share_of_local(values: Sequence[pb.CountValue]) -> float:
    share = sum(value.source == pb.SOURCE_LOCAL_CACHE for value in values) / len(values)
    if share < _LOCAL_SHARE_MIN:
        raise RuntimeError(
            f"only {share:.0%} of the reads came from the server's own cache: "
            "the figure would not be about L1"
        )
    return share
