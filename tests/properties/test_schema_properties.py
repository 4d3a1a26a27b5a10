"""The JSON Schema and the loader agree, apart from the rules that a JSON Schema cannot say.

What an editor sees of a file is its YAML, read by the core schema of YAML 1.2, and then the JSON
Schema. So each document is written as YAML, in one of the many ways in which that can be done.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import extend
from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from control_plane.files.loader import Loaded, load_files
from control_plane.files.schema import BEYOND_THE_SCHEMA, namespace_schema
from counter.namespaces import LIMIT_COUNTERS_MAX, LIMIT_PER_S_MAX, MAX_DELTA_LIMIT
from counter.settings import BATCH_ITEMS_MAX
from tests.properties.namespace_documents import (
    DOCUMENTS,
    JUNK,
    as_yaml,
    mutated_documents,
    valid_documents,
)

ROOT = Path(__file__).parents[2]
BAD_FILES = sorted((ROOT / "tests" / "bad_namespaces").rglob("*.yaml"))
GOOD_FILES = sorted((ROOT / "configs" / "namespaces").glob("*.yaml"))


def _search(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    # In ECMAScript, which JSON Schema refers to, $ is the very end of the text.
    if isinstance(instance, str) and not re.search(pattern.replace("$", r"\Z"), instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


Validator = extend(jsonschema.Draft202012Validator, {"pattern": _search})  # type: ignore[no-untyped-call]
SCHEMA = Validator(namespace_schema())


class NoYaml(Exception):
    """Nothing that a schema could be held against."""


def seen_by_an_editor(text: str) -> Any:
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except Exception as error:  # apart from its own the parser lets others through
        raise NoYaml from error
    return None if root is None else value_of(root)


def value_of(node: Node) -> Any:
    """By the core schema of YAML 1.2, like the language server that editors use."""
    if node.tag and not str(node.tag).startswith("tag:yaml.org,2002:"):
        raise NoYaml
    if isinstance(node, MappingNode):
        fields: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise NoYaml
            fields.setdefault(key.value, value_of(value))
        return fields
    if isinstance(node, SequenceNode):
        return [value_of(each) for each in node.value]
    assert isinstance(node, ScalarNode)
    return node.value if node.style is not None else core_value(node.value)


def core_value(text: str) -> Any:
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return int(text[:300])
    if re.fullmatch(r"0o[0-7]+", text):
        return int(text[2:], 8)
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        return int(text[2:], 16)
    if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text):
        return float(text)
    if re.fullmatch(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", text):
        return float(text.replace(".", ""))
    return text


def rules_broken_beyond_the_schema(loaded: Loaded) -> list[bool]:
    """For each mistake whether it is one that the schema cannot find."""
    return [
        any(
            re.fullmatch(pattern, f"{each.field}: {each.message}", re.DOTALL)
            for beyond in BEYOND_THE_SCHEMA
            for pattern in beyond.messages
        )
        for each in loaded.mistakes
    ]


def check(text: str, path: str = "plays.yaml") -> None:
    loaded = load_files({path: text})
    try:
        seen = seen_by_an_editor(text)
    except NoYaml:
        assert loaded.mistakes, "the loader reads what an editor cannot"
        return
    found = [each.message for each in SCHEMA.iter_errors(seen)]
    if not loaded.mistakes:
        assert found == [], f"the loader takes it:\n{text}"
    elif not found:
        assert all(rules_broken_beyond_the_schema(loaded)), (
            f"the schema takes it:\n{text}\n{[str(each) for each in loaded.mistakes]}"
        )


def steps(count: int) -> list[dict[str, str]]:
    return [{"step": f"{2**n}m", "retention": f"{n + 1}d"} for n in range(count)]


# Of each field what is just within its range, and what is just beyond.
EDGES: list[tuple[str, list[Any], list[Any]]] = [
    ("namespace", ["a", "a" * 64], ["", "9", "-a", "A", "a" * 65, "a\n", "ä"]),
    ("description", ["", "x" * 1_000, "a\n\tb"], ["x" * 1_001, "a\x07b", "\x7f"]),
    ("owner", ["", "x" * 200], ["x" * 201]),
    ("max_delta", [1, MAX_DELTA_LIMIT], [0, MAX_DELTA_LIMIT + 1, 1.5, "1", True]),
    *(
        ("limits", [{name: 1}, {name: most}], [{name: 0}, {name: most + 1}, {name: None}])
        for name, most in (
            ("adds_per_s", LIMIT_PER_S_MAX),
            ("reads_per_s", LIMIT_PER_S_MAX),
            ("counters", LIMIT_COUNTERS_MAX),
            ("batch_items", BATCH_ITEMS_MAX),
        )
    ),
    ("limits", [{"names": "a"}, {"names": "a" * 200}], [{"names": ""}, {"names": "a" * 201}, {}]),
    ("limits", [], [{"adds_per_s": 5, "replicas": 3}]),
    ("cache", [{"ttl": "0s"}, {"ttl": "1h"}, {"ttl": "60m"}], [{"ttl": "3600001ms"}]),
    ("cache", [{"ttl": "1h", "local_ttl": "3600s"}, {}], [{"ttl": "1h", "local_ttl": "61m"}]),
    ("cache", [], [{"ttl": "1d"}, {"ttl": 5}, {"ttl": "5s\n"}, {"max": "5s"}, None]),
    ("dedupe_ttl", ["1s", "1000ms", "24h"], ["999ms", "0s", "86400001ms", "25h", "2d"]),
    ("shadow", ["eventual"], ["accurate", "best_effort", True, None]),
    ("history", [steps(1), steps(4)], [[], steps(5), steps(1)[0], None]),
    ("history", [[{"step": "1d", "retention": "3650d"}]], [[{"step": "1d", "retention": "3651d"}]]),
    ("history", [], [[{"step": "59s", "retention": "7d"}], [{"step": "2d", "retention": "70d"}]]),
    ("history", [], [[{"step": "7m", "retention": "7d"}], [{"step": "1m"}], [{"retention": "7d"}]]),
    ("history", [], [[{"step": "1m", "retention": "599999ms"}]]),
    ("rolling_window", [{"length": "10s"}, {"length": "1h"}], [{"length": "9999ms"}]),
    ("rolling_window", [], [{"length": "3600001ms"}, {}, None, {"length": "60s", "step": "1s"}]),
    ("replicas", [], [3]),
]
STRATEGY_OF = {
    "dedupe_ttl": "best_effort",
    "shadow": "best_effort",
    "rolling_window": "rolling_window",
}


@pytest.mark.parametrize(("field", "within", "beyond"), EDGES)
def test_both_have_the_same_edges(field: str, within: list[Any], beyond: list[Any]) -> None:
    for is_within, values in ((True, within), (False, beyond)):
        for value in values:
            document = {"namespace": "plays", "strategy": STRATEGY_OF.get(field, "eventual")}
            text = json.dumps({**document, field: value})
            name = value if field == "namespace" else "plays"
            assert (load_files({f"{name}.yaml": text}).mistakes == ()) == is_within, value
            assert SCHEMA.is_valid(json.loads(text)) == is_within, value


@given(as_yaml(valid_documents()))
def test_valid_documents_are_taken_by_both(text: str) -> None:
    assert load_files({"plays.yaml": text}).mistakes == ()
    assert [each.message for each in SCHEMA.iter_errors(seen_by_an_editor(text))] == []


@settings(max_examples=400)
@given(as_yaml(mutated_documents()))
def test_one_step_away_from_valid_they_agree(text: str) -> None:
    check(text)


@settings(max_examples=400)
@given(as_yaml(DOCUMENTS))
def test_near_the_border_they_agree(text: str) -> None:
    check(text)


@given(as_yaml(JUNK))
def test_on_junk_they_agree(text: str) -> None:
    check(text)


@given(st.text(max_size=60))
def test_on_any_text_they_agree(text: str) -> None:
    check(text)


@pytest.mark.parametrize("file", BAD_FILES, ids=lambda file: str(file.name))
def test_on_every_known_mistake_they_agree(file: Path) -> None:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        return  # no editor shows it
    check(text, file.name)


@pytest.mark.parametrize("file", GOOD_FILES, ids=lambda file: str(file.name))
def test_examples_are_taken_by_both(file: Path) -> None:
    assert load_files({file.name: file.read_text()}).mistakes == ()
    check(file.read_text(), file.name)


def test_every_rule_beyond_the_schema_is_one_that_it_cannot_say() -> None:
    """Of each rule there is a known mistake that the schema takes, so none is there in vain."""
    unseen = {each.rule for each in BEYOND_THE_SCHEMA}
    for file in BAD_FILES:
        text = file.read_bytes().decode("utf-8-sig", errors="replace")
        loaded = load_files({f"{file.parent.name}/{file.name}": text})
        try:
            if any(SCHEMA.iter_errors(seen_by_an_editor(text))):
                continue
        except NoYaml:
            continue
        for each in loaded.mistakes:
            for beyond in BEYOND_THE_SCHEMA:
                if any(
                    re.fullmatch(pattern, f"{each.field}: {each.message}", re.DOTALL)
                    for pattern in beyond.messages
                ):
                    unseen.discard(beyond.rule)
    assert unseen == set()
