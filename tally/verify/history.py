"""A recorded history: one call per line, as clients saw it.

Times of calls (`invoked_ns`, `completed_ns`) come from one clock for all clients; times of events
(`generation_time_ns`, `complete_through_ns`, `at_least_ns`, `as_of_ns`, `from_ns`) from the
platform. The two are never compared with each other.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from typing import IO, Any

LINE_BYTES_MAX = 64 * 1024


class CallKind(Enum):
    ADD = "add"
    CLEAR = "clear"
    GET = "get"
    GROWTH = "growth"  # what was added in a range of time, whether or not the counter was cleared
    TOKEN_STATUS = "token_status"


class Outcome(Enum):
    OK = "ok"  # it happened; of token_status: applied
    FAIL = (
        "fail"  # a refusal that promises that this call did nothing; of token_status: not applied
    )
    UNKNOWN = "unknown"  # anything else; of token_status: pending, or no answer


# The refusal that speaks of the token and not only of the call: it was not applied, and never will
# be, whichever call sent it.
TOKEN_EXPIRED = "TOKEN_EXPIRED"


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    client: str
    call: CallKind
    namespace: str
    counter: str
    invoked_ns: int
    completed_ns: int | None = None  # None: no answer came
    outcome: Outcome
    # The reason of a refusal, as the server named it.
    reason: str = ""
    # Of add, clear and token_status; of get: the add that was made with it, which it must show.
    token: str = ""
    generation_time_ns: int = 0
    delta: int | None = None  # of add
    # Of get and growth: what was asked for, and what came.
    accurate: bool = False  # answered from rollup and tail: includes what was acknowledged before
    at_least_ns: int | None = None
    as_of_ns: int | None = None  # a past time: the answer counts nothing that is later
    from_ns: int | None = None  # counts only from this time on: growth, and rolling windows
    count: int | None = None
    complete_through_ns: int | None = None  # None: the platform does not know
    epoch: int | None = None
    # Where the call stands in its file; 0: it was not read from one.
    line: int = 0

    @property
    def is_write(self) -> bool:
        return self.call in (CallKind.ADD, CallKind.CLEAR)

    @property
    def is_read(self) -> bool:
        return self.call in (CallKind.GET, CallKind.GROWTH)

    @property
    def settles_token(self) -> bool:
        """Whether the answer says what became of the token, and not of this call alone."""
        if self.outcome is Outcome.FAIL:
            return self.call is CallKind.TOKEN_STATUS or self.reason == TOKEN_EXPIRED
        return self.outcome is Outcome.OK and not self.is_read

    @property
    def where(self) -> str:
        """How a message names the call."""
        what = f"{self.call.value} by {self.client}"
        return f"line {self.line} ({what})" if self.line else what


class HistoryMistake(Exception):
    """A line that is no call; the message says which line, and what is wrong with it."""


def read_history(stream: IO[bytes]) -> Iterator[Call]:
    """The calls of a JSON Lines file, each with its line. Empty lines are passed over."""
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise HistoryMistake(f"line {number} is longer than {LINE_BYTES_MAX:,} bytes")
        if line.strip():
            try:
                yield call_from(line, line_number=number)
            except HistoryMistake as mistake:
                raise HistoryMistake(f"line {number} {mistake}") from mistake


def write_history(calls: Iterable[Call], stream: IO[bytes]) -> None:
    for call in calls:
        stream.write(json.dumps(document_of(call), ensure_ascii=False).encode() + b"\n")


def document_of(call: Call) -> dict[str, Any]:
    """The call as a line says it: without what is not set."""
    document: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(call, name)
        if name in _REQUIRED or value != default:
            document[name] = value.value if isinstance(value, Enum) else value
    return document


def call_from(text: bytes | str, *, line_number: int = 0) -> Call:
    """Messages of mistakes go on after "line N"."""
    try:
        document: Any = json.loads(text)
    except UnicodeDecodeError as error:
        raise HistoryMistake("is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise HistoryMistake(f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise HistoryMistake("is not a JSON object")
    unknown = [name for name in document if name not in _DEFAULTS]
    if unknown:
        raise HistoryMistake(f"has a field {unknown[0]!r}; the fields are: {', '.join(_DEFAULTS)}")
    missing = [name for name in _REQUIRED if name not in document]
    if missing:
        raise HistoryMistake(f"has no {missing[0]}")
    for name, value in document.items():
        document[name] = _VALUES[name](name, value)
    call = Call(**document, line=line_number)
    _check_whole(call)
    return call


def _check_whole(call: Call) -> None:
    """That what belongs together is there together."""
    if call.completed_ns is not None and call.completed_ns < call.invoked_ns:
        raise HistoryMistake("was completed before it was invoked")
    if call.completed_ns is None and call.outcome is not Outcome.UNKNOWN:
        raise HistoryMistake(f"has the outcome {call.outcome.value!r} and no completed_ns")
    if call.is_read:
        if call.outcome is Outcome.OK and call.count is None:
            raise HistoryMistake(f"is a {call.call.value} that was answered, and has no count")
        if call.call is CallKind.GROWTH and call.from_ns is None:
            raise HistoryMistake("has no from_ns, which growth needs")
        return
    if not call.token:
        raise HistoryMistake(f"has no token, which {call.call.value} needs")
    if call.delta is None and call.call is CallKind.ADD:
        raise HistoryMistake("has no delta, which add needs")
    if call.delta is not None and call.call is not CallKind.ADD:
        raise HistoryMistake(f"has a delta, which {call.call.value} does not take")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise HistoryMistake(f"has {value!r} as {name}, which is not a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise HistoryMistake(f"has half of a character, a lone surrogate, in {name}") from error
    return value


def _whole_number(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise HistoryMistake(f"has {value!r} as {name}, which is not a whole number")
    if not -(2**63) <= value < 2**63:
        raise HistoryMistake(f"has a number as {name} that does not fit in 64 bits")
    return value


def _number_or_nothing(name: str, value: Any) -> int | None:
    return None if value is None else _whole_number(name, value)


def _yes_or_no(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise HistoryMistake(f"has {value!r} as {name}, which is neither true nor false")
    return value


def _one_of(kind: type[Enum]) -> Callable[[str, Any], Enum]:
    def parse(name: str, value: Any) -> Enum:
        try:
            return kind(value)
        except ValueError as error:
            known = ", ".join(each.value for each in kind)
            raise HistoryMistake(f"has {value!r} as {name}; it is one of: {known}") from error

    return parse


_VALUES: dict[str, Callable[[str, Any], Any]] = {
    "client": _text,
    "call": _one_of(CallKind),
    "namespace": _text,
    "counter": _text,
    "invoked_ns": _whole_number,
    "completed_ns": _number_or_nothing,
    "outcome": _one_of(Outcome),
    "reason": _text,
    "token": _text,
    "generation_time_ns": _whole_number,
    "delta": _number_or_nothing,
    "accurate": _yes_or_no,
    "at_least_ns": _number_or_nothing,
    "as_of_ns": _number_or_nothing,
    "from_ns": _number_or_nothing,
    "count": _number_or_nothing,
    "complete_through_ns": _number_or_nothing,
    "epoch": _number_or_nothing,
}
_DEFAULTS = {each.name: each.default for each in fields(Call) if each.name != "line"}
_REQUIRED = ("client", "call", "namespace", "counter", "invoked_ns", "outcome")
