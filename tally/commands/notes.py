"""Who does what only an operator may do, and why: it stays with the deed."""

import getpass
from typing import Annotated

import typer

AuthorOption = Annotated[
    str | None,
    typer.Option(
        "--author",
        metavar="NAME",
        help="Who decides, up to 100 characters.  \\[default: your login name]",
        show_default=False,
    ),
]
ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason", "-m", metavar="TEXT", help="Why, up to 500 characters.", show_default=False
    ),
]


def author_of(author: str | None) -> str:
    if author is not None:
        return author
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:  # a container may know no name for its user
        raise typer.BadParameter("who decides? Give --author NAME.") from error


def reason_of(reason: str | None) -> str:
    if not reason or not reason.strip():
        raise typer.BadParameter("why? Give --reason TEXT: it is kept with the decision.")
    return reason
