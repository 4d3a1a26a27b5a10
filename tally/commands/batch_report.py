"""What became of the adds of an import: counted by outcome, with the first lines of each."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from tally.commands.batch_file import BadLine, Row
from tally.commands.values import format_count, format_duration, token_document, token_options
from tally.output import Column, ExitCode, print_json, print_table, say

LINES_SHOWN_MAX = 5


@dataclass(kw_only=True)
class Group:
    """Adds with the same outcome."""

    count: int = 0
    message: str = ""  # of the first one
    lines: list[int] = field(default_factory=list)

    def add(self, line: int, message: str) -> None:
        if not self.count:
            self.message = message
        self.count += 1
        if len(self.lines) < LINES_SHOWN_MAX:
            self.lines.append(line)


@dataclass(kw_only=True)
class Report:
    namespace: str
    file: str
    applied: int = 0
    duplicate: int = 0
    refused: dict[str, Group] = field(default_factory=dict)
    unknown: Group = field(default_factory=Group)
    unknown_first: Row | None = None  # with its token, where that is known
    bad_count: int = 0
    bad_first: list[BadLine] = field(default_factory=list)
    # The first line that was not sent any more, and why.
    stopped_line: int | None = None
    stopped_because: str = ""
    stopped_code: ExitCode = ExitCode.OK
    duration_s: float = 0.0

    @property
    def rows(self) -> int:
        refused = sum(group.count for group in self.refused.values())
        return self.applied + self.duplicate + refused + self.unknown.count

    @property
    def exit_code(self) -> ExitCode:
        if self.stopped_code is ExitCode.INTERRUPTED:
            return ExitCode.INTERRUPTED
        if self.unknown.count:
            return ExitCode.UNKNOWN
        if self.stopped_code is not ExitCode.OK:
            return self.stopped_code
        return ExitCode.REFUSED if self.refused or self.bad_count else ExitCode.OK

    def stop(self, because: str, code: ExitCode) -> None:
        """The rest of the file is not sent."""
        self.stopped_because, self.stopped_code = because, code

    def bad(self, line: BadLine) -> None:
        self.bad_count += 1
        if len(self.bad_first) < LINES_SHOWN_MAX:
            self.bad_first.append(line)

    def refuse(self, row: Row, reason: str, message: str) -> None:
        self.refused.setdefault(reason, Group()).add(row.line, message)

    def unsure(self, row: Row, message: str) -> None:
        if self.unknown_first is None:
            self.unknown_first = row
        self.unknown.add(row.line, message)

    def print_json(self) -> None:
        first = self.unknown_first
        document: dict[str, Any] = {
            "namespace": self.namespace,
            "file": self.file,
            "adds": self.rows,
            "applied": self.applied,
            "duplicate": self.duplicate,
            "refused": [
                {
                    "reason": reason,
                    "count": group.count,
                    "message": group.message,
                    "first_lines": group.lines,
                }
                for reason, group in self.refused.items()
            ],
            "unknown": {
                "count": self.unknown.count,
                "message": self.unknown.message,
                "first_lines": self.unknown.lines,
                "first_token": token_document(first.token) if first and first.token else None,
            },
            "bad_lines": {
                "count": self.bad_count,
                "first": [{"line": bad.line, "problem": bad.problem} for bad in self.bad_first],
            },
            "stopped_at_line": self.stopped_line,
            "stopped_because": self.stopped_because or None,
            "seconds": round(self.duration_s, 3),
        }
        print_json(document)

    def print_table(self) -> None:
        rows = [("applied", format_count(self.applied), "", "")]
        if self.duplicate:
            rows.append(("duplicate", format_count(self.duplicate), "", "counted before, once"))
        for reason, group in self.refused.items():
            rows.append((f"refused {reason}", *_cells(group)))
        if self.unknown.count:
            rows.append(("unknown", *_cells(self.unknown)))
        if self.bad_count:
            problem = f"line {self.bad_first[0].line} {self.bad_first[0].problem}"
            group = Group(
                count=self.bad_count, message=problem, lines=[bad.line for bad in self.bad_first]
            )
            rows.append(("not an add", *_cells(group)))
        print_table(
            (
                Column(title="outcome", style="cyan"),
                Column(title="lines", right=True, style="bold"),
                Column(title="at lines", optional=True),
                Column(title="why", optional=True),
            ),
            rows,
        )
        rate = self.rows / self.duration_s if self.duration_s else 0.0
        say(
            f"{format_count(self.rows)} adds in {format_duration(self.duration_s)}, "
            f"{format_count(round(rate))} adds/s"
        )

    def settle_hint(self, server_option: str) -> str:
        """The command that tells the first unknown outcome, where its token is known."""
        first = self.unknown_first
        if first is None or first.token is None:
            return ""
        names = shlex.join([self.namespace, first.counter])
        return f"tally token status {token_options(first.token)} --wait{server_option} -- {names}"


def _cells(group: Group) -> tuple[str, str, str]:
    more = ", ..." if group.count > len(group.lines) else ""
    return format_count(group.count), ", ".join(map(str, group.lines)) + more, group.message
