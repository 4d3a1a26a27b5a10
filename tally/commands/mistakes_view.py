"""How mistakes in namespace files are shown, whoever found them."""

from collections.abc import Sequence
from typing import Any, Protocol

from tally.output import say, write_line

MISTAKE_FIELDS = "path, line, column, field, message, hint"


class Mistake(Protocol):
    """What the SDK and the loader both say of a mistake."""

    @property
    def path(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...
    @property
    def field(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def hint(self) -> str: ...


def print_mistakes(mistakes: Sequence[Mistake], outcome: str) -> None:
    """All of them, each with its hint, and what they mean for the whole."""
    for mistake in mistakes:
        field = f"{mistake.field}: " if mistake.field else ""
        say(f"{mistake.path}:{mistake.line}:{mistake.column}: {field}{mistake.message}")
        if mistake.hint:
            say(f"    {mistake.hint}", style="dim")
    files = len({mistake.path for mistake in mistakes})
    write_line("")
    say(
        f"{counted(len(mistakes), 'mistake')} in {counted(files, 'file')}: {outcome}",
        style="bold red",
    )


def mistake_documents(mistakes: Sequence[Mistake]) -> list[dict[str, Any]]:
    return [
        {
            "path": each.path,
            "line": each.line,
            "column": each.column,
            "field": each.field,
            "message": each.message,
            "hint": each.hint,
        }
        for each in mistakes
    ]


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
