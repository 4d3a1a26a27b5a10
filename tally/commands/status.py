"""`tally status`: is it serving, and how far have the rollups come."""

import time
from typing import Annotated, Any

import typer

from clients import CounterError, RollupStatus, ShardStatus
from tally.commands.connection import (
    JsonOption,
    ServerOption,
    TimeoutOption,
    calling,
    elsewhere,
    is_elsewhere,
    target_of,
)
from tally.commands.health import ELSEWHERE, ROLLUPS, SERVING, ask_health
from tally.commands.values import (
    format_age,
    format_count,
    format_duration,
    format_setting_ms,
    format_time,
)
from tally.output import Column, ExitCode, complain, print_json, print_table, say, write_line

STATUS_FIELDS = (
    "JSON: server, serving, services (each service's health by its name, the process's by the "
    "empty name), rollups (region, window_ms, closed_through, folded_through, lag_ms_max, shards: "
    "a list of shard, watermark, lag_ms, folded_events, duplicate_events, conflicting_events, "
    "last_pass_events, last_pass_ms), problem."
)
SHARD_COLUMNS = (
    Column(title="shard", right=True, style="cyan"),
    Column(title="watermark"),
    Column(title="lag", right=True, style="bold"),
    Column(title="folded", right=True),
    Column(title="duplicate", right=True),
    Column(title="conflicting", right=True),
    Column(title="last pass", right=True),
)


def status(
    context: typer.Context,
    shards: Annotated[bool, typer.Option("--shards", help="Show every shard.")] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Show each service's health and how far the folding has come. Exit code 3: not serving."""
    target = target_of(context, server, timeout)
    rollups: RollupStatus | None = None
    problem = note = ""
    with calling(target, service=ROLLUPS) as client:
        health = ask_health(target.server, timeout_s=target.timeout_s)
        try:
            rollups = client.rollup_status()
            problem = rollups.problem
        except CounterError as error:
            # A process that is not serving may still have a health to show.
            if is_elsewhere(error, target, ROLLUPS):
                note = elsewhere(target, ROLLUPS)
            else:
                problem = error.message
    well = (SERVING, ELSEWHERE)
    sick = [name or "the server" for name, answer in health.items() if answer not in well]
    if json:
        print_json(
            {
                "server": target.server,
                "serving": not sick,
                "services": health,
                "rollups": None if rollups is None else _document(rollups),
                "problem": problem or None,
            }
        )
    else:
        print_table(
            (Column(title="service", style="cyan"), Column(title="health")),
            [(name or target.server, answer) for name, answer in health.items()],
        )
        if rollups is not None:
            _print_rollups(rollups, shards=shards)
        if note:
            write_line("")
            say(note, style="dim")
        if problem:
            write_line("")
            say(f"problem: {problem}", style="bold red")
    if sick:
        complain(
            f"{target.server} is not serving: {', '.join(sick)}. "
            f"{problem or 'Look into its log for the reason'}"
        )
        return ExitCode.UNREACHABLE
    return ExitCode.OK


def _print_rollups(rollups: RollupStatus, *, shards: bool) -> None:
    now_ns = time.time_ns()
    lag_ms = max((each.lag_ms for each in rollups.shards), default=0)
    slowest = max(rollups.shards, key=lambda each: each.lag_ms, default=None)
    write_line("")
    print_table(
        (Column(title="rollups", style="cyan"), Column(title="")),
        [
            ("region", rollups.region),
            ("window", format_setting_ms(rollups.window_ms)),
            ("closed through", format_age(rollups.closed_through_ns, now_ns)),
            ("folded through", format_age(rollups.folded_through_ns, now_ns)),
            (
                "largest lag",
                format_duration(lag_ms / 1_000)
                + (f" (shard {slowest.shard} of {len(rollups.shards)})" if slowest else ""),
            ),
            ("folded events", format_count(sum(each.folded_events for each in rollups.shards))),
        ],
    )
    if shards:
        write_line("")
        print_table(SHARD_COLUMNS, [_shard_cells(each, now_ns) for each in rollups.shards])


def _shard_cells(shard: ShardStatus, now_ns: int) -> tuple[str, ...]:
    return (
        str(shard.shard),
        format_age(shard.watermark_ns, now_ns),
        format_duration(shard.lag_ms / 1_000),
        format_count(shard.folded_events),
        format_count(shard.duplicate_events),
        format_count(shard.conflicting_events),
        f"{format_count(shard.last_pass_events)} in {format_duration(shard.last_pass_ms / 1_000)}",
    )


def _document(rollups: RollupStatus) -> dict[str, Any]:
    return {
        "region": rollups.region,
        "window_ms": rollups.window_ms,
        "closed_through": format_time(rollups.closed_through_ns),
        "folded_through": format_time(rollups.folded_through_ns),
        "lag_ms_max": max((each.lag_ms for each in rollups.shards), default=0),
        "shards": [
            {
                "shard": each.shard,
                "watermark": format_time(each.watermark_ns),
                "lag_ms": each.lag_ms,
                "folded_events": each.folded_events,
                "duplicate_events": each.duplicate_events,
                "conflicting_events": each.conflicting_events,
                "last_pass_events": each.last_pass_events,
                "last_pass_ms": each.last_pass_ms,
            }
            for each in rollups.shards
        ],
    }
