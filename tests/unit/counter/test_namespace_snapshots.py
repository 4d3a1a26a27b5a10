"""Snapshots of namespaces: ids are given once, and nothing changes unless something did."""

from dataclasses import replace
from typing import Any

import pytest

from counter.errors import SetupError
from counter.namespaces import (
    EMPTY,
    RECENT_WINDOWS_MAX,
    Cardinality,
    Definition,
    HistoryStep,
    Snapshot,
    Strategy,
    check_windows,
    next_snapshot,
    snapshot_from_json,
    snapshot_to_json,
)


def named(*names: str) -> list[Definition]:
    return [Definition(name=name, strategy=Strategy.EVENTUAL) for name in names]


def ids(snapshot: Snapshot) -> dict[str, int]:
    return {name: each.id for name, each in snapshot.namespaces.items()}


def test_the_same_definitions_make_no_new_version() -> None:
    first = next_snapshot(EMPTY, named("b", "a"), applied_at_ns=1)
    assert next_snapshot(first, named("a", "b"), applied_at_ns=2) is first
    assert next_snapshot(EMPTY, [], applied_at_ns=2) is EMPTY


def test_an_id_is_never_given_twice() -> None:
    first = next_snapshot(EMPTY, named("a", "b"), applied_at_ns=1)
    second = next_snapshot(first, named("b"), applied_at_ns=2)
    third = next_snapshot(second, named("a", "b", "c"), applied_at_ns=3)
    assert ids(first) == {"a": 1, "b": 2}
    assert ids(second) == {"b": 2}
    assert ids(third) == {"a": 3, "b": 2, "c": 4}
    assert (third.version, third.next_id, third.applied_at_ns) == (3, 5, 3)


def test_a_change_keeps_the_id() -> None:
    first = next_snapshot(EMPTY, named("a"), applied_at_ns=1)
    changed = Definition(name="a", strategy=Strategy.ACCURATE, cardinality=Cardinality.LOW)
    second = next_snapshot(first, [changed], applied_at_ns=2)
    assert ids(second) == ids(first)
    assert second.namespaces["a"].strategy is Strategy.ACCURATE
    assert first.namespaces["a"].strategy is Strategy.EVENTUAL


def test_a_snapshot_is_found_by_id_too_and_cannot_be_changed() -> None:
    first = next_snapshot(EMPTY, named("a", "b"), applied_at_ns=1)
    assert first.by_id[2] is first.namespaces["b"]
    with pytest.raises(TypeError):
        first.namespaces["c"] = first.namespaces["a"]  # type: ignore[index]


def test_a_snapshot_comes_back_from_json() -> None:
    first = next_snapshot(EMPTY, named("a", "b"), applied_at_ns=1)
    assert snapshot_from_json(snapshot_to_json(first)) == first


def test_history_and_rolling_window_come_back_from_json() -> None:
    steps = (
        HistoryStep(step_ms=60_000, retention_ms=604_800_000),
        HistoryStep(step_ms=3_600_000, retention_ms=7_776_000_000),
    )
    hits = Definition(
        name="hits", strategy=Strategy.ROLLING_WINDOW, history=steps, rolling_window_ms=300_000
    )
    first = next_snapshot(EMPTY, [hits, *named("a")], applied_at_ns=1)
    again = snapshot_from_json(snapshot_to_json(first))
    assert again == first
    assert again.namespaces["hits"].history == steps
    assert next_snapshot(again, [hits, *named("a")], applied_at_ns=2) is again
    shorter = replace(hits, rolling_window_ms=60_000, history=steps[:1])
    assert next_snapshot(again, [shorter, *named("a")], applied_at_ns=2).version == 2


def test_json_from_before_there_was_history() -> None:
    """Byte for byte what was stored then: it must load, and no new version comes of it."""
    body = (
        b'{"version":1,"applied_at_ns":5,"next_id":3,"namespaces":['
        b'{"name":"hits","strategy":"best_effort","description":"","owner":"",'
        b'"cardinality":"medium","max_delta":1000000,"cache_ttl_ms":5000,'
        b'"cache_local_ttl_ms":500,"dedupe_ttl_ms":60000,"id":1},'
        b'{"name":"plays","strategy":"eventual","description":"","owner":"me",'
        b'"cardinality":"high","max_delta":1000000,"cache_ttl_ms":5000,'
        b'"cache_local_ttl_ms":500,"dedupe_ttl_ms":null,"id":2}]}'
    )
    stored = snapshot_from_json(body)
    assert ids(stored) == {"hits": 1, "plays": 2}
    assert {each.history for each in stored.namespaces.values()} == {()}
    assert {each.rolling_window_ms for each in stored.namespaces.values()} == {None}
    definitions = [
        Definition(name="hits", strategy=Strategy.BEST_EFFORT, dedupe_ttl_ms=60_000),
        Definition(
            name="plays", strategy=Strategy.EVENTUAL, cardinality=Cardinality.HIGH, owner="me"
        ),
    ]
    assert next_snapshot(stored, definitions, applied_at_ns=6) is stored


def test_json_of_an_older_tally_takes_the_defaults() -> None:
    """Fields that came later are missing in versions that were stored before them."""
    body = (
        b'{"version": 1, "applied_at_ns": 5, "next_id": 2, '
        b'"namespaces": [{"name": "a", "strategy": "eventual", "id": 1}]}'
    )
    assert snapshot_from_json(body) == next_snapshot(EMPTY, named("a"), applied_at_ns=5)


def _served(**fields: Any) -> Snapshot:
    definition = Definition(name="plays", **fields)
    return next_snapshot(EMPTY, [definition], applied_at_ns=1)


@pytest.mark.parametrize("length_ms", [4_999, RECENT_WINDOWS_MAX * 5_000 + 1])
def test_a_rolling_window_must_go_with_the_platforms_windows(length_ms: int) -> None:
    for fitting_ms in (5_000, 300_000, RECENT_WINDOWS_MAX * 5_000):
        rolling = _served(strategy=Strategy.ROLLING_WINDOW, rolling_window_ms=fitting_ms)
        check_windows(rolling, 5_000)
    rolling = _served(strategy=Strategy.ROLLING_WINDOW, rolling_window_ms=length_ms)
    with pytest.raises(SetupError, match=f"namespace plays: rolling_window.length {length_ms} ms"):
        check_windows(rolling, 5_000)


def test_a_step_of_the_history_must_not_be_shorter_than_a_window() -> None:
    minutes = (HistoryStep(step_ms=60_000, retention_ms=86_400_000),)
    kept = _served(strategy=Strategy.EVENTUAL, history=minutes)
    check_windows(kept, 60_000)
    with pytest.raises(SetupError, match=r"namespace plays: history\.step 60000 ms is shorter"):
        check_windows(kept, 120_000)
