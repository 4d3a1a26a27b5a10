"""`tally schema`: the tables of a fleet in Cassandra."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from counter.errors import SetupError, StoreUnavailable
from tally.commands.connection import JsonOption
from tally.commands.extras import needs_server_extra
from tally.commands.fleet import ConfigOption, load_config
from tally.output import Column, ExitCode, Failure, print_json, print_table, say

if TYPE_CHECKING:
    from tally.config import Config

APPLY_FIELDS = "JSON: keyspace, applied (the versions that it ran), version."
STATUS_FIELDS = (
    "JSON: keyspace, version (0: none), latest (what this tally needs), pending, a list of: "
    "version, title."
)

app = typer.Typer(
    help="The tables of a fleet in Cassandra: create and update them.", no_args_is_help=True
)


@app.command("apply", epilog=APPLY_FIELDS)
def apply(config: ConfigOption, json: JsonOption = False) -> int:
    """Create the keyspace, and run the migrations that it lacks.

    Safe to run again, and from several places at once: one does it while the others wait.
    """
    settings = load_config(config, "tally schema")
    with needs_server_extra("tally schema"):
        from counter.storage.cassandra import schema
    cassandra, replication = settings.cassandra, settings.replication
    if replication is None:
        hint = f"write 'replication: {{{cassandra.data_center}: 3}}'"
        message = "is required to create the keyspace"
        raise Failure(settings.refusal("cassandra.replication", message, hint).message)

    def progress(step: str) -> None:
        if not json:
            say(step)

    progress(f"{cassandra.where}, keyspace {cassandra.keyspace}")
    with _failures_of(settings):
        applied = asyncio.run(schema.apply(cassandra, replication, progress))
        version = asyncio.run(schema.status(cassandra)).version
    if json:
        print_json({"keyspace": cassandra.keyspace, "applied": applied, "version": version})
    else:
        news = "" if applied else ", nothing to do"
        say(f"the schema has version {version}{news}", style="green")
    return ExitCode.OK


@app.command("status", epilog=STATUS_FIELDS)
def status(config: ConfigOption, json: JsonOption = False) -> int:
    """Show which schema version the keyspace has. Exit code 1: migrations are pending."""
    settings = load_config(config, "tally schema")
    with needs_server_extra("tally schema"):
        from counter.storage.cassandra import schema
    with _failures_of(settings):
        found = asyncio.run(schema.status(settings.cassandra))
    if json:
        pending = [{"version": each.version, "title": each.title} for each in found.pending]
        print_json(
            {
                "keyspace": settings.cassandra.keyspace,
                "version": found.version,
                "latest": found.latest,
                "pending": pending,
            }
        )
    else:
        has = f"schema version {found.version}" if found.version else "no schema"
        say(f"keyspace {settings.cassandra.keyspace} has {has}, this tally needs {found.latest}")
        if found.pending:
            print_table(
                (Column(title="pending", right=True), Column(title="migration")),
                [(str(each.version), each.title) for each in found.pending],
            )
            say(f"run: tally schema apply --config {config}")
    fits = not found.pending and found.version <= found.latest
    return ExitCode.OK if fits else ExitCode.REFUSED


@contextmanager
def _failures_of(settings: "Config") -> Iterator[None]:
    try:
        yield
    except SetupError as error:
        raise Failure(settings.refusal_of(error, "cassandra").message) from error
    except StoreUnavailable as error:
        raise Failure(error.message, ExitCode.UNREACHABLE) from error
