"""The fields of a namespace file that have fields of their own: their ranges and what they mean."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from control_plane.files.durations import format_ms, format_span
from control_plane.files.mistakes import listed, quoted, shown
from control_plane.files.values import duration_between, duration_schema, own_error, steps_schema
from counter.name_patterns import compile_names
from counter.namespaces import (
    CACHE_LOCAL_TTL_MS_DEFAULT,
    CACHE_TTL_MS_DEFAULT,
    CACHE_TTL_MS_MAX,
    HISTORY_RETENTION_MS_MAX,
    HISTORY_RETENTION_STEPS_MAX,
    HISTORY_RETENTION_STEPS_MIN,
    HISTORY_STEP_MS_MAX,
    HISTORY_STEP_MS_MIN,
    LIMIT_COUNTERS_MAX,
    LIMIT_NAMES_CHARACTERS_MAX,
    LIMIT_PER_S_MAX,
    ROLLING_WINDOW_MS_MAX,
    ROLLING_WINDOW_MS_MIN,
    Limits,
)
from counter.settings import BATCH_ITEMS_MAX
from counter.windows import MS_PER_DAY

# Steps of history begin and end with the day, and nothing is finer than a minute.
STEPS_MS = [
    step_ms
    for step_ms in range(HISTORY_STEP_MS_MIN, HISTORY_STEP_MS_MAX + 1, 60_000)
    if MS_PER_DAY % step_ms == 0
]
RETENTION_MS_MIN = HISTORY_RETENTION_STEPS_MIN * HISTORY_STEP_MS_MIN

CacheTtl = Annotated[
    int,
    BeforeValidator(duration_between(0, CACHE_TTL_MS_MAX)),
    duration_schema(0, CACHE_TTL_MS_MAX, "5s", "500ms", "0s"),
]
StepLength = Annotated[
    int,
    BeforeValidator(duration_between(HISTORY_STEP_MS_MIN, HISTORY_STEP_MS_MAX)),
    steps_schema(STEPS_MS),
]
StepRetention = Annotated[
    int,
    BeforeValidator(duration_between(RETENTION_MS_MIN, HISTORY_RETENTION_MS_MAX)),
    duration_schema(RETENTION_MS_MIN, HISTORY_RETENTION_MS_MAX, "7d", "90d", "730d"),
]
RollingWindowLength = Annotated[
    int,
    BeforeValidator(duration_between(ROLLING_WINDOW_MS_MIN, ROLLING_WINDOW_MS_MAX)),
    duration_schema(ROLLING_WINDOW_MS_MIN, ROLLING_WINDOW_MS_MAX, "300s", "60s", "1h"),
]

# RE2's words (how they start) and what usually helps.
_PATTERN_HINTS = (
    ("invalid perl operator", "RE2 has no lookahead and no lookbehind: groups start with ( or (?:"),
    ("invalid escape sequence", r"RE2 has no backreferences; write \\ for a backslash itself"),
    ("trailing \\", r"write \\ for a backslash itself"),
    ("missing ]", r"close the bracket, or write \[ for the character itself"),
    ("missing )", r"close the group, or write \( for the character itself"),
    ("unexpected )", r"remove it, or write \) for the character itself"),
    ("no argument for repetition", "put before it what shall be repeated"),
    ("bad repetition operator", "repeat once only, like [a-z]+"),
    ("invalid repetition size", "repeat at most 1000 times"),
    ("invalid character class range", "write the lower end first, and - itself last: [a-z0-9_-]"),
    ("pattern too large", "repeat less, or use smaller classes of characters"),
)


def written_default(milliseconds: int) -> Any:
    return {"default": format_ms(milliseconds)}


def without_default(schema: dict[str, Any]) -> None:
    # The default cannot be written down: it is to leave the field out.
    del schema["default"]


def without_null(schema: dict[str, Any]) -> None:
    # Nor can null: it is what a field without a value is, which is a mistake.
    without_default(schema)
    value, _ = schema.pop("anyOf")
    schema.update(value)


class CacheFields(BaseModel):
    """How old an answer from a cache may be."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    ttl: CacheTtl = Field(
        default=CACHE_TTL_MS_DEFAULT,
        description="How long the servers' shared cache keeps a count: "
        f"{format_span(0, CACHE_TTL_MS_MAX)}.",
        json_schema_extra=written_default(CACHE_TTL_MS_DEFAULT),
    )
    local_ttl: CacheTtl = Field(
        default=CACHE_LOCAL_TTL_MS_DEFAULT,
        description="How long each server keeps a count in its own memory: at most ttl.",
        json_schema_extra=written_default(CACHE_LOCAL_TTL_MS_DEFAULT),
    )

    @field_validator("local_ttl")
    @classmethod
    def _within_ttl(cls, local_ttl_ms: int, info: ValidationInfo) -> int:
        ttl_ms = info.data.get("ttl")
        if ttl_ms is not None and local_ttl_ms > ttl_ms:
            ttl = format_ms(ttl_ms)
            message = f"'{format_ms(local_ttl_ms)}' is longer than cache.ttl, which is {ttl}"
            raise own_error(message, f"write {ttl} or less, or make cache.ttl longer")
        return local_ttl_ms


class LimitsFields(BaseModel):
    """What callers may do at most. What is left out has the limits of the platform only."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_extra={"minProperties": 1}
    )

    adds_per_s: int | None = Field(
        default=None,
        description="Adds and clears per second, of all servers together: "
        f"1 to {LIMIT_PER_S_MAX:,}.",
        ge=1,
        le=LIMIT_PER_S_MAX,
        examples=[50_000],
        json_schema_extra=without_null,
    )
    reads_per_s: int | None = Field(
        default=None,
        description="Counts that are read per second, of all servers together: "
        f"1 to {LIMIT_PER_S_MAX:,}.",
        ge=1,
        le=LIMIT_PER_S_MAX,
        examples=[100_000],
        json_schema_extra=without_null,
    )
    counters: int | None = Field(
        default=None,
        description=f"How many counters there may be: 1 to {LIMIT_COUNTERS_MAX:,}. Those that are "
        "there go on; adds to further ones are refused. Not with strategy best_effort.",
        ge=1,
        le=LIMIT_COUNTERS_MAX,
        examples=[1_000_000],
        json_schema_extra=without_null,
    )
    batch_items: int | None = Field(
        default=None,
        description=f"Items of one batch: 1 to {BATCH_ITEMS_MAX:,}.",
        ge=1,
        le=BATCH_ITEMS_MAX,
        examples=[1_000],
        json_schema_extra=without_null,
    )
    names: str | None = Field(
        default=None,
        description="A regular expression (RE2) that the whole name of a counter must match, of up "
        f"to {LIMIT_NAMES_CHARACTERS_MAX} characters. Adds to other names are refused.",
        min_length=1,
        max_length=LIMIT_NAMES_CHARACTERS_MAX,
        examples=["[a-z0-9:_-]+"],
        json_schema_extra=without_null,
    )

    @field_validator("names")
    @classmethod
    def _is_a_pattern(cls, names: str | None) -> str | None:
        if names is not None:
            try:
                compile_names(names)
            except ValueError as problem:
                words = shown(str(problem))
                hints = (hint for start, hint in _PATTERN_HINTS if words.startswith(start))
                hint = next(hints, "write it like '[a-z0-9:_-]+'")
                message = f"{quoted(names)} is not a pattern that RE2 can read: {words}"
                raise own_error(message, hint) from None
        return names

    def limits(self) -> Limits:
        return Limits(**self.model_dump())


class HistoryFields(BaseModel):
    """The state of each counter at the end of each step, kept for some time."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    step: StepLength = Field(
        description="How long a step is: whole minutes that divide a day, "
        f"{format_span(HISTORY_STEP_MS_MIN, HISTORY_STEP_MS_MAX)}.",
    )
    retention: StepRetention = Field(
        description="How long the state at the end of a step is kept: "
        f"{HISTORY_RETENTION_STEPS_MIN} to {HISTORY_RETENTION_STEPS_MAX:,} steps, and at most "
        f"{format_ms(HISTORY_RETENTION_MS_MAX)}.",
    )

    @field_validator("step")
    @classmethod
    def _divides_a_day(cls, step_ms: int) -> int:
        if step_ms not in STEPS_MS:
            message = f"'{format_ms(step_ms)}' is not whole minutes that divide a day"
            raise own_error(message, _steps_near(step_ms, STEPS_MS))
        return step_ms

    @field_validator("retention")
    @classmethod
    def _enough_steps_and_not_too_many(cls, retention_ms: int, info: ValidationInfo) -> int:
        step_ms = info.data.get("step")
        if step_ms is None:
            return retention_ms
        retention, step = format_ms(retention_ms), format_ms(step_ms)
        if retention_ms < (least_ms := HISTORY_RETENTION_STEPS_MIN * step_ms):
            message = f"'{retention}' is less than {HISTORY_RETENTION_STEPS_MIN} steps of {step}"
            raise own_error(message, f"write {format_ms(least_ms)} or more")
        if retention_ms > (most_ms := HISTORY_RETENTION_STEPS_MAX * step_ms):
            message = f"'{retention}' is more than {HISTORY_RETENTION_STEPS_MAX:,} steps of {step}"
            hint = f"write {most_ms // MS_PER_DAY}d or less, and keep a longer step for longer"
            raise own_error(message, hint)
        return retention_ms


def check_step(before: list[HistoryFields], given: HistoryFields) -> None:
    """Refuses a step that does not follow those before it."""
    last = before[-1]
    step, last_step = format_ms(given.step), format_ms(last.step)
    at = len(before)
    if any(each.step == given.step for each in before):
        raise own_error(f"'{step}' is there twice", "remove one of the two", at=(at, "step"))
    if given.step < last.step:
        message = f"'{step}' comes after {last_step}, which is longer"
        raise own_error(message, "write the finest step first", at=(at, "step"))
    if given.step % last.step:
        message = f"'{step}' is not a multiple of {last_step}, the step before it"
        multiples_ms = [each for each in STEPS_MS if each > last.step and each % last.step == 0]
        raise own_error(message, _steps_near(given.step, multiples_ms), at=(at, "step"))
    if given.retention <= last.retention:
        message = (
            f"'{format_ms(given.retention)}' is not longer than {format_ms(last.retention)}, "
            f"for which steps of {last_step} are kept"
        )
        hint = "keep the longer step for longer, or remove it"
        raise own_error(message, hint, at=(at, "retention"))


def _steps_near(step_ms: int, allowed_ms: list[int]) -> str:
    below_ms = [each for each in allowed_ms if each < step_ms][-1:]
    above_ms = [each for each in allowed_ms if each > step_ms][:1]
    return f"write {listed([format_ms(each) for each in below_ms + above_ms], 'or')}"


class RollingWindowFields(BaseModel):
    """How far back hits count."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    length: RollingWindowLength = Field(
        description="The hits of the last so many seconds count: "
        f"{format_span(ROLLING_WINDOW_MS_MIN, ROLLING_WINDOW_MS_MAX)}.",
    )


# By field. Those of `history` are in each entry of its list.
SECTIONS: dict[str, type[BaseModel]] = {
    "limits": LimitsFields,
    "cache": CacheFields,
    "history": HistoryFields,
    "rolling_window": RollingWindowFields,
}
