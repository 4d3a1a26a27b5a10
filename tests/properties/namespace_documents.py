"""Namespace files as the property tests draw them: valid ones, those one step away, and junk."""

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from control_plane.files.durations import UNITS_MS, format_ms
from control_plane.files.sections import STEPS_MS
from counter.namespaces import (
    CACHE_TTL_MS_MAX,
    HISTORY_RETENTION_MS_MAX,
    LIMIT_COUNTERS_MAX,
    LIMIT_NAMES_CHARACTERS_MAX,
    LIMIT_PER_S_MAX,
    MAX_DELTA_LIMIT,
    ROLLING_WINDOW_MS_MAX,
    ROLLING_WINDOW_MS_MIN,
)
from counter.settings import BATCH_ITEMS_MAX

# Most values are near the border of what is allowed.
BORDERS_MS = [
    *(0, 1_000, 10_000, 60_000, 600_000, 86_400_000, 10 * 86_400_000),
    *(CACHE_TTL_MS_MAX, ROLLING_WINDOW_MS_MIN, ROLLING_WINDOW_MS_MAX, HISTORY_RETENTION_MS_MAX),
]


@st.composite
def durations(draw: st.DrawFn) -> str:
    unit = draw(st.sampled_from(sorted(UNITS_MS)))
    border = draw(st.sampled_from(BORDERS_MS)) // UNITS_MS[unit] + draw(st.integers(-1, 1))
    number = draw(st.just(max(border, 0)) | st.integers(0, 100) | st.integers(0, 10**13))
    zeros = draw(st.sampled_from(["", "", "", "0", "00", "0" * 11]))
    return f"{zeros}{number}{unit}"


def numbers(most: int) -> st.SearchStrategy[int]:
    return st.sampled_from([1, most]) | st.integers(1, most) | st.integers(-2, most + 2)


NAMES = st.sampled_from(
    ["plays", "a-b_c9", "y", "null", "on", "a" * 64, "a" * 65, "Plays", "9a", ""]
)
STEP_LENGTHS = st.sampled_from([format_ms(each) for each in STEPS_MS]) | durations()
PATTERNS = st.sampled_from(
    ["[a-z]+", r"\w+:\d+", "a*", "[a-z", r"(a)\1", "(?=a)", "", "a" * LIMIT_NAMES_CHARACTERS_MAX]
) | st.text(max_size=LIMIT_NAMES_CHARACTERS_MAX + 5)
STRATEGIES = st.sampled_from(["best_effort", "eventual", "accurate", "rolling_window"])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "description": st.text(max_size=40) | st.integers(999, 1_001).map(lambda n: "x" * n),
    "owner": st.text(max_size=20) | st.sampled_from(["no", "1_000", "x" * 200, "x" * 201]),
    "cardinality": st.sampled_from(["low", "medium", "high", "huge"]),
    "max_delta": numbers(MAX_DELTA_LIMIT),
    "limits": st.fixed_dictionaries(
        {},
        optional={
            "adds_per_s": numbers(LIMIT_PER_S_MAX),
            "reads_per_s": numbers(LIMIT_PER_S_MAX),
            "counters": numbers(LIMIT_COUNTERS_MAX),
            "batch_items": numbers(BATCH_ITEMS_MAX),
            "names": PATTERNS,
        },
    ),
    "cache": st.fixed_dictionaries({}, optional={"ttl": durations(), "local_ttl": durations()}),
    "dedupe_ttl": durations(),
    "shadow": st.just("eventual") | STRATEGIES,
    "history": st.lists(
        st.fixed_dictionaries(
            {"step": STEP_LENGTHS, "retention": st.sampled_from(["7d", "90d"]) | durations()}
        ),
        max_size=5,
    ),
    "rolling_window": st.fixed_dictionaries({"length": st.just("300s") | durations()}),
}
DOCUMENTS = st.fixed_dictionaries({"namespace": NAMES, "strategy": STRATEGIES}, optional=FIELDS)
VALID_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "description": st.just("Plays: per title"),
    "owner": st.just("team-a"),
    "cardinality": st.sampled_from(["low", "medium", "high"]),
    "max_delta": st.sampled_from([1, MAX_DELTA_LIMIT]),
    "limits": st.sampled_from(
        [
            {"adds_per_s": LIMIT_PER_S_MAX},
            {"reads_per_s": 1},
            {"batch_items": BATCH_ITEMS_MAX, "names": r"(?i)[a-z]{1,64}|\d+"},
            {"names": "a" * LIMIT_NAMES_CHARACTERS_MAX},
        ]
    ),
    "cache": st.sampled_from(
        [{}, {"ttl": "0s"}, {"ttl": "3600000ms", "local_ttl": "60m"}, {"local_ttl": "005s"}]
    ),
    "dedupe_ttl": st.sampled_from(["1s", "1000ms", "24h", "1d", "0000000001d"]),
    "shadow": st.just("eventual"),
    "history": st.sampled_from(
        [
            [{"step": "1m", "retention": "10m"}],
            [{"step": "60s", "retention": "6000000000ms"}, {"step": "1h", "retention": "3650d"}],
            [{"step": "86400000ms", "retention": "10d"}],
        ]
    ),
    "rolling_window": st.sampled_from([{"length": "10s"}, {"length": "1h"}, {"length": "60m"}]),
}
NOT_WITH = {
    "best_effort": {"history", "rolling_window"},
    "eventual": {"dedupe_ttl", "shadow", "rolling_window"},
    "accurate": {"dedupe_ttl", "shadow", "rolling_window"},
    "rolling_window": {"dedupe_ttl", "shadow"},
}


@st.composite
def valid_documents(draw: st.DrawFn) -> dict[str, Any]:
    strategy = draw(STRATEGIES)
    fields = {name: each for name, each in VALID_VALUES.items() if name not in NOT_WITH[strategy]}
    required: dict[str, st.SearchStrategy[Any]] = {
        "namespace": st.just("plays"),
        "strategy": st.just(strategy),
    }
    if strategy != "best_effort":
        fields["limits"] |= st.just({"reads_per_s": 1, "counters": LIMIT_COUNTERS_MAX})
    if strategy == "rolling_window":
        required["rolling_window"] = fields.pop("rolling_window")
    drawn: dict[str, Any] = draw(st.fixed_dictionaries(required, optional=fields))
    return drawn


# What no field takes, and text that is something else for some readers of YAML.
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["yes", "on", "0x10", "1_000", "010", "1:30", "5", "5s\n", "5 s", "eventual"])
    | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=4,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(document, dict | list):
        for key in document if isinstance(document, dict) else range(len(document)):
            yield (*path, key)
            yield from places(document[key], (*path, key))


@st.composite
def mutated_documents(draw: st.DrawFn) -> Any:
    """A valid document, one step away."""
    document = json.loads(json.dumps(draw(valid_documents())))
    *way, last = draw(st.sampled_from(list(places(document))))
    place = document
    for key in way:
        place = place[key]
    step = draw(st.sampled_from(["remove", "junk", "add", "border", "other strategy"]))
    if step == "remove":
        del place[last]
    elif step == "junk":
        place[last] = draw(JUNK)
    elif step == "border":
        place[last] = draw(durations()) if isinstance(place[last], str) else draw(numbers(10**9))
    elif step == "other strategy":
        document["strategy"] = draw(STRATEGIES)
    elif isinstance(place, list):
        place.append(draw(JUNK))
    else:
        name = draw(st.sampled_from([*FIELDS, "ttl", "names", "step", "replicas"]))
        place[name] = draw(FIELDS.get(name, JUNK))
    return document


@st.composite
def as_yaml(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> str:
    """With or without quotes, and so with or without a meaning of its own for YAML."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            inner = ", ".join(f"{json.dumps(k)}: {written(v)}" for k, v in value.items())
            return f"{{{inner}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(written, value))}]"
        is_word = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.:~-]+", value)
        if is_word and not value.endswith(":") and draw(st.booleans()):
            return str(value)
        return json.dumps(value)

    document = draw(documents)
    if not isinstance(document, dict) or draw(st.booleans()):
        return written(document)
    return "".join(f"{json.dumps(name)}: {written(each)}\n" for name, each in document.items())
