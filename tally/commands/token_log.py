"""The tokens of an import, on disk before they are used.

An import that dies leaves rows of which nobody knows whether they were counted. With their tokens
on disk the same command simply runs again: rows that were counted are duplicates, and the others
are counted now. Tokens cannot all be made at the start, because a token is only good for a few
seconds; so each group of rows gets its tokens, they reach the disk, and then the group is sent.
"""

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from counter.tokens import Token
from tally.commands.batch_file import COLUMNS, LINE_COLUMN, Row
from tally.commands.values import format_time, parse_time_ns
from tally.output import Failure

HEADER = (*COLUMNS, LINE_COLUMN)


class TokenLog:
    """Appends rows with their tokens, and finds those that an earlier run appended.

    A row whose token expired unused is appended once more with its new one, and the last one
    counts. Memory holds only those rows: an import has at most one group of them per interruption.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.resumed = path.exists() and path.stat().st_size > 0
        if self.resumed:
            self._cut_torn_line()
        self._replaced = self._out_of_order()
        self._earlier = self._in_order()
        self._next = next(self._earlier, None)
        self._stream = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._stream, lineterminator="\n")
        if path.stat().st_size == 0:
            self._writer.writerow(HEADER)

    def __enter__(self) -> "TokenLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def earlier(self, row: Row) -> Token | None:
        """The token that an earlier run gave to this row. Rows are asked for in file order."""
        while self._next is not None and self._next.line < row.line:
            self._next = next(self._earlier, None)
        if self._next is None or self._next.line != row.line:
            return None
        if (self._next.counter, self._next.delta) != (row.counter, row.delta):
            raise Failure(
                f"{self._path} has the tokens of another file: its line {row.line} was "
                f"{self._next.counter},{self._next.delta} and is {row.counter},{row.delta} now. "
                "Give --write-tokens a new file."
            )
        return self._replaced.get(row.line, self._next.token)

    def append(self, rows: Sequence[Row]) -> None:
        """Returns when the rows are on disk."""
        for row in rows:
            assert row.token is not None, row
            if "\n" in row.counter or "\r" in row.counter:
                raise Failure(
                    f"line {row.line} has a line break in its counter's name, which a file of "
                    "tokens cannot hold. Import it without --write-tokens."
                )
            time = format_time(row.token.generation_time_ns)
            self._writer.writerow((row.counter, row.delta, row.token.token, time, row.line))
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def _cut_torn_line(self) -> None:
        """A line without its end was being written when the program died, so it was never sent."""
        with self._path.open("rb+") as stream:
            position = stream.seek(0, os.SEEK_END)
            while position > 0:
                position -= 1
                stream.seek(position)
                if stream.read(1) == b"\n":
                    position += 1
                    break
            stream.truncate(position)

    def _entries(self) -> Iterator[Row]:
        if not self.resumed:
            return
        with self._path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream)
            try:
                header = next(reader, None)
                if header is not None and tuple(header) != HEADER:
                    raise ValueError("its first line is another one")
                for cells in reader:
                    yield _row_of(cells)
            except (ValueError, csv.Error, typer.BadParameter) as error:
                raise Failure(
                    f"{self._path} exists and is not a file of tokens, or is damaged in line "
                    f"{reader.line_num}: {error}. Give --write-tokens a new file."
                ) from error

    def _in_order(self) -> Iterator[Row]:
        last = 0
        for entry in self._entries():
            if entry.line > last:
                last = entry.line
                yield entry

    def _out_of_order(self) -> dict[int, Token]:
        replaced: dict[int, Token] = {}
        last = 0
        for entry in self._entries():
            if entry.line > last:
                last = entry.line
            elif entry.token is not None:
                replaced[entry.line] = entry.token
        return replaced


def _row_of(cells: Sequence[str]) -> Row:
    counter, delta, token, time, line = cells
    made = Token(token=token, generation_time_ns=parse_time_ns(time))
    return Row(line=int(line), counter=counter, delta=int(delta), token=made)
