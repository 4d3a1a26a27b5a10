"""How the command line speaks: tables and JSON on stdout, one line per mistake on stderr.

On a terminal tables are drawn and coloured (NO_COLOR turns colours off); into a pipe they are
tab-separated lines under a header line, which never change with the width of a window. What came
from outside, like a counter's name, is shown with its control characters escaped.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


class ExitCode(IntEnum):
    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    UNKNOWN = 4
    # Only where it is asked for: there is something to do, and it can be done.
    CHANGES = 5
    INTERRUPTED = 130
    # What a shell shows for a program that SIGPIPE ended: the reader of our output went away.
    PIPE_CLOSED = 141


class Failure(Exception):
    """Ends a command: `message` says what happened, to what, and what to do now."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class Column:
    title: str
    right: bool = False  # numbers
    style: str = ""
    # Dropped from drawn tables in which no row has it.
    optional: bool = False
    # Instead of `style`, for each cell of a drawn table by what it says.
    style_of: Callable[[str], str] | None = None
    # Never cut into lines, so that others are where room is short.
    whole: bool = False


class _Console(Console):
    def on_broken_pipe(self) -> None:
        close_pipe()


def close_pipe() -> None:
    """Ends the program quietly when whoever read its output has gone."""
    # Python flushes stdout once more at exit, which would fail as loudly again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(ExitCode.PIPE_CLOSED)


def is_terminal(stream: IO[str] | None = None) -> bool:
    return (stream or sys.stdout).isatty()


def console(stream: IO[str] | None = None) -> Console:
    """A console for stdout, or for `stream`. Made anew each time: the streams can be replaced."""
    stream = stream or sys.stdout
    return _Console(
        file=stream,
        force_terminal=stream.isatty(),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def say(text: str, style: str = "") -> None:
    """One line on stdout."""
    if is_terminal():
        console().print(Text(printable(text), style=style))
        return
    write_line(printable(text))


def write_line(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        close_pipe()


def complain(message: str) -> None:
    """One line on stderr, whatever is in the message."""
    line = Text()
    line.append("tally:", style="bold red")
    line.append(" " + printable(" ".join(message.split())))
    console(sys.stderr).print(line)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document, for programs. Field names are stable."""
    write_line(json.dumps(document, indent=2, ensure_ascii=False))


def print_json_line(document: Mapping[str, Any]) -> None:
    write_line(json.dumps(document, ensure_ascii=False))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    shown = [[printable(cell) for cell in row] for row in rows]
    if is_terminal():
        console().print(draw_table(columns, shown), soft_wrap=False)
        return
    write_line("\t".join(column.title for column in columns))
    for row in shown:
        write_line("\t".join(row))


def draw_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Table:
    """The table as a terminal shows it; cells are taken as they are."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    kept = [
        index
        for index, column in enumerate(columns)
        if not column.optional or any(row[index] for row in rows)
    ]
    for index in kept:
        column = columns[index]
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            style=column.style,
            overflow="fold",
            no_wrap=column.whole,
        )
    for row in rows:
        table.add_row(*(_cell(columns[index], row[index]) for index in kept))
    return table


def _cell(column: Column, text: str) -> Text:
    return Text(text, style="" if column.style_of is None else column.style_of(text))
