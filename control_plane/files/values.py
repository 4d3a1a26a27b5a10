"""What single values in our files may be, and how a check says what is wrong and what helps."""

from collections.abc import Callable, Collection

from pydantic import WithJsonSchema
from pydantic_core import PydanticCustomError

from control_plane.files import durations
from control_plane.files.duration_patterns import durations_between, durations_of
from control_plane.files.durations import format_ms, format_span
from control_plane.files.mistakes import listed, quoted

# The type of the errors that bring their own message and hint.
OWN_ERROR = "tally"


def own_error(message: str, hint: str, *, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """`at`: where it is within the value that is being validated."""
    context = {"message": message, "hint": hint, "at": at}
    return PydanticCustomError(OWN_ERROR, "{message}", context)


def duration_between(min_ms: int, max_ms: int) -> Callable[[object], object]:
    """A validator that turns `5s` into 5000, within the range."""
    span = f"from {format_span(min_ms, max_ms)}"

    def duration_ms(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return value  # the type's own check refuses it
        if isinstance(value, int) or value.isdecimal():
            written = str(value)
            raise own_error(f"{quoted(written)} has no unit", _unit_hint(written, min_ms, max_ms))
        milliseconds = durations.parse_ms(value)
        if milliseconds is None:
            meant_ms = durations.meant_ms(value)
            example = durations.EXAMPLES if meant_ms is None else format_ms(meant_ms)
            raise own_error(
                f"{quoted(value)} is not a whole number with a unit", f"write {example}"
            )
        if not min_ms <= milliseconds <= max_ms:
            raise own_error(f"{quoted(value)} is out of range", f"write a duration {span}")
        return milliseconds

    return duration_ms


def _unit_hint(number: str, min_ms: int, max_ms: int) -> str:
    fitting = [
        f"{number}{unit}"
        for unit, unit_ms in durations.UNITS_MS.items()
        if len(number) <= durations.DIGITS_MAX and min_ms <= int(number) * unit_ms <= max_ms
    ]
    if not fitting:
        return f"write a duration from {format_span(min_ms, max_ms)}"
    if int(number) == 0:
        return "write 0s"
    # What is mostly meant, where the range allows it.
    likely = [each for each in (f"{number}s", f"{number}ms") if each in fitting]
    return f"write {listed(likely or fitting, 'or')}"


DURATION_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": durations.PATTERN, "examples": ["500ms", "5s", "2m", "1h"]}
)


def duration_schema(min_ms: int, max_ms: int, *examples: str) -> WithJsonSchema:
    """What `duration_between` takes, for the JSON Schema. Editors complete with the examples."""
    hint = f"write a duration from {format_span(min_ms, max_ms)}, like {examples[0]}"
    return _pattern_schema(durations_between(min_ms, max_ms), hint, list(examples))


def steps_schema(steps_ms: Collection[int]) -> WithJsonSchema:
    """Durations that are one of these."""
    steps = [format_ms(each) for each in sorted(steps_ms)]
    return _pattern_schema(durations_of(steps_ms), f"write {listed(steps, 'or')}", steps)


def _pattern_schema(pattern: str, hint: str, examples: list[str]) -> WithJsonSchema:
    # Editors show `patternErrorMessage` in place of a pattern that nobody can read.
    return WithJsonSchema(
        {"type": "string", "pattern": pattern, "patternErrorMessage": hint, "examples": examples}
    )
