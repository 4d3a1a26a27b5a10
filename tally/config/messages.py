"""What the model found wrong, in the words of somebody who writes a config file."""

import re
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from control_plane.files.durations import parse_ms
from control_plane.files.messages import explain_number, nearest
from control_plane.files.mistakes import listed, quoted
from control_plane.files.values import OWN_ERROR
from control_plane.files.yaml_tree import Fields, Node, Scalar
from tally.config.model import ConfigFile

# What a field takes, by the kind of error that says it is something else.
_WANTED = {
    "int_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


def explain(names: Sequence[str | int], error: ErrorDetails, node: Node) -> tuple[str, str]:
    """Message and hint for an error that the model found at `node`."""
    kind = error["type"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "extra_forbidden":
        return "there is no such field", _unknown_hint([str(each) for each in names])
    if kind == OWN_ERROR:
        return context["message"], context["hint"]
    name, field = _field_of(names)
    assert field.examples, name
    example = f"{name}: {field.examples[0]}"
    if kind == "missing":
        return "is required", f"add a line like '{example}'"
    if isinstance(node, Scalar) and node.is_null:
        otherwise = "" if field.is_required() else ", or remove the line"
        return "has no value", f"write '{example}'{otherwise}"
    if kind in ("too_short", "string_too_short"):
        return "is empty", f"write '{example}'"
    if kind == "too_long":
        return f"has more than {context['max_length']} entries", "shorten it"
    if kind == "string_unicode":
        return "holds half a character, a lone surrogate", r"remove \ud800 to \udfff"
    is_duration = kind == "int_type" and parse_ms(example.rpartition(" ")[2]) is not None
    wanted = "a duration" if is_duration else _WANTED[kind]
    if not isinstance(node, Scalar):
        is_what = "a mapping" if isinstance(node, Fields) else "a list"
        return f"is {is_what}, not {wanted}", f"write '{example}'"
    if kind == "int_type" and not is_duration:
        return explain_number(node)
    if kind == "string_type":
        what = "a number" if node.is_number else "true or false"
        # Quotes help where any word will do, and not where an address is wanted.
        any_word = re.fullmatch(r"[\w-]+: [\w.-]+", example)
        hint = f'write "{node.text[:100]}"' if any_word else f"write '{example}'"
        return f"{quoted(node.text)} is {what} in YAML, not text", hint
    return f"{quoted(node.text)} is not {wanted}", f"write '{example}'"


def all_settings(section: type[BaseModel] = ConfigFile, prefix: str = "") -> list[str]:
    """All settings by their full names, like `cassandra.port`; sections are not among them."""
    found: list[str] = []
    for name, field in section.model_fields.items():
        inner = _section_of(field.annotation)
        found += [f"{prefix}{name}"] if inner is None else all_settings(inner, f"{prefix}{name}.")
    return found


def _section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, also where it may be left out; None of other fields."""
    kinds = [annotation, *get_args(annotation)]
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _field_of(names: Sequence[str | int]) -> tuple[str, FieldInfo]:
    """The setting that an error is about, and its name. In a list or mapping: the whole of it."""
    name, *inner = names
    field = ConfigFile.model_fields[str(name)]
    for each in inner:
        section = _section_of(field.annotation)
        if section is None:
            break
        name, field = each, section.model_fields[str(each)]
    return str(name), field


def _unknown_hint(names: list[str]) -> str:
    *outer, name = names
    section: type[BaseModel] | None = ConfigFile
    for each in outer:
        assert section is not None
        section = _section_of(section.model_fields[each].annotation)
    assert section is not None
    known = list(section.model_fields)
    if (meant := nearest(name, known)) is not None:
        return f"did you mean {meant}?"
    # A right name in a wrong place: under another section, or not indented.
    leaf = name.rpartition(".")[2]
    if homes := [each for each in all_settings() if each.rpartition(".")[2] == leaf]:
        home, _, leaf = homes[0].rpartition(".")
        where = f"under {home}" if home else "at the start of a line, under nothing"
        return f"{leaf} belongs {where}"
    of = f" of {'.'.join(outer)}" if outer else ""
    return f"the fields{of} are {listed(known)}"
