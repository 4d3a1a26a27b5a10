"""The command line as a whole: its commands, its global options and its exit codes."""

from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from tally.commands import (
    apply,
    audit,
    audit_documents,
    batch,
    capacity,
    check,
    control_plane,
    counters,
    cutover,
    dev,
    diff,
    history,
    namespaces,
    plan,
    quarantine,
    ranking,
    recount,
    rollback,
    schema,
    serve,
    server,
    status,
    token,
    verify,
    version,
    versions,
    watch,
    worker,
)
from tally.commands.connection import SERVER_DEFAULT, TIMEOUT_S_DEFAULT, Target
from tally.commands.signed import SignedArguments
from tally.output import ExitCode, Failure, complain

EPILOG = """Exit codes: 0 done; 1 refused, not applied, or mistakes found; 2 wrong usage; 3 the \
server is not reachable or not serving; 4 the outcome is not known (the message says how to find \
out); 5 only with plan --exit-code, there are changes; 130 interrupted.

Into a pipe, tables are tab-separated lines under a header; --json prints one JSON document with \
stable names. TALLY_SERVER sets the server, NO_COLOR turns colours off."""

app = typer.Typer(
    name="tally",
    help="Counters that are never wrong: add, read, clear, and know what became of each call.",
    epilog=EPILOG,
    no_args_is_help=True,
    # Paragraphs of the commands' docstrings flow with the terminal's width.
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def configure(
    context: typer.Context,
    server: Annotated[
        str,
        typer.Option(
            "--server", metavar="HOST:PORT", envvar="TALLY_SERVER", help="The server to call."
        ),
    ] = SERVER_DEFAULT,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for it.")
    ] = TIMEOUT_S_DEFAULT,
) -> None:
    context.obj = Target(server=server, timeout_s=timeout_s)


COUNTERS = "Counters"
PLATFORM = "Platform"
FLEET = "Fleet"

app.command("add", cls=SignedArguments, epilog=counters.ADD_FIELDS, rich_help_panel=COUNTERS)(
    counters.add
)
app.command("get", epilog=counters.GET_FIELDS, rich_help_panel=COUNTERS)(counters.get)
app.command("clear", epilog=counters.CLEAR_FIELDS, rich_help_panel=COUNTERS)(counters.clear)
app.command("batch", epilog=batch.BATCH_FIELDS, rich_help_panel=COUNTERS)(batch.batch)
app.command("watch", epilog=watch.WATCH_FIELDS, rich_help_panel=COUNTERS)(watch.watch)
app.command("history", epilog=history.HISTORY_FIELDS, rich_help_panel=COUNTERS)(history.history)
app.command("list", epilog=ranking.LIST_FIELDS, rich_help_panel=COUNTERS)(ranking.list_counters)
app.command("top", epilog=ranking.TOP_FIELDS, rich_help_panel=COUNTERS)(ranking.top)
app.add_typer(token.app, name="token", rich_help_panel=COUNTERS)
app.command("serve", rich_help_panel=PLATFORM)(serve.serve)
app.command("status", epilog=status.STATUS_FIELDS, rich_help_panel=PLATFORM)(status.status)
app.command("namespaces", epilog=namespaces.NAMESPACES_FIELDS, rich_help_panel=PLATFORM)(
    namespaces.namespaces
)
app.command("plan", epilog=plan.PLAN_JSON, rich_help_panel=PLATFORM)(plan.plan)
app.command("apply", epilog=apply.APPLY_FIELDS, rich_help_panel=PLATFORM)(apply.apply)
app.command("diff", epilog=diff.DIFF_FIELDS, rich_help_panel=PLATFORM)(diff.diff)
app.command("rollback", epilog=rollback.ROLLBACK_FIELDS, rich_help_panel=PLATFORM)(
    rollback.rollback
)
app.command("versions", epilog=versions.VERSIONS_FIELDS, rich_help_panel=PLATFORM)(
    versions.versions
)
app.command("audit", epilog=audit_documents.AUDIT_FIELDS, rich_help_panel=PLATFORM)(audit.audit)
app.command("recount", epilog=recount.RECOUNT_FIELDS, rich_help_panel=PLATFORM)(recount.recount)
app.command("quarantine", epilog=quarantine.QUARANTINE_FIELDS, rich_help_panel=PLATFORM)(
    quarantine.quarantine
)
app.command("cutover", epilog=cutover.CUTOVER_FIELDS, rich_help_panel=PLATFORM)(cutover.cutover)
app.command("capacity", epilog=capacity.CAPACITY_FIELDS, rich_help_panel=PLATFORM)(
    capacity.capacity
)
app.command("check", epilog=check.CHECK_FIELDS, rich_help_panel=PLATFORM)(check.check)
app.command("verify", epilog=verify.VERIFY_FIELDS, rich_help_panel=PLATFORM)(verify.verify)
app.command("version", epilog=version.VERSION_FIELDS, rich_help_panel=PLATFORM)(version.version)

app.command("server", rich_help_panel=FLEET)(server.server)
app.command("worker", rich_help_panel=FLEET)(worker.worker)
app.command("control-plane", rich_help_panel=FLEET)(control_plane.control_plane)
app.add_typer(schema.app, name="schema", rich_help_panel=FLEET)
app.add_typer(dev.app, name="dev", rich_help_panel=FLEET)


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; every foreseen failure becomes one line on stderr and an exit code."""
    try:
        code = get_command(app).main(
            args=arguments, prog_name="tally", standalone_mode=False, windows_expand_args=False
        )
    except Failure as failure:
        complain(failure.message)
        return failure.exit_code
    except typer.TyperException as error:
        complain(_usage_message(error))
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        complain("interrupted.")
        return ExitCode.INTERRUPTED
    if code == ExitCode.INTERRUPTED:
        complain("interrupted.")
    return code if isinstance(code, int) else ExitCode.OK


def _usage_message(error: typer.TyperException) -> str:
    message = error.format_message().strip().removeprefix("Invalid value: ")
    if not message.endswith((".", "?")):
        message += "."
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tally"
    return f"{message[:1].lower()}{message[1:]} Try: {command} --help"
