"""`tally verify`: a recorded history of calls, checked against the promises. Calls no server."""

from pathlib import Path
from typing import Annotated

import typer

from tally.commands.connection import JsonOption
from tally.output import Column, ExitCode, Failure, print_json, print_table, say
from tally.verify.check import Report, check
from tally.verify.history import Call, HistoryMistake, read_history
from tally.verify.violation import Rule, Violation

VERIFY_FIELDS = (
    "JSON: history, calls, counters, counters_read_whole, tokens, tokens_unsettled, rules, a list "
    "of: rule, promise, checked, violations; violations, a list of: rule, counter, why, lines."
)
_SHOWN_MAX = 20


def verify(
    history: Annotated[
        Path,
        typer.Argument(
            metavar="HISTORY", help="JSON Lines, one call each: docs/verify.md.", show_default=False
        ),
    ],
    json: JsonOption = False,
) -> int:
    """Check a recorded history of calls: each count explained, each token's outcome definite."""
    report = check(_calls(history))
    if json:
        print_json(_document(history, report))
    else:
        _print(report)
    return ExitCode.REFUSED if report.violations else ExitCode.OK


def _calls(path: Path) -> list[Call]:
    try:
        with path.open("rb") as stream:
            return list(read_history(stream))
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}.", ExitCode.USAGE) from error
    except HistoryMistake as mistake:
        raise Failure(f"{path}: {mistake}.", ExitCode.USAGE) from mistake


def _print(report: Report) -> None:
    say(
        f"calls: {report.calls}, tokens: {report.tokens} ({report.tokens_unsettled} of unknown "
        f"outcome), counters: {report.counters} ({report.counters_read_whole} read to the last "
        "event)"
    )
    print_table(
        [
            Column(title="rule", style="bold"),
            Column(title="checked", right=True),
            Column(title="violations", right=True),
            Column(title="promise"),
        ],
        [
            (rule.value, str(checked), str(_violations(report, rule)), rule.promise)
            for rule, checked in report.checked.items()
        ],
    )
    for violation in report.violations[:_SHOWN_MAX]:
        say(str(violation), style="red")
    if len(report.violations) > _SHOWN_MAX:
        say(f"... and {len(report.violations) - _SHOWN_MAX} more; --json has them all")


def _violations(report: Report, rule: Rule) -> int:
    return sum(each.rule is rule for each in report.violations)


def _document(path: Path, report: Report) -> dict[str, object]:
    return {
        "history": str(path),
        "calls": report.calls,
        "counters": report.counters,
        "counters_read_whole": report.counters_read_whole,
        "tokens": report.tokens,
        "tokens_unsettled": report.tokens_unsettled,
        "rules": [
            {
                "rule": rule.value,
                "promise": rule.promise,
                "checked": checked,
                "violations": _violations(report, rule),
            }
            for rule, checked in report.checked.items()
        ],
        "violations": [_violation_document(each) for each in report.violations],
    }


def _violation_document(violation: Violation) -> dict[str, object]:
    return {
        "rule": violation.rule.value,
        "counter": violation.counter,
        "why": violation.why,
        "lines": [call.line for call in violation.calls],
    }
