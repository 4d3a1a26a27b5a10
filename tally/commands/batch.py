"""`tally batch`: the adds of a file, in batches, with one outcome for each line."""

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Annotated

import typer

from clients import (
    Add,
    AddOutcome,
    NamespaceUnknown,
    OutcomeUnknown,
    SyncCounterClient,
    TokenExpired,
    TokenTooOld,
    Unavailable,
)
from tally.commands.batch_file import BadLine, BatchFile, Row, check_every_line
from tally.commands.batch_progress import BatchProgress
from tally.commands.batch_report import Report
from tally.commands.connection import (
    JsonOption,
    NamespaceArgument,
    ServerOption,
    Target,
    TimeoutOption,
    calling,
    target_of,
)
from tally.commands.token_log import TokenLog
from tally.output import ExitCode, Failure

BATCH_FIELDS = (
    "JSON: namespace, file, adds, applied, duplicate, refused (a list of reason, count, message, "
    "first_lines), unknown (count, message, first_lines, first_token with token and "
    "generation_time), bad_lines (count, first: a list of line, problem), stopped_at_line, "
    "stopped_because, seconds."
)
# The SDK cuts a group into a few calls that are in flight together.
ROWS_PER_GROUP = 4_000
# A logged token that expired unused is replaced and sent again at most so often.
RENEWALS_MAX = 3


def batch(
    context: typer.Context,
    namespace: NamespaceArgument,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="CSV or .jsonl; - is stdin.", show_default=False),
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Send nothing if any line is bad.")
    ] = False,
    write_tokens: Annotated[
        Path | None,
        typer.Option(
            "--write-tokens",
            metavar="TOKENS.csv",
            help="Keep the tokens here; the same command then continues after an interruption.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Add every line of FILE: counter,delta[,token,generation_time].

    A header line is optional, and lets the columns come in any order. In .jsonl files each line is
    an object with these fields.

    Running it again adds everything again, unless the lines have tokens. For an import that can be
    repeated safely use --write-tokens: after an interruption run the same command again, and every
    line counts once.
    """
    target = target_of(context, server, timeout)
    report = Report(namespace=namespace, file=file)
    if strict and not _all_lines_good(file, report):
        return _finish(report, json=json, target=target, write_tokens=write_tokens)
    started_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(_opened(file))
        log = stack.enter_context(_token_log(write_tokens)) if write_tokens else None
        client = stack.enter_context(calling(target, namespace))
        source = BatchFile(stream, name=file)
        progress = stack.enter_context(BatchProgress(_size_bytes(file)))
        sender = _Sender(client=client, log=log, report=report)
        _send_all(source, sender, report, progress)
    report.duration_s = time.monotonic() - started_s
    return _finish(report, json=json, target=target, write_tokens=write_tokens)


def _send_all(
    source: BatchFile, sender: "_Sender", report: Report, progress: BatchProgress
) -> None:
    each_line = iter(source)
    next_line = 1
    try:
        while group := list(islice(each_line, ROWS_PER_GROUP)):
            rows = [each for each in group if isinstance(each, Row)]
            for each in group:
                if isinstance(each, BadLine):
                    report.bad(each)
            if rows and not sender.send(rows):
                following = next(each_line, None)
                report.stopped_line = following.line if following is not None else None
                return
            next_line = group[-1].line + 1
            progress.show(bytes_read=source.bytes_read, adds=report.rows)
    except KeyboardInterrupt:
        report.stop("it was interrupted", ExitCode.INTERRUPTED)
        for row in sender.in_flight:
            report.unsure(row, "interrupted before the answer came")
            next_line = row.line + 1
        report.stopped_line = next_line
    except Failure as failure:
        # Without a single add behind it there is nothing to report but the failure.
        if not report.rows:
            raise
        report.stop(failure.message, failure.exit_code)


class _Sender:
    """Sends groups of rows and writes down what became of each."""

    def __init__(
        self,
        *,
        client: SyncCounterClient,
        log: TokenLog | None,
        report: Report,
    ) -> None:
        self._client = client
        self._log = log
        self._report = report
        # Sent, and not in the report yet.
        self.in_flight: list[Row] = []

    def send(self, rows: list[Row]) -> bool:
        """False: nobody answers any more, and sending further rows would be no better."""
        logged = {row.line for row in rows if row.token is None} if self._log else set()
        rows = self._with_logged_tokens(rows)
        for renewals in range(RENEWALS_MAX + 1):
            self.in_flight = rows
            outcomes = self._call(rows)
            self.in_flight = []
            # Expired means that it was not applied and never will be: a new token is safe.
            expired = [
                row
                for row, outcome in zip(rows, outcomes, strict=True)
                if isinstance(outcome.error, TokenExpired) and row.line in logged
            ]
            if renewals == RENEWALS_MAX:
                expired = []
            again = {row.line for row in expired}
            answered = [
                self._count(row, outcome)
                for row, outcome in zip(rows, outcomes, strict=True)
                if row.line not in again
            ]
            if expired:
                rows = self._with_new_tokens(expired)
                continue
            if not any(answered):
                error = outcomes[-1].error
                assert error is not None, outcomes[-1]
                self._report.stop(error.message, ExitCode.UNREACHABLE)
            return any(answered)
        raise AssertionError("the last round leaves nothing expired")

    def _with_logged_tokens(self, rows: list[Row]) -> list[Row]:
        if self._log is None:
            return rows
        known = [
            replace(row, token=self._log.earlier(row)) if row.token is None else row for row in rows
        ]
        new = self._with_new_tokens([row for row in known if row.token is None])
        by_line = {row.line: row for row in new}
        return [by_line.get(row.line, row) for row in known]

    def _with_new_tokens(self, rows: list[Row]) -> list[Row]:
        assert self._log is not None
        fresh = [replace(row, token=self._client.new_token()) for row in rows]
        try:
            self._log.append(fresh)
        except OSError as error:
            raise Failure(
                f"cannot write the tokens: {error.strerror}. Their adds were not sent; run the "
                "same command again when there is room."
            ) from error
        return fresh

    def _call(self, rows: list[Row]) -> list[AddOutcome]:
        return self._client.batch_add(
            [Add(counter=row.counter, delta=row.delta, token=row.token) for row in rows]
        )

    def _count(self, row: Row, outcome: AddOutcome) -> bool:
        """Puts an outcome into the report. True if the server answered."""
        error = outcome.error
        if error is None and outcome.duplicate:
            self._report.duplicate += 1
        elif error is None:
            self._report.applied += 1
        elif isinstance(error, OutcomeUnknown | TokenTooOld):
            self._report.unsure(replace(row, token=outcome.token), error.message)
        elif isinstance(error, NamespaceUnknown):
            # It will be the same for every other line.
            raise Failure(error.message)
        else:
            self._report.refuse(row, error.reason, error.message)
        return not isinstance(error, OutcomeUnknown | Unavailable)


def _all_lines_good(file: str, report: Report) -> bool:
    if file == "-":
        raise typer.BadParameter("--strict reads a file twice, which stdin cannot. Give a file.")
    try:
        for bad in check_every_line(Path(file)):
            report.bad(bad)
    except OSError as error:
        raise _unreadable(file, error) from error
    if report.bad_count:
        report.stopped_line = 1
    return not report.bad_count


@contextlib.contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise _unreadable(file, error) from error
        yield stream


def _token_log(path: Path) -> TokenLog:
    try:
        return TokenLog(path)
    except OSError as error:
        raise Failure(
            f"cannot write {path}: {error.strerror}. Give --write-tokens another file."
        ) from error


def _size_bytes(file: str) -> int | None:
    return None if file == "-" else Path(file).stat().st_size


def _unreadable(file: str, error: OSError) -> Failure:
    return Failure(
        f"cannot read {file}: {error.strerror}. Give a CSV or .jsonl file, or - for stdin.",
        ExitCode.USAGE,
    )


def _finish(report: Report, *, json: bool, target: Target, write_tokens: Path | None) -> int:
    if json:
        report.print_json()
    else:
        report.print_table()
    message = _closing_words(report, target, write_tokens)
    if message:
        raise Failure(message, report.exit_code)
    return report.exit_code


def _closing_words(report: Report, target: Target, write_tokens: Path | None) -> str:
    """What the table does not say: why it stopped, and what to do about what is left."""
    words: list[str] = []
    if report.stopped_because:
        where = f" before line {report.stopped_line:,}" if report.stopped_line else ""
        words.append(f"stopped{where}: {report.stopped_because.rstrip('.')}.")
    if report.unknown.count:
        words.append(f"it is not known whether {report.unknown.count:,} of the adds were applied.")
    if not words and report.bad_count and not report.rows:
        return "no line was sent. Correct the lines that are not adds, and try again."
    if words and write_tokens is not None:
        words.append(
            f"Run the same command again: with the tokens in {write_tokens} every line counts once."
        )
    elif report.unknown.count:
        hint = report.settle_hint(target.option)
        words.append(f"Ask for the first one with: {hint}" if hint else "")
    return " ".join(words).strip()
