"""A new namespace file is valid as it is, and stays so when what it has as comments is used."""

import re
from itertools import combinations

import pytest
from pydantic import BaseModel

from control_plane.files.loader import Loaded, load_files
from control_plane.files.model import ONLY_WITH, REQUIRED_WITH, SECTIONS, NamespaceFile
from control_plane.files.scaffold import check_name, scaffold
from control_plane.files.schema import modeline
from counter.namespaces import Definition, Limits, Strategy

STRATEGIES = list(Strategy)


def load(text: str) -> Loaded:
    return load_files({"plays.yaml": text})


def blocks(text: str) -> dict[str, list[int]]:
    """The lines of each field that is a comment: its own and those inside of it."""
    found: dict[str, list[int]] = {}
    field = ""
    for number, line in enumerate(text.splitlines()):
        if match := re.match(r"# ([a-z_]+):", line):
            field = match[1]
            found[field] = [number]
        elif field and re.match(r"#   (- \{|[a-z_]+: )", line):
            found[field].append(number)
        else:
            field = ""
    return found


def uncommented(text: str, numbers: list[int]) -> str:
    lines = text.splitlines()
    for number in numbers:
        lines[number] = lines[number].removeprefix("# ")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_is_valid_and_has_every_field(strategy: Strategy) -> None:
    text = scaffold("plays", strategy)
    assert text.startswith(modeline() + "\n")
    (definition,) = load(text).definitions
    expected = Definition(name="plays", strategy=strategy)
    if strategy is Strategy.ROLLING_WINDOW:
        assert definition.rolling_window_ms == 300_000
    else:
        assert definition == expected
    given = {"namespace", "strategy"} | {
        field for field, needs_it in REQUIRED_WITH.items() if needs_it is strategy
    }
    assert set(blocks(text)) == set(NamespaceFile.model_fields) - given
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_comment_can_be_used_if_it_goes_with_the_strategy(strategy: Strategy) -> None:
    text = scaffold("plays", strategy)
    fitting: list[int] = []
    for field, numbers in blocks(text).items():
        loaded = load(uncommented(text, numbers))
        if strategy in ONLY_WITH.get(field, Strategy):
            assert loaded.mistakes == (), field
            fitting += numbers
        else:
            assert {each.field for each in loaded.mistakes} == {field}
    assert load(uncommented(text, fitting)).mistakes == ()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_lines_of_a_section_can_be_used(strategy: Strategy) -> None:
    text = scaffold("plays", strategy)
    for section in ("limits", "cache"):
        first, *inside = blocks(text)[section]
        assert len(inside) >= 2
        for count in range(1, len(inside) + 1):
            for chosen in combinations(inside, count):
                assert load(uncommented(text, [first, *chosen])).mistakes == ()


def test_it_says_what_the_model_says() -> None:
    text = " ".join(scaffold("plays", Strategy.EVENTUAL).replace("\n#", " ").split())
    models: list[type[BaseModel]] = [NamespaceFile, *SECTIONS.values()]
    for model in models:
        for schema in model.model_json_schema()["properties"].values():
            assert " ".join(schema["description"].split()) in text
            if schema.get("default"):
                assert f"Default: {schema['default']}." in text


def test_all_limits_are_there() -> None:
    text = scaffold("plays", Strategy.ACCURATE)
    (definition,) = load(uncommented(text, blocks(text)["limits"])).definitions
    assert definition.limits == Limits(
        adds_per_s=50_000,
        reads_per_s=100_000,
        counters=1_000_000,
        batch_items=1_000,
        names="[a-z0-9:_-]+",
    )


@pytest.mark.parametrize("name", ["null", "y", "on", "true", "a", "a-b_9", "e5", "x" * 64])
def test_names_that_yaml_takes_for_something_else_are_in_quotes(name: str) -> None:
    assert check_name(name) is None
    loaded = load_files({f"{name}.yaml": scaffold(name)})
    assert [each.name for each in loaded.definitions] == [name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Video Plays", "'Video Plays' is not a namespace name"),
        ("../plays", "'../plays' is not a namespace name"),
        ('a"b\n', "'a\"b\\n' is not a namespace name"),
        ("9lives", "'9lives' is not a namespace name"),
        ("", "is empty"),
        ("x" * 65, "is longer than 64 characters"),
    ],
)
def test_what_is_no_name_is_refused_in_the_words_of_the_model(name: str, message: str) -> None:
    found = check_name(name)
    assert found is not None
    assert found[0] == message
    assert found[1]


def test_where_the_schema_is_can_be_said() -> None:
    text = scaffold("plays", schema_path="../../configs/namespace.schema.json")
    assert text.startswith("# yaml-language-server: $schema=../../configs/namespace.schema.json\n")
