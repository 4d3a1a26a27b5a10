"""What each statement of queries.cql does to rows, without CQL.

A write is one or more mutations; a read is a selection of rows of one partition, and the columns
that it answers with. `tests/simulation/test_statements.py` holds the names against queries.cql.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Key = tuple[Any, ...]
Parameters = Sequence[Any]


class Mutation(NamedTuple):
    table: str
    partition: Key
    row: Key
    value: Any  # None: a deletion
    stamp_us: int | None  # None: the clock of whoever writes it
    ttl_s: int = 0  # 0: for ever


class Selection(NamedTuple):
    table: str
    partition: Key
    takes: Callable[[Key], bool]
    columns: Callable[[Key, Any], tuple[Any, ...]]
    newest_first: bool = False
    limit: int = 1 << 30


def _everything(row: Key) -> bool:
    return True


def _write_history(p: Parameters) -> Mutation:
    namespace_id, counter, region, step_ms, step, state, ttl_s, stamp_us = p
    partition = (namespace_id, counter, region, step_ms)
    return Mutation("history", partition, (step,), state, stamp_us, ttl_s)


WRITES: dict[str, Callable[[Parameters], Mutation]] = {
    "append_segment": lambda p: Mutation(
        "event_log", tuple(p[:3]), tuple(p[3:6]), (p[6], p[7]), None, p[8]
    ),
    "close": lambda p: Mutation("closes", (p[0],), (), p[1], p[2]),
    "advance": lambda p: Mutation("watermarks", (p[0],), (p[1],), p[2], p[3]),
    "write_rollup": lambda p: Mutation("rollups", (p[0], p[1]), (p[2], p[3]), p[4], p[5]),
    "write_history": _write_history,
    "write_adjustment": lambda p: Mutation(
        "adjustments", tuple(p[:3]), (p[3], p[4]), tuple(p[5:]), None
    ),
    "beat": lambda p: Mutation("members", (p[0],), (p[1],), p[2], None, p[3]),
    "leave": lambda p: Mutation("members", (p[0],), (p[1],), None, None),
}

# Insert if absent. The stamp is that of the agreement.
AGREEMENTS: dict[str, Callable[[Parameters], Mutation]] = {
    "open_layout": lambda p: Mutation("layouts", (p[0],), (), tuple(p[1:]), None),
    "propose_fold": lambda p: Mutation("folds", tuple(p[:3]), (p[3],), (p[4],), None, p[5]),
    "set_aside": lambda p: Mutation("set_asides", tuple(p[:2]), (p[2],), (p[3],), None, p[4]),
    "put_namespaces": lambda p: Mutation(
        "namespace_versions", (p[0],), (p[1],), (p[2], p[3]), None
    ),
}

READS: dict[str, Callable[[Parameters], Selection]] = {
    "segment_bodies": lambda p: Selection(
        "event_log",
        tuple(p[:3]),
        lambda row: row[:2] == (p[3], p[4]) and row[2] in p[5],
        lambda row, value: (row[2], value[1]),
    ),
    "layout": lambda p: Selection("layouts", tuple(p), _everything, lambda row, value: value),
    "closed": lambda p: Selection("closes", tuple(p), _everything, lambda row, value: (value,)),
    "watermarks": lambda p: Selection(
        "watermarks", tuple(p), _everything, lambda row, value: (row[0], value)
    ),
    "folds": lambda p: Selection(
        "folds",
        tuple(p[:3]),
        lambda row: row[0] <= p[3],
        lambda row, value: value,
        newest_first=True,
        limit=p[4],
    ),
    "set_asides": lambda p: Selection(
        "set_asides", tuple(p), _everything, lambda row, value: value
    ),
    "read_rollups": lambda p: Selection(
        "rollups",
        tuple(p[:2]),
        lambda row: row[0] in p[2] and row[1] == p[3],
        lambda row, value: (row[0], value),
    ),
    "page_rollups": lambda p: Selection(
        "rollups",
        tuple(p[:2]),
        lambda row: p[2] <= row[0] < p[3] and row[1] == p[4],
        lambda row, value: (row[0], value),
        limit=p[5],
    ),
    "count_rollups": lambda p: Selection(
        "rollups", tuple(p[:2]), lambda row: row[1] == p[2], lambda row, value: ()
    ),
    "history_at": lambda p: Selection(
        "history",
        tuple(p[:4]),
        lambda row: row[0] <= p[4],
        lambda row, value: (row[0], value),
        newest_first=True,
        limit=1,
    ),
    "history_between": lambda p: Selection(
        "history",
        tuple(p[:4]),
        lambda row: p[4] <= row[0] <= p[5],
        lambda row, value: (row[0], value),
        limit=p[6],
    ),
    "adjustments": lambda p: Selection(
        "adjustments",
        tuple(p[:3]),
        lambda row: p[3] <= row[0] <= p[4],
        lambda row, value: (*row, *value),
        limit=p[5],
    ),
    "latest_namespaces": lambda p: Selection(
        "namespace_versions",
        tuple(p),
        _everything,
        lambda row, value: (value[1],),
        newest_first=True,
        limit=1,
    ),
    "get_namespaces": lambda p: Selection(
        "namespace_versions",
        (p[0],),
        lambda row: row[0] == p[1],
        lambda row, value: (value[1],),
    ),
    "list_namespaces": lambda p: Selection(
        "namespace_versions",
        (p[0],),
        lambda row: row[0] < p[1],
        lambda row, value: (row[0], value[0]),
        newest_first=True,
        limit=p[2],
    ),
    "live_members": lambda p: Selection(
        "members", tuple(p), _everything, lambda row, value: (row[0], value)
    ),
}

# Of several partitions, each of which is read by itself.
READS_OF_MANY: dict[str, Callable[[Parameters], list[Selection]]] = {
    "segment_refs": lambda p: [_refs_of_lane(p[0], p[1], lane, p[3]) for lane in p[2]],
}


def _refs_of_lane(region: str, window: int, lane: int, shard: int) -> Selection:
    return Selection(
        "event_log",
        (region, window, lane),
        lambda row: row[0] == shard,
        lambda row, value: (row[1], row[2], value[0], shard, lane),
    )
