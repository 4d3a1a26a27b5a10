"""How a command reaches the server: where, for how long, and what its errors mean to a person."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from clients import CounterError, SyncCounterClient, Unavailable
from counter.tokens import Token
from tally.commands.health import COUNTERS, NAMESPACES, ROLLUPS, answers_at_all, offers
from tally.commands.values import token_options
from tally.output import ExitCode, Failure

SERVER_DEFAULT = "127.0.0.1:50051"
TIMEOUT_S_DEFAULT = 10.0
# How long a server may take to accept a connection: one that is just starting gets a chance, and
# one that is not there is noticed before a person wonders.
CONNECT_TIMEOUT_S = 3.0
# Which program of a fleet has which service.
_OFFERED_BY = {COUNTERS: "a server", NAMESPACES: "a control plane", ROLLUPS: "a worker"}

ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="HOST:PORT", help="The server to call.", show_default=False),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", help="How long to wait for it.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE", show_default=False)]
CounterArgument = Annotated[str, typer.Argument(metavar="COUNTER", show_default=False)]
CountersArgument = Annotated[list[str], typer.Argument(metavar="COUNTER...", show_default=False)]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The server and the patience of one command."""

    server: str
    timeout_s: float

    @property
    def option(self) -> str:
        """What to repeat on a command line that is meant for the same server."""
        return "" if self.server == SERVER_DEFAULT else f" --server {shlex.quote(self.server)}"


def target_of(context: typer.Context, server: str | None, timeout_s: float | None) -> Target:
    """The command's own options, else those before the command's name, else the defaults."""
    outer: Target = context.obj
    server = outer.server if server is None else server
    if ":" not in server:
        raise typer.BadParameter(
            f"{server!r} is not a server's address. Write it as HOST:PORT, like {SERVER_DEFAULT}."
        )
    timeout_s = outer.timeout_s if timeout_s is None else timeout_s
    if not timeout_s > 0:
        raise typer.BadParameter(f"a timeout of {timeout_s:g} s leaves no time. Give more than 0.")
    return Target(server=server, timeout_s=timeout_s)


@contextmanager
def calling(
    target: Target, namespace: str = "", *, service: str = COUNTERS
) -> Iterator[SyncCounterClient]:
    """A client of a server that was just seen to be there, with errors as failures."""
    require_reachable(target)
    with SyncCounterClient(
        target.server, namespace=namespace, timeout_s=target.timeout_s
    ) as client:
        try:
            yield client
        except CounterError as error:
            raise failure_of(error, target, service) from error


def require_reachable(target: Target) -> None:
    """Fails unless a server is there.

    Without this, a call to nobody would wait for its whole timeout and then have to say that its
    outcome is unknown, where it is certain that nothing happened.
    """
    if not answers_at_all(target.server, timeout_s=min(CONNECT_TIMEOUT_S, target.timeout_s)):
        raise Failure(
            f"no server answers at {target.server}. Is it running? Start one with: tally serve",
            ExitCode.UNREACHABLE,
        )


def failure_of(error: CounterError, target: Target, service: str) -> Failure:
    """A server's or the SDK's error as a person is told it."""
    if is_elsewhere(error, target, service):
        return Failure(elsewhere(target, service))
    if not isinstance(error, Unavailable):
        return Failure(error.message)
    return Failure(f"{error.message} (server {target.server})", ExitCode.UNREACHABLE)


def is_elsewhere(error: CounterError, target: Target, service: str) -> bool:
    """Whether a call failed because another program of the fleet has the service."""
    return error.reason == "UNIMPLEMENTED" and not offers(
        target.server, service, timeout_s=target.timeout_s
    )


def elsewhere(target: Target, service: str) -> str:
    who = _OFFERED_BY[service]
    return (
        f"{target.server} has no {service.rpartition('.')[2]}: call {who} of the fleet instead, "
        f"with --server HOST:PORT"
    )


def outcome_unknown(
    what: str, *, namespace: str, counter: str, token: Token, target: Target
) -> Failure:
    """The failure of a write that may have happened, with the command that tells."""
    positional = shlex.join([namespace, counter])
    return Failure(
        f"it is not known whether {what} was applied: {target.server} did not answer in "
        f"{target.timeout_s:g} s. Find out with: tally token status {token_options(token)} "
        f"--wait{target.option} -- {positional}",
        ExitCode.UNKNOWN,
    )
