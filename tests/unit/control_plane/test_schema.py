"""The JSON Schema that is published, and that each file of ours tells editors about."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from control_plane.files.durations import parse_ms
from control_plane.files.schema import BEYOND_THE_SCHEMA, modeline, namespace_schema, schema_text
from control_plane.files.sections import STEPS_MS

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "configs" / "namespace.schema.json"
FILES = sorted((ROOT / "configs" / "namespaces").glob("*.yaml"))


def test_the_published_one_is_the_one_that_is_generated() -> None:
    assert PUBLISHED.read_text() == schema_text(), "run 'make schema' and commit the result"


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(PUBLISHED.read_text()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_every_file_leads_editors_to_it(file: Path) -> None:
    first = file.read_text().splitlines()[0]
    assert first == modeline()
    assert (file.parent / first.partition("$schema=")[2]).resolve() == PUBLISHED


def described(schema: Any, path: str = "") -> dict[str, Any]:
    """Every field with what the schema says about it."""
    found = {}
    for name, each in schema.get("properties", {}).items():
        found[f"{path}{name}"] = each
        reference = each.get("$ref") or each.get("items", {}).get("$ref", "")
        inner = namespace_schema()["$defs"].get(reference.rpartition("/")[2], {})
        found |= described(inner, f"{path}{name}.")
    return found


def test_every_field_is_described_for_whoever_completes_it() -> None:
    fields = described(namespace_schema())
    assert {"limits.names", "cache.ttl", "history.step", "shadow"} <= set(fields)
    for name, each in fields.items():
        assert each["description"].endswith("."), name
        assert "title" not in each, name


@pytest.mark.parametrize("field", ["cache.ttl", "history.retention", "dedupe_ttl"])
def test_what_a_duration_may_be_is_said_in_words(field: str) -> None:
    each = described(namespace_schema())[field]
    assert each["patternErrorMessage"].startswith("write a duration from ")
    assert all(re.search(each["pattern"], example) for example in each["examples"])


def test_steps_are_exactly_those_that_there_are() -> None:
    step = described(namespace_schema())["history.step"]
    assert [parse_ms(each) for each in step["examples"]] == STEPS_MS
    matching = [seconds for seconds in range(100_000) if re.search(step["pattern"], f"{seconds}s")]
    assert matching == [each // 1_000 for each in STEPS_MS]


def strategies_that_take(field: str) -> set[str]:
    base: dict[str, Any] = {"namespace": "plays"}
    values = {
        "dedupe_ttl": "10m",
        "shadow": "eventual",
        "history": [{"step": "1m", "retention": "7d"}],
        "rolling_window": {"length": "300s"},
        "limits": {"counters": 5},
    }
    validator = jsonschema.Draft202012Validator(namespace_schema())
    taken = set()
    for strategy in ("best_effort", "eventual", "accurate", "rolling_window"):
        document = {**base, "strategy": strategy}
        if strategy == "rolling_window":
            document["rolling_window"] = values["rolling_window"]
        if validator.is_valid({**document, field: values[field]}):
            taken.add(strategy)
    return taken


def test_fields_go_with_their_strategies() -> None:
    assert strategies_that_take("dedupe_ttl") == {"best_effort"}
    assert strategies_that_take("shadow") == {"best_effort"}
    assert strategies_that_take("history") == {"eventual", "accurate", "rolling_window"}
    assert strategies_that_take("limits") == {"eventual", "accurate", "rolling_window"}
    assert strategies_that_take("rolling_window") == {"rolling_window"}
    only_strategy = {"namespace": "plays", "strategy": "rolling_window"}
    assert not jsonschema.Draft202012Validator(namespace_schema()).is_valid(only_strategy)


def test_what_it_cannot_say_is_documented() -> None:
    page = " ".join((ROOT / "docs" / "namespaces.md").read_text().split())
    assert [each.rule for each in BEYOND_THE_SCHEMA if each.rule not in page] == []
