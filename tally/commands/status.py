"""`tally status`: is it serving, and how far have the rollups come."""

from typing import Annotated, Any

import typer

from clients import CounterError, RollupStatus
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
from tally.commands.status_view import print_rollups, problems_of
from tally.commands.values import format_time
from tally.output import Column, ExitCode, complain, print_json, print_table, say, write_line

STATUS_FIELDS = (
    "JSON: server, serving, services (each service's health by its name, the process's by the "
    "empty name), rollups (region, window_ms, closed_through, folded_through, lag_ms_max, shards: "
    "a list of shard, watermark, lag_ms, folded_events, duplicate_events, conflicting_events, "
    "last_pass_events, last_pass_ms, owner, queue_depth, batch_counters, problem; workers: a list "
    "of member, shards, passes_in_parallel, problem), problem."
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
            print_rollups(rollups, every_shard=shards)
        if note:
            write_line("")
            say(note, style="dim")
        for line in problems_of(rollups, problem):
            say(line, style="bold red")
    if sick:
        complain(
            f"{target.server} is not serving: {', '.join(sick)}. "
            f"{problem or 'Look into its log for the reason'}"
        )
        return ExitCode.UNREACHABLE
    return ExitCode.OK


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
                "owner": each.owner,
                "queue_depth": each.queue_depth,
                "batch_counters": each.batch_counters,
                "problem": each.problem or None,
            }
            for each in rollups.shards
        ],
        "workers": [
            {
                "member": each.member,
                "shards": list(each.shards),
                "passes_in_parallel": each.passes_in_parallel,
                "problem": each.problem or None,
            }
            for each in rollups.workers
        ],
    }
