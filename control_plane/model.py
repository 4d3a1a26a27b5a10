"""The fields of a namespace file, their ranges and what they mean.

The loader validates with this model, and editors can: `NamespaceFile.model_json_schema()`.
"""

from collections.abc import Callable
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
from pydantic_core import PydanticCustomError

from control_plane import durations
from control_plane.mistakes import quoted
from counter.namespaces import (
    CACHE_LOCAL_TTL_MS_DEFAULT,
    CACHE_TTL_MS_DEFAULT,
    CACHE_TTL_MS_MAX,
    MAX_DELTA_DEFAULT,
    MAX_DELTA_LIMIT,
    NAMESPACE_NAME_BYTES_MAX,
    Cardinality,
    Definition,
    Strategy,
)

NAME_PATTERN = r"^[a-z][a-z0-9_-]*$"
DESCRIPTION_CHARACTERS_MAX = 1_000
OWNER_CHARACTERS_MAX = 200
# A store may forget in whole seconds only, so less than one would mean nothing.
DEDUPE_TTL_MS_MIN = 1_000
DEDUPE_TTL_MS_MAX = 86_400_000

# The type of the errors that bring their own message and hint.
OWN_ERROR = "tally"


def own_error(message: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError(OWN_ERROR, "{message}", {"message": message, "hint": hint})


def duration_between(min_ms: int, max_ms: int) -> Callable[[object], object]:
    """A validator that turns `5s` into 5000, within the range."""
    span = f"from {durations.format_ms(min_ms)} to {durations.format_ms(max_ms)}"

    def duration_ms(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return value  # the type's own check refuses it
        if isinstance(value, int) or value.isdecimal():
            written = str(value)
            hint = "write 0s" if value in (0, "0") else f"write {written}s or {written}ms"
            raise own_error(f"{quoted(written)} has no unit", hint)
        milliseconds = durations.parse_ms(value)
        if milliseconds is None:
            meant_ms = durations.meant_ms(value)
            example = durations.EXAMPLES if meant_ms is None else durations.format_ms(meant_ms)
            raise own_error(
                f"{quoted(value)} is not a whole number with a unit", f"write {example}"
            )
        if not min_ms <= milliseconds <= max_ms:
            raise own_error(f"{quoted(value)} is out of range", f"write a duration {span}")
        return milliseconds

    return duration_ms


DURATION_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": durations.PATTERN, "examples": ["500ms", "5s", "2m", "1h"]}
)
CacheTtl = Annotated[int, BeforeValidator(duration_between(0, CACHE_TTL_MS_MAX)), DURATION_SCHEMA]
DedupeTtl = Annotated[
    int | None,
    BeforeValidator(duration_between(DEDUPE_TTL_MS_MIN, DEDUPE_TTL_MS_MAX)),
    DURATION_SCHEMA,
]


def _as_written(milliseconds: int) -> Any:
    return {"default": durations.format_ms(milliseconds)}


def _without_default(schema: dict[str, Any]) -> None:
    # The default cannot be written down: it is to leave the field out.
    del schema["default"]


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
            ttl = durations.format_ms(ttl_ms)
            message = (
                f"'{durations.format_ms(local_ttl_ms)}' is longer than cache.ttl, which is {ttl}"
            )
            raise own_error(message, f"write {ttl} or less, or make cache.ttl longer")
        return local_ttl_ms


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
        "seconds behind) or accurate (exact, with every add acknowledged before the read).",
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
        description="With strategy best_effort only: how long a token is remembered, 1s to 24h. "
        "Without it a retried add may count twice.",
        json_schema_extra=_without_default,
    )

    @field_validator("dedupe_ttl")
    @classmethod
    def _only_best_effort(cls, dedupe_ttl_ms: int | None, info: ValidationInfo) -> int | None:
        strategy = info.data.get("strategy")
        if dedupe_ttl_ms is not None and strategy not in (None, Strategy.BEST_EFFORT):
            hint = f"remove it: {strategy} counts every token exactly once without it"
            raise own_error("is only for strategy best_effort", hint)
        return dedupe_ttl_ms

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
        )
