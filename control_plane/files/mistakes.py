"""Mistakes: what is wrong in namespace files, as values that can be listed all at once."""

from dataclasses import dataclass
from typing import NamedTuple

SHOWN_CHARACTERS_MAX = 40


class Position(NamedTuple):
    """Where something is in a file; both count from 1."""

    line: int
    column: int


START = Position(1, 1)


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Mistake:
    path: str
    line: int
    column: int
    field: str  # like `cache.ttl`; empty when the whole file or directory is meant
    message: str
    hint: str  # what to do about it

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}:{self.line}:{self.column}: {field}{self.message}{hint}"


def mistake(path: str, position: Position, message: str, hint: str, *, field: str = "") -> Mistake:
    return Mistake(
        path=path,
        line=position.line,
        column=position.column,
        field=field,
        message=message,
        hint=hint,
    )


def shown(text: str) -> str:
    """Text from a file on one short line, whatever is in it."""
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = f"{text[:SHOWN_CHARACTERS_MAX]}..."
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def quoted(text: str) -> str:
    return f"'{shown(text)}'"


def listed(words: list[str], last: str = "and") -> str:
    """`a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
