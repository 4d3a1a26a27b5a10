"""The fields of a namespace file, their ranges and what they mean.

The loader validates with this model, and editors with what `schema` makes of it.
"""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.json_schema import WithJsonSchema

from control_plane.files.durations import format_span
from control_plane.files.mistakes import listed
from control_plane.files.sections import (
    SECTIONS,
    CacheFields,
    HistoryFields,
    LimitsFields,
    RollingWindowFields,
    check_step,
    without_default,
    without_null,
)
from control_plane.files.values import duration_between, duration_schema, own_error
from counter.namespaces import (
    HISTORY_STEPS_MAX,
    MAX_DELTA_DEFAULT,
    MAX_DELTA_LIMIT,
    NAMESPACE_NAME_BYTES_MAX,
    NO_LIMITS,
    Cardinality,
    Definition,
    HistoryStep,
    Strategy,
)

__all__ = ["NAME_PATTERN", "ONLY_WITH", "SECTIONS", "NamespaceFile"]

NAME_PATTERN = r"^[a-z][a-z0-9_-]*$"
# Text may have several lines and nothing that would be six bytes in JSON.
TEXT_PATTERN = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
DESCRIPTION_CHARACTERS_MAX = 1_000
OWNER_CHARACTERS_MAX = 200
# A store may forget in whole seconds only, so less than one would mean nothing.
DEDUPE_TTL_MS_MIN = 1_000
DEDUPE_TTL_MS_MAX = 86_400_000

# The fields that do not go with every strategy.
ONLY_WITH: dict[str, frozenset[Strategy]] = {
    "limits.counters": frozenset(Strategy) - {Strategy.BEST_EFFORT},
    "dedupe_ttl": frozenset({Strategy.BEST_EFFORT}),
    "shadow": frozenset({Strategy.BEST_EFFORT}),
    "history": frozenset(Strategy) - {Strategy.BEST_EFFORT},
    "rolling_window": frozenset({Strategy.ROLLING_WINDOW}),
}
# And those that a strategy cannot be without.
REQUIRED_WITH = {"rolling_window": Strategy.ROLLING_WINDOW}
# What best_effort can be cut over to: its counts become those of a log.
SHADOWS = (Strategy.EVENTUAL,)
_SHADOW_LINES = [f"'shadow: {each}'" for each in SHADOWS]

DedupeTtl = Annotated[
    int | None,
    BeforeValidator(duration_between(DEDUPE_TTL_MS_MIN, DEDUPE_TTL_MS_MAX)),
    duration_schema(DEDUPE_TTL_MS_MIN, DEDUPE_TTL_MS_MAX, "10m", "1h", "1d"),
]
Shadow = Annotated[
    Strategy | None, WithJsonSchema({"type": "string", "enum": [str(each) for each in SHADOWS]})
]


class NamespaceFile(BaseModel):
    """A namespace of counters: what it is for, and how its counters behave."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    namespace: str = Field(
        description="The name that callers use: a to z, 0 to 9, _ and -, with a letter first. The "
        "file is NAME.yaml.",
        pattern=NAME_PATTERN,
        max_length=NAMESPACE_NAME_BYTES_MAX,
    )
    description: str = Field(
        default="",
        description=f"What is counted here, in up to {DESCRIPTION_CHARACTERS_MAX:,} characters.",
        max_length=DESCRIPTION_CHARACTERS_MAX,
        pattern=TEXT_PATTERN,
        examples=["Plays per title"],
    )
    owner: str = Field(
        default="",
        description=f"Whom to ask about it, in up to {OWNER_CHARACTERS_MAX} characters.",
        max_length=OWNER_CHARACTERS_MAX,
        pattern=TEXT_PATTERN,
        examples=["playback-team"],
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
        description=f"The largest delta of one add, in either direction: 1 to {MAX_DELTA_LIMIT}.",
        ge=1,
        le=MAX_DELTA_LIMIT,
    )
    limits: LimitsFields | None = Field(
        default=None,
        description="What callers may do at most. Left out: what the platform takes.",
        examples=[{"adds_per_s": 50_000}],
        json_schema_extra=without_null,
    )
    cache: CacheFields = Field(
        default_factory=CacheFields, description="How long counts are kept in caches."
    )
    dedupe_ttl: DedupeTtl = Field(
        default=None,
        description="With strategy best_effort only: how long a token is remembered, "
        f"{format_span(DEDUPE_TTL_MS_MIN, DEDUPE_TTL_MS_MAX)}. Without it a retried add may count "
        "twice.",
        json_schema_extra=without_default,
    )
    shadow: Shadow = Field(
        default=None,
        strict=False,
        description="With strategy best_effort only: adds are written for this strategy too, to be "
        "compared before `tally cutover` changes to it. Only eventual is possible.",
        json_schema_extra=without_default,
    )
    history: list[HistoryFields] = Field(
        default_factory=list,
        description="Not with strategy best_effort: what each count was at the end of past steps. "
        f"1 to {HISTORY_STEPS_MAX} steps, finest first, each a multiple of the one before and kept "
        "longer. Left out: no history.",
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
        json_schema_extra=without_null,
    )

    @field_validator("limits")
    @classmethod
    def _at_least_one_that_can_be_kept(
        cls, limits: LimitsFields | None, info: ValidationInfo
    ) -> LimitsFields | None:
        if limits is None:
            return limits
        if not limits.model_fields_set:
            raise own_error("is empty", "write 'limits: {adds_per_s: 50000}', or remove it")
        if limits.counters is not None and info.data.get("strategy") is Strategy.BEST_EFFORT:
            hint = "remove it: the counters of best_effort are in no table that could be counted"
            raise own_error("is not for strategy best_effort", hint, at=("counters",))
        return limits

    @field_validator("dedupe_ttl")
    @classmethod
    def _only_best_effort(cls, dedupe_ttl_ms: int | None, info: ValidationInfo) -> int | None:
        strategy = info.data.get("strategy")
        if dedupe_ttl_ms is not None and strategy not in (None, Strategy.BEST_EFFORT):
            hint = f"remove it: {strategy} counts every token exactly once without it"
            raise own_error("is only for strategy best_effort", hint)
        return dedupe_ttl_ms

    @field_validator("shadow")
    @classmethod
    def _possible_shadow(cls, shadow: Strategy | None, info: ValidationInfo) -> Strategy | None:
        strategy = info.data.get("strategy")
        if shadow is None:
            return shadow
        if strategy not in (None, Strategy.BEST_EFFORT):
            hint = f"remove it: from {strategy} to any other exact strategy changes at once"
            raise own_error("is only for strategy best_effort", hint)
        if shadow not in SHADOWS:
            hint = f"write {listed(_SHADOW_LINES, 'or')}"
            if shadow is not Strategy.BEST_EFFORT:
                hint += f": after the cutover it can become {shadow} at once"
            raise own_error(f"'{shadow}' cannot be a shadow", hint)
        return shadow

    @field_validator("history")
    @classmethod
    def _folded_and_finest_first(
        cls, history: list[HistoryFields], info: ValidationInfo
    ) -> list[HistoryFields]:
        if info.data.get("strategy") is Strategy.BEST_EFFORT:
            hint = "remove it, or choose another strategy: best_effort folds nothing"
            if info.data.get("shadow") is not None:
                hint = "remove it, and add it after the cutover: best_effort has no history"
            raise own_error("is not for strategy best_effort", hint)
        for position in range(1, len(history)):
            check_step(history[:position], history[position])
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
            limits=NO_LIMITS if self.limits is None else self.limits.limits(),
            shadow=self.shadow,
        )
