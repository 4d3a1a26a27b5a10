"""How `tally status` shows the rollups to people: what matters fits into 80 columns."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from clients import RollupStatus, ShardStatus, WorkerStatus
from counter.clock import NS_PER_S
from tally.commands.values import (
    format_age,
    format_count,
    format_duration,
    format_moment,
    format_setting_ms,
)
from tally.output import Column, is_terminal, print_table, write_line

# Without --shards only those that cannot be folded or are this far behind are shown, and so many.
_BEHIND_MS = 60_000
_SHARDS_SHOWN = 10
_PROBLEMS_SHOWN = 10
_OWNER_CHARACTERS = 10
_MEMBER_CHARACTERS = 40
_CLEAR_WITHOUT_DATE_NS = 43_200 * NS_PER_S
_SHARD_COLUMNS = (
    Column(title="shard", right=True, style="cyan"),
    Column(title="watermark"),
    Column(title="lag", right=True, style="bold"),
    Column(title="queue", right=True),
    Column(title="batch", right=True),
    Column(title="last pass", right=True),
    Column(title="owner", optional=True),
    # Only in a pipe, where there is room; on a terminal their sums are enough.
    Column(title="folded", right=True, optional=True),
    Column(title="duplicate", right=True, optional=True),
    Column(title="conflicting", right=True, optional=True),
)
_WORKER_COLUMNS = (
    Column(title="worker", style="cyan"),
    Column(title="passes", right=True),
    Column(title="queue", right=True),
    Column(title="shards"),
)


def print_rollups(rollups: RollupStatus, *, every_shard: bool) -> None:
    now_ns = time.time_ns()
    write_line("")
    print_table(
        (Column(title="rollups", style="cyan"), Column(title="")), _summary(rollups, now_ns)
    )
    if len(rollups.workers) > 1:
        write_line("")
        print_table(_WORKER_COLUMNS, [_worker_cells(each, rollups) for each in rollups.workers])
    shards: Sequence[ShardStatus] = rollups.shards
    if not every_shard:
        shards = _in_trouble(rollups)[:_SHARDS_SHOWN]
    if shards:
        write_line("")
        one_worker = len(rollups.workers) == 1
        print_table(
            _SHARD_COLUMNS,
            [_shard_cells(each, now_ns, show_owner=not one_worker) for each in shards],
        )


def problems_of(rollups: RollupStatus | None, problem: str) -> list[str]:
    """One line for each thing that is wrong, after an empty one; shards with the same trouble
    share a line."""
    workers = rollups.workers if rollups else ()
    lines = [
        f"worker {_both_ends_of(each.member, _MEMBER_CHARACTERS)}: {each.problem}"
        for each in workers
        if each.problem
    ]
    stuck: defaultdict[str, list[int]] = defaultdict(list)
    for shard in rollups.shards if rollups else ():
        if shard.problem:
            stuck[shard.problem].append(shard.shard)
    for text, shards in stuck.items():
        lines.append(f"shard{'s' if len(shards) > 1 else ''} {_ranges(shards)}: {text}")
    told = [*(each.problem for each in workers if each.problem), *stuck]
    if problem and not any(text in problem for text in told):
        lines.insert(0, problem)
    if len(lines) > _PROBLEMS_SHOWN:
        lines[_PROBLEMS_SHOWN:] = [f"and {len(lines) - _PROBLEMS_SHOWN} more: see --json"]
    return ["", *(f"problem: {line}" for line in lines)] if lines else []


def _summary(rollups: RollupStatus, now_ns: int) -> list[tuple[str, str]]:
    lag_ms = max((each.lag_ms for each in rollups.shards), default=0)
    slowest = max(rollups.shards, key=lambda each: each.lag_ms, default=None)
    waiting = [each.queue_depth for each in rollups.shards if each.queue_depth]
    queue = f"{_number(sum(waiting), 'window')} of {_number(len(waiting), 'shard')} to fold"
    rows = [
        ("region", rollups.region),
        ("window", format_setting_ms(rollups.window_ms)),
        ("closed through", format_age(rollups.closed_through_ns, now_ns)),
        ("folded through", format_age(rollups.folded_through_ns, now_ns)),
        (
            "largest lag",
            format_duration(lag_ms / 1_000)
            + (f" (shard {slowest.shard} of {len(rollups.shards)})" if slowest else ""),
        ),
        ("queue", queue if waiting else "empty"),
        ("folded events", format_count(sum(each.folded_events for each in rollups.shards))),
    ]
    for name, count in (
        ("duplicates", sum(each.duplicate_events for each in rollups.shards)),
        ("conflicts", sum(each.conflicting_events for each in rollups.shards)),
    ):
        if count:
            rows.append((name, format_count(count)))
    if rollups.workers:
        passes = _number(sum(each.passes_in_parallel for each in rollups.workers), "pass", "es")
        rows.append(("workers", f"{len(rollups.workers)}, up to {passes} at once"))
    return rows


def _in_trouble(rollups: RollupStatus) -> list[ShardStatus]:
    """Those that cannot be folded or are far behind, the worst first."""
    return sorted(
        (
            each
            for each in rollups.shards
            if each.problem or each.queue_depth * rollups.window_ms > _BEHIND_MS
        ),
        key=lambda each: -each.lag_ms,
    )


def _worker_cells(worker: WorkerStatus, rollups: RollupStatus) -> tuple[str, ...]:
    own = set(worker.shards)
    return (
        _both_ends_of(worker.member, _MEMBER_CHARACTERS),
        str(worker.passes_in_parallel or "?"),
        format_count(sum(each.queue_depth for each in rollups.shards if each.shard in own)),
        _ranges(worker.shards) or "none",
    )


def _shard_cells(shard: ShardStatus, now_ns: int, *, show_owner: bool) -> tuple[str, ...]:
    counts = (shard.folded_events, shard.duplicate_events, shard.conflicting_events)
    return (
        str(shard.shard),
        _short_moment(shard.watermark_ns, now_ns),
        format_duration(shard.lag_ms / 1_000),
        format_count(shard.queue_depth),
        str(shard.batch_counters or "?"),
        f"{format_count(shard.last_pass_events)} in {format_duration(shard.last_pass_ms / 1_000)}",
        _end_of(shard.owner, _OWNER_CHARACTERS) if show_owner or not is_terminal() else "",
        *("" if is_terminal() else format_count(count) for count in counts),
    )


def _short_moment(time_ns: int | None, now_ns: int) -> str:
    """Without the date if it is clear, without the seconds if it is not. In a pipe it is whole."""
    moment = format_moment(time_ns)
    if time_ns is None or not is_terminal():
        return moment
    date, _, time_of_day = moment.partition("T")
    if abs(now_ns - time_ns) < _CLEAR_WITHOUT_DATE_NS:
        return time_of_day
    return f"{date[5:]} {time_of_day[:5]}"


def _end_of(name: str, characters: int) -> str:
    """Names of workers end with what no other has. In a pipe they are whole."""
    if len(name) <= characters or not is_terminal():
        return name
    return "…" + name[1 - characters :]


def _both_ends_of(name: str, characters: int) -> str:
    """And they begin with their host."""
    if len(name) <= characters or not is_terminal():
        return name
    end = characters // 2
    return f"{name[: characters - end - 1]}…{name[-end:]}"


def _number(count: int, noun: str, plural: str = "s") -> str:
    return f"{format_count(count)} {noun}{'' if count == 1 else plural}"


def _ranges(numbers: Iterable[int]) -> str:
    """0-3, 7, 9-11"""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
