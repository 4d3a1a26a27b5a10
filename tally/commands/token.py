"""`tally token new` and `tally token status`."""

from typing import Annotated

import typer

from clients import OutcomeUnknown, TokenStatus
from counter.clock import SystemClock
from counter.tokens import TokenFactory
from tally.commands.connection import (
    CounterArgument,
    JsonOption,
    NamespaceArgument,
    ServerOption,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.counters import AtOption, TokenOption
from tally.commands.values import token_document, token_from, token_options
from tally.output import ExitCode, print_json, say

app = typer.Typer(
    help="Make tokens, and learn what became of one.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SENTENCES = {
    TokenStatus.APPLIED: "applied: counted, once, for ever",
    TokenStatus.NOT_APPLIED: "not applied, and it never will be: a new token is safe",
    TokenStatus.PENDING: "pending: its window is not folded yet. Ask again, or add --wait",
}
_STYLES = {
    TokenStatus.APPLIED: "green",
    TokenStatus.NOT_APPLIED: "yellow",
    TokenStatus.PENDING: "",
}
_EXIT_CODES = {
    TokenStatus.APPLIED: ExitCode.OK,
    TokenStatus.NOT_APPLIED: ExitCode.REFUSED,
    TokenStatus.PENDING: ExitCode.UNKNOWN,
}


@app.command(epilog="JSON: token, generation_time.")
def new(json: JsonOption = False) -> int:
    """Print a new token, as the options that `add` and `clear` take.

    It is good for a few seconds: tally add NAMESPACE COUNTER $(tally token new)
    """
    made = TokenFactory(SystemClock()).next()
    if json:
        print_json(token_document(made))
    else:
        say(token_options(made))
    return ExitCode.OK


@app.command(epilog="JSON: namespace, counter, token, generation_time, status.")
def status(
    context: typer.Context,
    namespace: NamespaceArgument,
    counter: CounterArgument,
    token: Annotated[str | None, typer.Argument(metavar="TOKEN", show_default=False)] = None,
    token_option: TokenOption = None,
    at: AtOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is decided, up to --timeout.")
    ] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Tell what became of a token: exit code 0 applied, 1 not applied, 4 not decided yet."""
    if token is not None and token_option is not None:
        raise typer.BadParameter("the token is there twice. Give TOKEN or --token.")
    text = token if token is not None else token_option
    asked = token_from(text, at)
    if asked is None:
        raise typer.BadParameter("which token? Give it as --token TOKEN --at TIME.")
    target = target_of(context, server, timeout)
    with calling(target, namespace) as client:
        try:
            answer = (client.settle if wait else client.token_status)(counter, asked)
        except OutcomeUnknown:
            answer = TokenStatus.PENDING
    if json:
        print_json(
            {"namespace": namespace, "counter": counter}
            | token_document(asked)
            | {"status": answer}
        )
    else:
        say(_SENTENCES[answer], style=_STYLES[answer])
    return _EXIT_CODES[answer]
