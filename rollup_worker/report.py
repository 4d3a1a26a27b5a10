"""What a worker says about itself with each beat, so that any worker can answer for all of them.

Fields are only ever added at the end, with a default: workers of two versions run side by side
during an upgrade. A report that cannot be read is as good as none.
"""

import msgspec

from counter.decoding import UNREADABLE

# A store that is away is a problem of every shard: a report stays small all the same.
PROBLEMS_MAX = 64
PROBLEM_CHARS_MAX = 500
_SEE_THE_LOG = "one of many that cannot be folded: see the log of its worker"


class ShardReport(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A shard as the worker that folds it knows it; what is counted, since that one started."""

    shard: int
    folded_events: int = 0
    duplicate_events: int = 0
    conflicting_events: int = 0
    last_pass_events: int = 0
    last_pass_ms: float = 0.0
    batch_counters: int = 0
    problem: str = ""


class Report(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    passes_in_parallel: int = 0
    problem: str = ""  # of the worker as a whole
    shards: tuple[ShardReport, ...] = ()


_DECODER = msgspec.msgpack.Decoder(Report)


def encode(report: Report) -> bytes:
    shards, problems = [], 0
    for each in report.shards:
        if each.problem:
            problems += 1
            text = each.problem if problems <= PROBLEMS_MAX else _SEE_THE_LOG
            each = msgspec.structs.replace(each, problem=text[:PROBLEM_CHARS_MAX])
        shards.append(each)
    return msgspec.msgpack.encode(
        msgspec.structs.replace(
            report, shards=tuple(shards), problem=report.problem[:PROBLEM_CHARS_MAX]
        )
    )


def decode(body: bytes) -> Report | None:
    try:
        return _DECODER.decode(body)
    except UNREADABLE:
        return None
