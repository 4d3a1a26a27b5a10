"""Snapshots of namespaces: ids are given once, and nothing changes unless something did."""

import pytest

from counter.namespaces import (
    EMPTY,
    Cardinality,
    Definition,
    Snapshot,
    Strategy,
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


def test_json_of_an_older_tally_takes_the_defaults() -> None:
    """Fields that came later are missing in versions that were stored before them."""
    body = (
        b'{"version": 1, "applied_at_ns": 5, "next_id": 2, '
        b'"namespaces": [{"name": "a", "strategy": "eventual", "id": 1}]}'
    )
    assert snapshot_from_json(body) == next_snapshot(EMPTY, named("a"), applied_at_ns=5)
