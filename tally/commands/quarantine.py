"""`tally quarantine`: sets a segment that cannot be read aside, so that its shard goes on."""

import sys
from typing import Annotated

import typer

from tally.commands.connection import (
    JsonOption,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.health import ROLLUPS
from tally.commands.notes import AuthorOption, ReasonOption, author_of, reason_of
from tally.commands.values import format_count, format_moment, format_time
from tally.output import ExitCode, Failure, complain, is_terminal, print_json, printable, say

QUARANTINE_FIELDS = "JSON: segment_id, shard, window, events, author, reason."


def quarantine(
    context: typer.Context,
    segment: Annotated[
        str,
        typer.Argument(
            metavar="SEGMENT",
            help="Its id, hexadecimal, as `tally status` and the worker's log say it.",
            show_default=False,
        ),
    ],
    author: AuthorOption = None,
    reason: ReasonOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Set a segment that cannot be read aside. What it held will never count.

    Its shard can be folded on then. Author and reason stay in the fold record. Only a segment that
    cannot be read may be set aside. In a fleet, --server is the address of a worker.
    """
    target = target_of(context, server, timeout)
    author, reason = author_of(author), reason_of(reason)
    with calling(target, service=ROLLUPS) as client:
        if not yes:
            for shard in client.rollup_status().shards:
                if segment.lower() in shard.problem:
                    complain(f"shard {shard.shard}: {shard.problem}")
            _ask(segment)
        done = client.quarantine_segment(segment, author=author, reason=reason)
    if json:
        print_json(
            {
                "segment_id": segment,
                "shard": done.shard,
                "window": format_time(done.window_ns),
                "events": done.events,
                "author": author,
                "reason": reason,
            }
        )
        return ExitCode.OK
    events = "1 event" if done.events == 1 else f"{format_count(done.events)} events"
    say(
        f"set aside: segment {segment} of shard {done.shard}, window of "
        f"{format_moment(done.window_ns)}",
        style="yellow",
    )
    say(f"{events} will never count", style="bold")
    say(f"decided by {author}: {reason}")
    say(f"the shard is folded on within seconds. Check with: tally status --shards{target.option}")
    return ExitCode.OK


def _ask(segment: str) -> None:
    if not is_terminal(sys.stdin):
        raise Failure(
            f"segment {segment} is not set aside: nobody is here to ask. Add --yes to set it aside "
            "without asking.",
            ExitCode.USAGE,
        )
    question = f"Set segment {printable(segment)} aside? Its events will never count."
    if not typer.confirm(question, err=True):
        raise Failure(f"segment {segment} is not set aside: you did not agree.")
