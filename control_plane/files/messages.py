"""What the model found wrong, in the words of somebody who writes YAML."""

import difflib
import re
from collections.abc import Collection
from typing import Any

from pydantic_core import ErrorDetails

from control_plane.files.mistakes import listed, quoted
from control_plane.files.model import NAME_PATTERN, SECTIONS, SHADOWS, NamespaceFile
from control_plane.files.values import OWN_ERROR
from control_plane.files.yaml_tree import Fields, Node, Scalar
from counter.namespaces import Cardinality, Strategy

_CHOICES = {
    "strategy": [str(each) for each in Strategy],
    "cardinality": [str(each) for each in Cardinality],
    "shadow": [str(each) for each in SHADOWS],
}
_EXAMPLES = {
    "namespace": "namespace: video_plays",
    "strategy": "strategy: eventual",
    "cardinality": "cardinality: medium",
    "max_delta": "max_delta: 1000",
    "limits": "limits: {adds_per_s: 50000}",
    "limits.adds_per_s": "adds_per_s: 50000",
    "limits.reads_per_s": "reads_per_s: 100000",
    "limits.counters": "counters: 1000000",
    "limits.batch_items": "batch_items: 1000",
    "limits.names": 'names: "[a-z0-9:_-]+"',
    "cache": "cache: {ttl: 5s, local_ttl: 500ms}",
    "cache.ttl": "ttl: 5s",
    "cache.local_ttl": "local_ttl: 500ms",
    "dedupe_ttl": "dedupe_ttl: 10m",
    "shadow": "shadow: eventual",
    "history": "history: [{step: 1m, retention: 7d}]",
    "history.step": "step: 1m",
    "history.retention": "retention: 7d",
    "rolling_window": "rolling_window: {length: 300s}",
    "rolling_window.length": "length: 300s",
}
_NO_VALUE_HINT = "give it one, or remove the line"
_CLOSE_ENOUGH = 0.6


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that was most likely meant."""
    folded = name[:100].lower().replace("-", "_")
    matches = difflib.get_close_matches(folded, known, n=1, cutoff=_CLOSE_ENOUGH)
    return matches[0] if matches else None


def explain(field: str, error: ErrorDetails, node: Node) -> tuple[str, str]:
    """Message and hint for an error that the model found at `node`.

    `field` names no place in a list: `history.step` is the step of any of its entries.
    """
    kind = error["type"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "missing":
        add = "add a line like" if "." not in field else "add it, like"
        return "is required", f"{add} '{_EXAMPLES[field]}'"
    if kind == "extra_forbidden":
        *section, name = [each for each in error["loc"] if isinstance(each, str)]
        return "there is no such field", _unknown_hint("".join(section), name)
    if kind == OWN_ERROR:
        return context["message"], context["hint"]
    if kind == "model_type" and field == "history":
        return _explain_step(node)
    if isinstance(node, Scalar) and node.is_null:
        return "has no value", _example_hint(field) if _is_required(field) else _NO_VALUE_HINT
    if kind in ("too_short", "string_too_short"):
        return "is empty", f"{_example_hint(field)}, or remove it"
    if kind == "too_long":
        return f"has more than {context['max_length']} steps", "remove those that you need least"
    if not isinstance(node, Scalar):
        is_what = "a mapping" if isinstance(node, Fields) else "a list"
        return f"is {is_what}, not {_wanted(field, kind)}", _example_hint(field)
    match kind:
        case "enum":
            return _explain_choice(field, node)
        case "string_pattern_mismatch" if field == "namespace":
            return _explain_name(node)
        case "string_pattern_mismatch":
            return (
                "holds a control character",
                "remove it: line breaks and tabs are the only ones that may stay",
            )
        case "string_too_long":
            longest = context["max_length"]
            return f"is longer than {longest} characters", f"shorten it to {longest} or less"
        case "greater_than_equal" | "less_than_equal":
            schema = _schema_of(field)
            span = f"from {schema['minimum']} to {schema['maximum']}"
            return f"{quoted(node.text)} is out of range", f"write a number {span}"
        case "string_unicode":
            return "holds half a character, a lone surrogate", r"remove \ud800 to \udfff"
        case "int_type" if _is_number(field):
            return explain_number(node)
        case "string_type" if field == "namespace" and node.is_number:
            return _explain_name(node)
        case "string_type":
            what = "a number" if node.is_number else "true or false"
            return f"{quoted(node.text)} is {what} in YAML, not text", f'write "{node.text[:100]}"'
    return f"{quoted(node.text)} is not {_wanted(field, kind)}", _example_hint(field)


def _explain_step(node: Node) -> tuple[str, str]:
    """An entry of the list that is no step: a history that is no list is another kind of error."""
    hint = "write each step like '- {step: 1m, retention: 7d}'"
    if not isinstance(node, Scalar):
        return "one of its steps is a list, not a mapping", hint
    if node.is_null:
        return "one of its steps has no value", hint
    return f"one of its steps is {quoted(node.text)}, not a mapping", hint


def _is_required(field: str) -> bool:
    section, _, name = field.rpartition(".")
    return (SECTIONS[section] if section else NamespaceFile).model_fields[name].is_required()


def _schema_of(field: str) -> dict[str, Any]:
    section, _, name = field.rpartition(".")
    model = SECTIONS[section] if section else NamespaceFile
    schema: dict[str, Any] = model.model_json_schema()["properties"][name]
    return schema


def _is_number(field: str) -> bool:
    return bool(_schema_of(field)["type"] == "integer")


def _wanted(field: str, kind: str) -> str:
    match kind:
        case "int_type":
            return "a number" if _is_number(field) else "a duration"
        case "enum":
            return "one word"
        case "model_type":
            return "a mapping"
        case "list_type":
            return "a list"
    return "text"


def _example_hint(field: str) -> str:
    return f"write '{_EXAMPLES[field]}'" if field in _EXAMPLES else 'write it as "text"'


def _unknown_hint(section: str, name: str) -> str:
    known = list((SECTIONS[section] if section else NamespaceFile).model_fields)
    for home, fields in SECTIONS.items():
        inner = name.removeprefix(f"{home}.")
        if home != section and inner in fields.model_fields:
            example = _EXAMPLES[home] if home == "history" else f"{home}: {{{inner}: ...}}"
            return f"it belongs under {home}: '{example}'"
    if section and name in NamespaceFile.model_fields:
        return f"it belongs at the start of a line, outside of {section}"
    if (meant := nearest(name, known)) is not None:
        return f"did you mean {meant}?"
    if len(known) == 1:
        return f"the only field of {section} is {known[0]}"
    return f"the fields{f' of {section}' if section else ''} are {listed(known)}"


def _explain_choice(field: str, node: Scalar) -> tuple[str, str]:
    choices = _CHOICES[field]
    meant = nearest(node.text, choices)
    hint = f"did you mean {meant}?" if meant else f"write {listed(choices, 'or')}"
    problem = "cannot be a shadow" if field == "shadow" else f"is not a {field}"
    return f"{quoted(node.text)} {problem}", hint


def _explain_name(node: Scalar) -> tuple[str, str]:
    if not node.text:
        return "is empty", f"write '{_EXAMPLES['namespace']}'"
    message = f"{quoted(node.text)} is not a namespace name"
    rule = "use a to z, 0 to 9, _ and -, with a letter first"
    usable = re.sub(r"[^a-z0-9_-]+", "_", node.text[:100].lower()).strip("_-")
    return message, f"{rule}, like {usable}" if re.match(NAME_PATTERN, usable) else rule


def explain_number(node: Scalar) -> tuple[str, str]:
    text = node.text.strip()
    if not node.plain and re.fullmatch(r"[-+]?[0-9]{1,20}", text):
        return f'"{text}" is text, not a number', f"remove the quotes: {text}"
    if node.is_boolean:
        return f"{quoted(text)} is true or false in YAML, not a number", "write a whole number"
    if re.fullmatch(r"0[0-7]+", text):
        return f"{quoted(text)} may be read as octal", f"write {text.lstrip('0') or '0'}"
    hint = "write a whole number, in digits only"
    if node.is_number and len(text) <= 20:
        plain = text.replace("_", "")
        if re.fullmatch(r"[0-9]+(\.0*)?(e\+?[0-9]{1,2})?", plain, re.IGNORECASE):
            hint = f"write {int(float(plain))}"
    return f"{quoted(text)} is not a whole number in digits", hint
