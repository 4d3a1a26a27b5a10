"""What single values in our files may be, and how a check says what is wrong and what helps."""

from collections.abc import Callable

from pydantic import WithJsonSchema
from pydantic_core import PydanticCustomError

from control_plane import durations
from control_plane.durations import format_ms
from control_plane.mistakes import listed, quoted

NUMBER_DIGITS_MAX = 12
# The type of the errors that bring their own message and hint.
OWN_ERROR = "tally"


def own_error(message: str, hint: str, *, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """`at`: where it is within the value that is being validated."""
    context = {"message": message, "hint": hint, "at": at}
    return PydanticCustomError(OWN_ERROR, "{message}", context)


def duration_between(min_ms: int, max_ms: int) -> Callable[[object], object]:
    """A validator that turns `5s` into 5000, within the range."""
    span = f"from {format_ms(min_ms)} to {format_ms(max_ms)}"

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
        if len(number) <= NUMBER_DIGITS_MAX and min_ms <= int(number) * unit_ms <= max_ms
    ]
    if not fitting:
        return f"write a duration from {format_ms(min_ms)} to {format_ms(max_ms)}"
    if int(number) == 0:
        return "write 0s"
    # What is mostly meant, where the range allows it.
    likely = [each for each in (f"{number}s", f"{number}ms") if each in fitting]
    return f"write {listed(likely or fitting, 'or')}"


DURATION = {"type": "string", "pattern": durations.PATTERN}
DURATION_SCHEMA = WithJsonSchema({**DURATION, "examples": ["500ms", "5s", "2m", "1h"]})
