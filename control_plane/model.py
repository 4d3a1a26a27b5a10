"""The fields of a namespace file, their ranges and what they mean.

The loader validates with this model, and editors can: `NamespaceFile.model_json_schema()`.
"""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from control_plane.durations import format_ms
from control_plane.mistakes import listed
from control_plane.values import DURATION, DURATION_SCHEMA, duration_between, own_error
from counter.namespaces import (
    CACHE_LOCAL_TTL_MS_DEFAULT,
    CACHE_TTL_MS_DEFAULT,
    CACHE_TTL_MS_MAX,
    HISTORY_RETENTION_MS_MAX,
    HISTORY_RETENTION_STEPS_MAX,
    HISTORY_RETENTION_STEPS_MIN,
    HISTORY_STEP_MS_MAX,
    HISTORY_STEP_MS_MIN,
    HISTORY_STEPS_MAX,
    MAX_DELTA_DEFAULT,
    MAX_DELTA_LIMIT,
    NAMESPACE_NAME_BYTES_MAX,
    ROLLING_WINDOW_MS_MAX,
    ROLLING_WINDOW_MS_MIN,
    Cardinality,
    Definition,
    HistoryStep,
    Strategy,
)
from counter.windows import MS_PER_DAY

NAME_PATTERN = r"^[a-z][a-z0-9_-]*$"
DESCRIPTION_CHARACTERS_MAX = 1_000
OWNER_CHARACTERS_MAX = 200
# A store may forget in whole seconds only, so less than one would mean nothing.
DEDUPE_TTL_MS_MIN = 1_000
DEDUPE_TTL_MS_MAX = 86_400_000

# Steps of history begin and end with the day, and nothing is finer than a minute.
_STEPS_MS = [
    step_ms
    for step_ms in range(HISTORY_STEP_MS_MIN, HISTORY_STEP_MS_MAX + 1, 60_000)
    if MS_PER_DAY % step_ms == 0
]

CacheTtl = Annotated[int, BeforeValidator(duration_between(0, CACHE_TTL_MS_MAX)), DURATION_SCHEMA]
DedupeTtl = Annotated[
    int | None,
    BeforeValidator(duration_between(DEDUPE_TTL_MS_MIN, DEDUPE_TTL_MS_MAX)),
    DURATION_SCHEMA,
]
StepLength = Annotated[
    int,
    BeforeValidator(duration_between(HISTORY_STEP_MS_MIN, HISTORY_STEP_MS_MAX)),
    WithJsonSchema({**DURATION, "examples": ["1m", "1h", "1d"]}),
]
StepRetention = Annotated[
    int,
    BeforeValidator(
        duration_between(
            HISTORY_RETENTION_STEPS_MIN * HISTORY_STEP_MS_MIN, HISTORY_RETENTION_MS_MAX
        )
    ),
    WithJsonSchema({**DURATION, "examples": ["7d", "90d", "730d"]}),
]
RollingWindowLength = Annotated[
    int,
    BeforeValidator(duration_between(ROLLING_WINDOW_MS_MIN, ROLLING_WINDOW_MS_MAX)),
    WithJsonSchema({**DURATION, "examples": ["60s", "300s", "1h"]}),
]


def _as_written(milliseconds: int) -> Any:
    return {"default": format_ms(milliseconds)}


def _without_default(schema: dict[str, Any]) -> None:
    # The default cannot be written down: it is to leave the field out.
    del schema["default"]


def _without_null(schema: dict[str, Any]) -> None:
    # Nor can null: it is what a field without a value is, which is a mistake.
    _without_default(schema)
    section, _ = schema.pop("anyOf")
    schema.update(section)


class CacheFields(BaseModel):
    """How old an answer from a cache may be."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    ttl: CacheTtl = Field(
        default=CACHE_TTL_MS_DEFAULT,
        description="How long the servers' shared cache keeps a count: 0s to 1h.",
        json_schema_extra=_as_written(CACHE_TTL_MS_DEFAULT),
    )
    local_ttl: CacheTtl = Field(
        default=CACHE_LOCAL_TTL_MS_DEFAULT,
        description="How long each server keeps a count in its own memory: at most ttl.",
        json_schema_extra=_as_written(CACHE_LOCAL_TTL_MS_DEFAULT),
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


class HistoryFields(BaseModel):
    """The state of each counter at the end of each step, kept for some time."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    step: StepLength = Field(
        description="How long a step is: whole minutes that divide a day, 1m to 1d.",
    )
    retention: StepRetention = Field(
        description="How long the state at the end of a step is kept: 10 to 100,000 steps, and "
        "at most 3650d.",
    )

    @field_validator("step")
    @classmethod
    def _divides_a_day(cls, step_ms: int) -> int:
        if step_ms not in _STEPS_MS:
            message = f"'{format_ms(step_ms)}' is not whole minutes that divide a day"
            raise own_error(message, _steps_near(step_ms, _STEPS_MS))
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


def _steps_near(step_ms: int, allowed_ms: list[int]) -> str:
    below_ms = [each for each in allowed_ms if each < step_ms][-1:]
    above_ms = [each for each in allowed_ms if each > step_ms][:1]
    return f"write {listed([format_ms(each) for each in below_ms + above_ms], 'or')}"


class RollingWindowFields(BaseModel):
    """How far back hits count."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    length: RollingWindowLength = Field(
        description="The hits of the last so many seconds count: 10s to 1h.",
    )


# Fields with fields of their own. Those of `history` are in each entry of its list.
SECTIONS: dict[str, type[BaseModel]] = {
    "cache": CacheFields,
    "history": HistoryFields,
    "rolling_window": RollingWindowFields,
}


class NamespaceFile(BaseModel):
    """A namespace of counters: what it is for, and how its counters behave."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    namespace: str = Field(
        description="The name that callers use. The file has the same name: NAME.yaml.",
        pattern=NAME_PATTERN,
        max_length=NAMESPACE_NAME_BYTES_MAX,
    )
    description: str = Field(
        default="", description="What is counted here.", max_length=DESCRIPTION_CHARACTERS_MAX
    )
    owner: str = Field(
        default="", description="Whom to ask about it.", max_length=OWNER_CHARACTERS_MAX
    )
    strategy: Strategy = Field(
        strict=False,
        description="How adds and reads work: best_effort (cheap, may be lost), eventual (exact, "
        "seconds behind), accurate (exact, with every add acknowledged before the read) or "
        "rolling_window (the hits of the last seconds or minutes, and their rate).",
    )
    cardinality: Cardinality = Field(
        default=Cardinality.MEDIUM,
        strict=False,
        description="How many counters to expect: low (under 10,000), medium (under 1,000,000) "
        "or high. Fixed once created.",
    )
    max_delta: int = Field(
        default=MAX_DELTA_DEFAULT,
        description="The largest delta of one add, in either direction.",
        ge=1,
        le=MAX_DELTA_LIMIT,
    )
    cache: CacheFields = Field(
        default_factory=CacheFields, description="How long counts are kept in caches."
    )
    dedupe_ttl: DedupeTtl = Field(
        default=None,
        description="With strategy best_effort only: how long a token is remembered, 1s to 1d. "
        "Without it a retried add may count twice.",
        json_schema_extra=_without_default,
    )
    history: list[HistoryFields] = Field(
        default_factory=list,
        description="Not with strategy best_effort: what each count was at the end of past steps. "
        "1 to 4 steps, finest first, each a multiple of the one before and kept longer. Left out: "
        "no history.",
        min_length=1,
        max_length=HISTORY_STEPS_MAX,
        examples=[[{"step": "1m", "retention": "7d"}, {"step": "1h", "retention": "90d"}]],
    )
    rolling_window: RollingWindowFields | None = Field(
        default=None,
        validate_default=True,
        description="With strategy rolling_window only, and required with it: how far back hits "
        "count.",
        examples=[{"length": "300s"}],
        json_schema_extra=_without_null,
    )

    @field_validator("dedupe_ttl")
    @classmethod
    def _only_best_effort(cls, dedupe_ttl_ms: int | None, info: ValidationInfo) -> int | None:
        strategy = info.data.get("strategy")
        if dedupe_ttl_ms is not None and strategy not in (None, Strategy.BEST_EFFORT):
            hint = f"remove it: {strategy} counts every token exactly once without it"
            raise own_error("is only for strategy best_effort", hint)
        return dedupe_ttl_ms

    @field_validator("history")
    @classmethod
    def _folded_and_finest_first(
        cls, history: list[HistoryFields], info: ValidationInfo
    ) -> list[HistoryFields]:
        if info.data.get("strategy") is Strategy.BEST_EFFORT:
            hint = "remove it, or choose another strategy: best_effort folds nothing"
            raise own_error("is not for strategy best_effort", hint)
        for position in range(1, len(history)):
            _check_step(history[:position], history[position])
        return history

    @field_validator("rolling_window")
    @classmethod
    def _with_its_strategy(
        cls, rolling_window: RollingWindowFields | None, info: ValidationInfo
    ) -> RollingWindowFields | None:
        strategy = info.data.get("strategy")
        if rolling_window is None and strategy is Strategy.ROLLING_WINDOW:
            hint = "add a line like 'rolling_window: {length: 300s}'"
            raise own_error("is required with strategy rolling_window", hint)
        if rolling_window is not None and strategy not in (None, Strategy.ROLLING_WINDOW):
            hint = "remove it, or write 'strategy: rolling_window'"
            raise own_error("is only for strategy rolling_window", hint)
        return rolling_window

    def definition(self) -> Definition:
        # A ttl below the default local_ttl, like `cache: {ttl: 0s}`, brings local_ttl down with it.
        local_ttl_ms = min(self.cache.local_ttl, self.cache.ttl)
        return Definition(
            name=self.namespace,
            strategy=self.strategy,
            description=self.description,
            owner=self.owner,
            cardinality=self.cardinality,
            max_delta=self.max_delta,
            cache_ttl_ms=self.cache.ttl,
            cache_local_ttl_ms=local_ttl_ms,
            dedupe_ttl_ms=self.dedupe_ttl,
            history=tuple(
                HistoryStep(step_ms=each.step, retention_ms=each.retention) for each in self.history
            ),
            rolling_window_ms=None if self.rolling_window is None else self.rolling_window.length,
        )


def _check_step(before: list[HistoryFields], given: HistoryFields) -> None:
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
        multiples_ms = [each for each in _STEPS_MS if each > last.step and each % last.step == 0]
        raise own_error(message, _steps_near(given.step, multiples_ms), at=(at, "step"))
    if given.retention <= last.retention:
        message = (
            f"'{format_ms(given.retention)}' is not longer than {format_ms(last.retention)}, "
            f"for which steps of {last_step} are kept"
        )
        hint = "keep the longer step for longer, or remove it"
        raise own_error(message, hint, at=(at, "retention"))
