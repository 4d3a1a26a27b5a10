"""A namespace's fields as an admin would write them in YAML, by dotted name."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from control_plane.files.durations import format_ms
from counter.namespaces import Definition, HistoryStep

# What YAML reads as text without quotes, whatever the field and the reader.
_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9 _./@-]*[A-Za-z0-9])?")
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def written_text(text: str) -> str:
    """Plain where that is safe, else in quotes; empty stays empty: the field is left out."""
    if not text or (_PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    if character == "\n":
        return "\\n"
    code = ord(character)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    name: str  # as in the file, like `cache.ttl`
    attribute: str  # of a Definition, like `cache_ttl_ms`
    write: Callable[[Any], str] = str

    def value(self, definition: Definition) -> Any:
        return attrgetter(self.attribute)(definition)

    def written(self, definition: Definition) -> str:
        """Empty: left out."""
        value = self.value(definition)
        return "" if value is None else self.write(value)


# All but the name, which tells namespaces apart, and the history, which is a list.
FIELDS = (
    Field(name="description", attribute="description", write=written_text),
    Field(name="owner", attribute="owner", write=written_text),
    Field(name="strategy", attribute="strategy"),
    Field(name="shadow", attribute="shadow"),
    Field(name="cardinality", attribute="cardinality"),
    Field(name="max_delta", attribute="max_delta"),
    Field(name="cache.ttl", attribute="cache_ttl_ms", write=format_ms),
    Field(name="cache.local_ttl", attribute="cache_local_ttl_ms", write=format_ms),
    Field(name="dedupe_ttl", attribute="dedupe_ttl_ms", write=format_ms),
    Field(name="rolling_window.length", attribute="rolling_window_ms", write=format_ms),
    Field(name="limits.adds_per_s", attribute="limits.adds_per_s"),
    Field(name="limits.reads_per_s", attribute="limits.reads_per_s"),
    Field(name="limits.counters", attribute="limits.counters"),
    Field(name="limits.batch_items", attribute="limits.batch_items"),
    Field(name="limits.names", attribute="limits.names", write=written_text),
)
HISTORY = "history"


def written_step(step: HistoryStep) -> str:
    return f"{{step: {format_ms(step.step_ms)}, retention: {format_ms(step.retention_ms)}}}"


def given(definition: Definition) -> Iterator[tuple[str, str]]:
    """The fields whose value is another than if they were left out, and each step of history."""
    plain = Definition(name=definition.name, strategy=definition.strategy)
    for field in FIELDS:
        if field.name == "strategy" or field.value(definition) != field.value(plain):
            yield field.name, field.written(definition)
    for step in definition.history:
        yield HISTORY, written_step(step)
