"""Reads the adds of a CSV or JSON Lines file one line at a time, whatever its size.

A line is a row of its own, so line numbers are exact and one broken quote spoils one row: names
with line breaks in them need JSON Lines.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import typer

from counter.tokens import Token
from tally.commands.values import parse_delta, parse_time_ns
from tally.output import Failure

LINE_BYTES_MAX = 64 * 1024
COLUMNS = ("counter", "delta", "token", "generation_time")
# Written to token files beside the columns above, and of no meaning in an import.
LINE_COLUMN = "line"
JSON_SUFFIXES = (".jsonl", ".ndjson")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    line: int
    counter: str
    delta: int
    token: Token | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BadLine:
    line: int
    problem: str


class _Bad(Exception):
    """What is wrong with the line at hand."""


class BatchFile:
    """The rows and the bad lines of a file, in order."""

    def __init__(self, stream: IO[bytes], *, name: str) -> None:
        self.bytes_read = 0
        self._stream = stream
        self._name = name
        # None: not decided before the first line.
        self._columns: Sequence[str] | None = None
        self._parse: Callable[[str], dict[str, str] | None] | None = None

    def __iter__(self) -> Iterator[Row | BadLine]:
        for number, line in enumerate(self._lines(), start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                row = self._row(number, text) if text.strip() else None
            except UnicodeDecodeError:
                yield BadLine(line=number, problem="is not UTF-8")
            except _Bad as bad:
                yield BadLine(line=number, problem=str(bad))
            else:
                if row is not None:
                    yield row

    def _lines(self) -> Iterator[bytes]:
        number = 0
        while line := self._stream.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise Failure(
                    f"line {number} of {self._name} is longer than {LINE_BYTES_MAX:,} bytes: this "
                    "is not a file of adds. Write one add per line, as counter,delta."
                )
            self.bytes_read += len(line)
            yield line

    def _row(self, number: int, text: str) -> Row | None:
        if self._parse is None:
            is_json = self._name.endswith(JSON_SUFFIXES) or (
                self._name == "-" and text.lstrip().startswith("{")
            )
            self._parse = _json_fields if is_json else self._csv_fields
        fields = self._parse(text)
        return None if fields is None else _row_of(number, fields)

    def _csv_fields(self, text: str) -> dict[str, str] | None:
        try:
            cells = [cell.strip() for cell in next(csv.reader([text], strict=True))]
        except csv.Error as error:
            raise _Bad(f"is not CSV: {error}") from error
        if self._columns is None:
            header = self._header(cells)
            self._columns = header or COLUMNS
            if header:
                return None
        if len(cells) > len(self._columns):
            raise _Bad(f"has {len(cells)} columns, where there are {len(self._columns)}")
        return dict(zip(self._columns, cells, strict=False))

    def _header(self, cells: list[str]) -> Sequence[str] | None:
        """The columns that the first line names; None if it is a row already."""
        names = [cell.lower() for cell in cells]
        if "counter" not in names or "delta" not in names:
            return None
        unknown = [name for name in names if name not in (*COLUMNS, LINE_COLUMN)]
        if unknown:
            raise Failure(
                f"{self._name} has a column {unknown[0]!r}, which means nothing here. "
                f"The columns are: {', '.join(COLUMNS)}."
            )
        return tuple(names)


def check_every_line(path: Path) -> list[BadLine]:
    """All bad lines of a file, before any of it is sent."""
    with path.open("rb") as stream:
        return [each for each in BatchFile(stream, name=str(path)) if isinstance(each, BadLine)]


def _json_fields(text: str) -> dict[str, str]:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Bad(f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _Bad('is not a JSON object like {"counter": "a", "delta": 1}')
    unknown = [name for name in document if name not in (*COLUMNS, LINE_COLUMN)]
    if unknown:
        raise _Bad(f"has a field {unknown[0]!r}; the fields are: {', '.join(COLUMNS)}")
    if not isinstance(document.get("counter", ""), str):
        raise _Bad("has a counter that is not a string")
    return {name: str(value) for name, value in document.items() if value is not None}


def _row_of(number: int, fields: dict[str, str]) -> Row:
    counter, delta = fields.get("counter", ""), fields.get("delta", "")
    if not counter:
        raise _Bad("has no counter")
    if not delta:
        raise _Bad("has no delta")
    token, time = fields.get("token", ""), fields.get("generation_time", "")
    if bool(token) != bool(time):
        present, missing = ("token", "generation_time") if token else ("generation_time", "token")
        raise _Bad(f"has a {present} without a {missing}: they come together")
    try:
        f"{counter}{token}".encode()
    except UnicodeEncodeError as error:
        raise _Bad("has half of a character, a lone surrogate, in its text") from error
    try:
        return Row(
            line=number,
            counter=counter,
            delta=parse_delta(delta),
            token=Token(token=token, generation_time_ns=parse_time_ns(time)) if token else None,
        )
    except typer.BadParameter as error:
        raise _Bad(error.message) from error
