"""The JSON Schema of a namespace file: what editors complete and check with.

    python -m control_plane.files.schema > configs/namespace.schema.json

It is made from the model, and refuses what the loader refuses, apart from `BEYOND_THE_SCHEMA`.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from control_plane.files.model import ONLY_WITH, REQUIRED_WITH, NamespaceFile
from counter.namespaces import Strategy

# Where the schema is, seen from a folder of namespace files.
SCHEMA_PATH = "../namespace.schema.json"


def modeline(schema_path: str = SCHEMA_PATH) -> str:
    """The line of a namespace file that tells editors about the schema."""
    return f"# yaml-language-server: $schema={schema_path}"


class _WithoutTitles(GenerateJsonSchema):
    """Titles would only repeat the names of the fields."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def namespace_schema() -> dict[str, Any]:
    made = NamespaceFile.model_json_schema(schema_generator=_WithoutTitles)
    for each in made["$defs"].values():
        del each["title"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Generated from control_plane/files/model.py by 'make schema'.",
        **made,
        "title": "A namespace of Tally",
        "allOf": [_fields_with(strategy) for strategy in Strategy],
    }


def _fields_with(strategy: Strategy) -> dict[str, Any]:
    others: dict[str, Any] = {}
    for field, strategies in ONLY_WITH.items():
        if strategy not in strategies:
            section, _, name = field.rpartition(".")
            if section:
                others.setdefault(section, {"properties": {}})["properties"][name] = False
            else:
                others[name] = False
    required = [field for field, needs_it in REQUIRED_WITH.items() if needs_it is strategy]
    return {
        "if": {"properties": {"strategy": {"const": str(strategy)}}, "required": ["strategy"]},
        "then": {
            "properties": others,
            **({"required": required} if required else {}),
        },
    }


def schema_text() -> str:
    return json.dumps(namespace_schema(), indent=2) + "\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Beyond:
    """A rule of the loader that a JSON Schema cannot say."""

    rule: str
    messages: tuple[str, ...]  # of its mistakes: regular expressions, `field: message`


# docs/namespaces.md lists them. tests/properties/test_schema_properties.py finds no others.
BEYOND_THE_SCHEMA = (
    Beyond(
        rule="what YAML itself allows and Tally does not",
        messages=(
            r".*: the field is there twice",
            r".*: the (anchor|alias|tag) .* is not allowed",
            r": a second YAML document starts here",
            r"\S+: holds half a character, a lone surrogate",
        ),
    ),
    Beyond(
        rule="values that YAML readers disagree about",
        messages=(
            r"\S+: '.*' is (a number|true or false) in YAML, not text",
            r"\S+: '.*' is not a whole number in digits",
            r"\S+: '.*' may be read as octal",
            r"namespace: '.*' is not a namespace name",
        ),
    ),
    Beyond(
        rule="the file has the name of its namespace, and no other file has it",
        messages=(
            r"namespace: '.*' is in a file named '.*'",
            r"namespace: '.*' is defined in .* already",
        ),
    ),
    Beyond(
        rule="`cache.local_ttl` is at most `cache.ttl`",
        messages=(r"cache\.local_ttl: '.*' is longer than cache\.ttl, which is .*",),
    ),
    Beyond(
        rule="each step of `history` is a multiple of the one before, and kept longer",
        messages=(
            r"history\.step: '.*' is there twice",
            r"history\.step: '.*' comes after .*, which is longer",
            r"history\.step: '.*' is not a multiple of .*, the step before it",
            r"history\.retention: '.*' is not longer than .*, for which steps of .* are kept",
        ),
    ),
    Beyond(
        rule="`history.retention` is 10 to 100,000 of its steps",
        messages=(r"history\.retention: '.*' is (less|more) than .* steps of .*",),
    ),
    Beyond(
        rule="`limits.names` is a regular expression of RE2",
        messages=(r"limits\.names: '.*' is not a pattern that RE2 can read: .*",),
    ),
)


if __name__ == "__main__":
    sys.stdout.write(schema_text())
