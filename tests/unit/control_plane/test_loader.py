import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.files.durations import parse_ms
from control_plane.files.loader import FILES_MAX, load_directory, load_files
from control_plane.files.model import NamespaceFile
from control_plane.files.sections import LimitsFields
from control_plane.files.yaml_tree import FILE_BYTES_MAX
from counter.namespaces import (
    CACHE_TTL_MS_MAX,
    HISTORY_RETENTION_MS_MAX,
    HISTORY_RETENTION_STEPS_MAX,
    HISTORY_RETENTION_STEPS_MIN,
    MAX_DELTA_LIMIT,
    NO_LIMITS,
    Cardinality,
    Definition,
    HistoryStep,
    Limits,
    Strategy,
)

DAY_MS = 86_400_000
EXAMPLES = Path(__file__).parents[3] / "configs" / "namespaces"
FULL = """\
namespace: plays
description: Plays per title
owner: "42"
strategy: eventual
cardinality: high
max_delta: 1000
cache: {ttl: 2m, local_ttl: 1500ms}
"""


def load_one(text: str, name: str = "plays.yaml") -> Definition:
    loaded = load_files({name: text})
    assert loaded.mistakes == ()
    (definition,) = loaded.definitions
    return definition


def messages(text: str | bytes, path: str = "plays.yaml") -> list[str]:
    return [str(each) for each in load_files({path: text}).mistakes]


def test_all_fields() -> None:
    assert load_one(FULL) == Definition(
        name="plays",
        strategy=Strategy.EVENTUAL,
        description="Plays per title",
        owner="42",
        cardinality=Cardinality.HIGH,
        max_delta=1_000,
        cache_ttl_ms=120_000,
        cache_local_ttl_ms=1_500,
    )


def test_only_name_and_strategy_are_required() -> None:
    expected = Definition(name="plays", strategy=Strategy.ACCURATE)
    assert load_one("namespace: plays\nstrategy: accurate\n") == expected
    assert load_one("{namespace: plays, strategy: accurate}") == expected
    assert load_one('"namespace": "plays"\r\n"strategy": "accurate"\r\n') == expected
    assert load_one("\ufeff---\nnamespace: plays\nstrategy: accurate\n...\n") == expected
    assert load_one("namespace: plays\nstrategy: accurate", "some/where/plays.yml") == expected


def test_dedupe_ttl_of_best_effort() -> None:
    text = "namespace: plays\ndedupe_ttl: 10m\nstrategy: best_effort\n"
    assert load_one(text).dedupe_ttl_ms == 600_000


def test_limits() -> None:
    text = (
        "namespace: plays\nstrategy: eventual\nlimits:\n  adds_per_s: 50000\n"
        "  reads_per_s: 100000000\n  counters: 1\n  batch_items: 10000\n  names: '[a-z]+(:\\d+)?'\n"
    )
    assert load_one(text).limits == Limits(
        adds_per_s=50_000,
        reads_per_s=100_000_000,
        counters=1,
        batch_items=10_000,
        names=r"[a-z]+(:\d+)?",
    )
    only_one = "namespace: plays\nstrategy: best_effort\nlimits: {batch_items: 5}\n"
    assert load_one(only_one).limits == Limits(batch_items=5)
    assert load_one("namespace: plays\nstrategy: eventual\n").limits is NO_LIMITS


def test_shadow_of_best_effort() -> None:
    text = "namespace: plays\nshadow: eventual\nstrategy: best_effort\ndedupe_ttl: 10m\n"
    assert load_one(text).shadow is Strategy.EVENTUAL
    assert load_one("namespace: plays\nstrategy: best_effort\n").shadow is None


HISTORY = """\
namespace: plays
history:
  - {step: 1m, retention: 7d}
  - step: 60m
    retention: 90d
  - {step: 1d, retention: 730d}
strategy: """


@pytest.mark.parametrize("strategy", ["eventual", "accurate"])
def test_history(strategy: str) -> None:
    definition = load_one(f"{HISTORY}{strategy}\n")
    assert definition.history == (
        HistoryStep(step_ms=60_000, retention_ms=7 * DAY_MS),
        HistoryStep(step_ms=3_600_000, retention_ms=90 * DAY_MS),
        HistoryStep(step_ms=DAY_MS, retention_ms=730 * DAY_MS),
    )
    assert definition.rolling_window_ms is None


def test_rolling_window_with_history() -> None:
    definition = load_one(f"{HISTORY}rolling_window\nrolling_window: {{length: 5m}}\n")
    assert definition.strategy is Strategy.ROLLING_WINDOW
    assert definition.rolling_window_ms == 300_000
    assert len(definition.history) == 3


@pytest.mark.parametrize("length", ["10s", "10000ms", "1h"])
def test_limits_of_a_rolling_window_are_allowed_themselves(length: str) -> None:
    text = f"namespace: plays\nstrategy: rolling_window\nrolling_window: {{length: {length}}}\n"
    assert load_one(text).rolling_window_ms == parse_ms(length)


def with_history(*steps: tuple[str, str]) -> str:
    entries = "".join(f"  - {{step: {step}, retention: {kept}}}\n" for step, kept in steps)
    return f"namespace: plays\nstrategy: eventual\nhistory:\n{entries}"


def test_limits_of_a_history_are_allowed_themselves() -> None:
    most_ms = HISTORY_RETENTION_STEPS_MAX * 60_000
    (only,) = load_one(with_history(("1m", f"{most_ms}ms"))).history
    assert only.retention_ms == most_ms
    least = f"{HISTORY_RETENTION_STEPS_MIN}d"
    (only,) = load_one(with_history(("1d", least))).history
    assert only.retention_ms == HISTORY_RETENTION_STEPS_MIN * DAY_MS
    (only,) = load_one(with_history(("24h", f"{HISTORY_RETENTION_MS_MAX}ms"))).history
    assert only == HistoryStep(step_ms=DAY_MS, retention_ms=3_650 * DAY_MS)
    four = (("1m", "1h"), ("2m", "2h"), ("12h", "7d"), ("1d", "10d"))
    assert len(load_one(with_history(*four)).history) == 4


@given(st.integers(min_value=1, max_value=90_000))
def test_a_step_is_whole_minutes_that_divide_a_day(seconds: int) -> None:
    loaded = load_files({"plays.yaml": with_history((f"{seconds}s", "3650d"))})
    wrong = {each.field for each in loaded.mistakes}
    divides = seconds % 60 == 0 and 86_400 % seconds == 0
    assert ("history.step" not in wrong) == divides


_STEPS = ("1m", "2m", "10m", "15m", "1h", "90m", "8h", "12h", "1d")


@given(
    st.lists(
        st.tuples(st.sampled_from(_STEPS), st.integers(min_value=10, max_value=60)),
        min_size=1,
        max_size=5,
    )
)
def test_a_history_is_loaded_if_each_step_follows_the_one_before(
    steps: list[tuple[str, int]],
) -> None:
    loaded = load_files({"plays.yaml": with_history(*((step, f"{d}d") for step, d in steps))})
    known = [(parse_ms(step) or 0, days) for step, days in steps]
    follows = all(
        step > before and step % before == 0 and days > days_before
        for (before, days_before), (step, days) in pairwise(known)
    )
    assert (loaded.mistakes == ()) == (follows and len(steps) <= 4)
    for each in loaded.mistakes:
        assert each.field.startswith("history")
        assert each.line >= 4


@pytest.mark.parametrize(
    ("cache", "ttl_ms", "local_ttl_ms"),
    [
        ("{ttl: 0s}", 0, 0),  # no cache at all: the default local_ttl does not stand in the way
        ("{ttl: 100ms}", 100, 100),
        ("{ttl: 1h, local_ttl: 1h}", CACHE_TTL_MS_MAX, CACHE_TTL_MS_MAX),
        ("{local_ttl: 0ms}", 5_000, 0),
        ("{}", 5_000, 500),
    ],
)
def test_cache_durations(cache: str, ttl_ms: int, local_ttl_ms: int) -> None:
    definition = load_one(f"namespace: plays\nstrategy: eventual\ncache: {cache}\n")
    assert (definition.cache_ttl_ms, definition.cache_local_ttl_ms) == (ttl_ms, local_ttl_ms)


def test_limits_are_allowed_themselves() -> None:
    name = "a" * 64
    text = f"namespace: {name}\nstrategy: eventual\nmax_delta: {MAX_DELTA_LIMIT}\n"
    assert load_one(text, f"{name}.yaml").max_delta == MAX_DELTA_LIMIT
    padded = FULL + "#" * (FILE_BYTES_MAX - len(FULL))
    assert load_one(padded).name == "plays"
    assert messages(padded + "#") == [
        "plays.yaml:1:1: the file is larger than 64 KiB (is this a namespace file? Shorten it)"
    ]


def test_positions_of_fields_are_kept() -> None:
    source = load_files({"plays.yaml": FULL}).sources["plays"]
    assert source.position("cardinality") == (5, 14)
    assert source.position("dedupe_ttl") == source.position("namespace") == (1, 12)


def test_the_same_path_twice_is_the_same_namespace_twice() -> None:
    loaded = load_files([("plays.yaml", FULL), ("plays.yaml", FULL)])
    assert loaded.definitions == ()
    assert [each.field for each in loaded.mistakes] == ["namespace"]


def test_suffix_must_be_yaml() -> None:
    (line,) = messages(FULL, "plays.txt")
    assert "'plays' is in a file named 'plays.txt'" in line


@pytest.mark.parametrize("opener", ["[", "{", "- ", "? ", "[\n"])
def test_deep_nesting_is_refused_fast(opener: str) -> None:
    (line,) = messages(opener * (FILE_BYTES_MAX // len(opener)))
    assert "nested too deeply" in line


def test_many_values_are_refused() -> None:
    (line,) = messages("namespace: [" + "a," * 10_000 + "]")
    assert "far too many values" in line


def test_examples_are_valid_and_show_each_strategy() -> None:
    loaded = load_directory(EXAMPLES)
    assert loaded.mistakes == ()
    assert {each.strategy for each in loaded.definitions} == set(Strategy)
    text = "".join(each.read_text() for each in EXAMPLES.glob("*.yaml"))
    for field in NamespaceFile.model_fields:
        assert f"{field}:" in text, f"no example shows {field}"


def test_schema_is_in_the_words_of_the_file() -> None:
    schema = NamespaceFile.model_json_schema()
    assert schema["required"] == ["namespace", "strategy"]
    assert schema["additionalProperties"] is False
    assert all(each.get("description") for each in schema["properties"].values())
    ttl = schema["$defs"]["CacheFields"]["properties"]["ttl"]
    assert (ttl["type"], ttl["default"]) == ("string", "5s")
    assert schema["properties"]["dedupe_ttl"]["type"] == "string"
    assert schema["properties"]["history"]["items"] == {"$ref": "#/$defs/HistoryFields"}
    assert schema["properties"]["rolling_window"]["$ref"] == "#/$defs/RollingWindowFields"
    for section, required in (
        ("HistoryFields", ["step", "retention"]),
        ("RollingWindowFields", ["length"]),
    ):
        inside = schema["$defs"][section]
        assert inside["required"] == required
        assert inside["additionalProperties"] is False
        assert all(each.get("description") for each in inside["properties"].values())
        assert all(each["type"] == "string" for each in inside["properties"].values())


def test_examples_in_the_schema_are_valid() -> None:
    fields = NamespaceFile.model_json_schema()["properties"]
    base = {"namespace": "plays", "strategy": "eventual"}
    for example in fields["history"]["examples"]:
        NamespaceFile.model_validate({**base, "history": example})
    for example in fields["limits"]["examples"]:
        NamespaceFile.model_validate({**base, "limits": example})
    for name, each in LimitsFields.model_json_schema()["properties"].items():
        for example in each["examples"]:
            NamespaceFile.model_validate({**base, "limits": {name: example}})
    for example in fields["rolling_window"]["examples"]:
        rolling = {"strategy": "rolling_window", "rolling_window": example}
        NamespaceFile.model_validate({**base, **rolling})


class TestDirectory:
    def test_only_namespace_files_directly_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "plays.yaml").write_text(FULL)
        (tmp_path / "deeper").mkdir()
        for ignored in (
            ".plays.yaml.swp",
            ".hidden.yaml",
            "#plays.yaml#",
            "plays.yaml~",
            "~plays.yaml",
            "notes.txt",
            "deeper/other.yaml",
        ):
            (tmp_path / ignored).write_text("not: a namespace")
        loaded = load_directory(tmp_path)
        assert loaded.mistakes == ()
        assert [each.name for each in loaded.definitions] == ["plays"]
        assert loaded.origin == str(tmp_path)

    def test_missing(self, tmp_path: Path) -> None:
        (only,) = load_directory(tmp_path / "nowhere").mistakes
        assert only.path == str(tmp_path / "nowhere")
        assert only.message == "the directory cannot be read: No such file or directory"

    def test_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "plays.yaml").write_text(FULL)
        (only,) = load_directory(tmp_path / "plays.yaml").mistakes
        assert only.message == "the directory cannot be read: Not a directory"

    def test_what_cannot_be_read_is_a_mistake_beside_the_others(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").mkdir()
        os.mkfifo(tmp_path / "b.yaml")
        (tmp_path / "c.yaml").symlink_to(tmp_path / "nowhere")
        (tmp_path / "d.yaml").write_text("namespace: d\n")
        (tmp_path / "plays.yaml").write_text(FULL)
        loaded = load_directory(tmp_path)
        assert [(Path(each.path).name, each.message) for each in loaded.mistakes] == [
            ("a.yaml", "not a regular file"),
            ("b.yaml", "not a regular file"),
            ("c.yaml", "the link leads nowhere"),
            ("d.yaml", "is required"),
        ]
        assert [each.name for each in loaded.definitions] == ["plays"]

    def test_read_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "plays.yaml").write_text(FULL)

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        (only,) = load_directory(tmp_path).mistakes
        assert only.message == "the file cannot be read: Permission denied"

    def test_too_many_files(self, tmp_path: Path) -> None:
        for number in range(FILES_MAX + 1):
            (tmp_path / f"n{number}.yaml").touch()
        (only,) = load_directory(tmp_path).mistakes
        assert only.message == "1001 namespace files, and the limit is 1000"


_LINES = FULL.splitlines(keepends=True)
_SIGNS = [*"[]{}:,-?&*!|>'\"%@`#~\t\n \\\r\0\x85", "---\n", "...\n", "<<", "\\U", "\\x", "!!int"]
_WORDS = ["strategy", "cache", "ttl", "5s", "max_delta: ", "0x", "cache: {", "dedupe_ttl: "]
_HISTORY = ["history:\n", "  - {step: 1m, retention: 7d}\n", "- ", "rolling_window: {length: 5m}\n"]
_PIECES = st.sampled_from([*_LINES, *_SIGNS, *_WORDS, *_HISTORY])


@settings(deadline=None)
@given(st.one_of(st.text(), st.binary(), st.lists(_PIECES, max_size=30).map("".join)))
def test_any_content_gives_a_definition_or_mistakes(content: str | bytes) -> None:
    loaded = load_files({"plays.yaml": content})
    assert bool(loaded.definitions) != bool(loaded.mistakes)
    for each in loaded.mistakes:
        assert each.line >= 1
        assert each.column >= 1
        assert each.message
        assert "\n" not in str(each)
        str(each).encode()  # can be printed and sent


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a.yaml", "b.yaml", "c.yml"]), _PIECES), max_size=4))
def test_any_files_together(files: list[tuple[str, str]]) -> None:
    loaded = load_files(files)
    assert len(loaded.definitions) + len({each.path for each in loaded.mistakes}) <= len(files)
    assert bool(files) == bool(loaded.definitions or loaded.mistakes)
