"""The hash of namespaces and the chain of their versions, for any definitions in any order."""

from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from counter.namespaces import (
    EMPTY,
    Cardinality,
    Definition,
    HistoryStep,
    Limits,
    Namespace,
    Snapshot,
    Strategy,
    content_hash,
    next_snapshot,
    snapshot_from_json,
    snapshot_to_json,
    version_info_from_json,
    version_info_to_json,
)
from tests.properties.strategies import TEXT

NUMBERS = st.integers(0, 2**53)
MAYBE = st.none() | st.sampled_from([0, 1]) | NUMBERS
LIMITS = st.builds(
    Limits,
    adds_per_s=MAYBE,
    reads_per_s=MAYBE,
    counters=MAYBE,
    batch_items=MAYBE,
    names=st.none() | TEXT,
)
OF_A_FIELD: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["a", "b", "c", "d"]),
    "strategy": st.sampled_from(Strategy),
    "description": TEXT,
    "owner": TEXT,
    "cardinality": st.sampled_from(Cardinality),
    "max_delta": NUMBERS,
    "cache_ttl_ms": NUMBERS,
    "cache_local_ttl_ms": NUMBERS,
    "dedupe_ttl_ms": MAYBE,
    "history": st.lists(
        st.builds(HistoryStep, step_ms=NUMBERS, retention_ms=NUMBERS), max_size=3
    ).map(tuple),
    "rolling_window_ms": MAYBE,
    "limits": LIMITS,
    "shadow": st.none() | st.sampled_from(Strategy),
}
DEFINITIONS = st.builds(Definition, **OF_A_FIELD)
SETS = st.lists(DEFINITIONS, max_size=4, unique_by=lambda each: each.name)


def test_no_field_is_left_out_here() -> None:
    assert set(OF_A_FIELD) == {each.name for each in fields(Definition)}


@given(SETS, st.randoms(use_true_random=False), st.integers(1, 2**62))
def test_the_hash_depends_neither_on_order_nor_on_ids(
    given_: list[Definition], chance: Any, first_id: int
) -> None:
    shuffled = list(given_)
    chance.shuffle(shuffled)
    with_ids = [
        Namespace(**{each.name: getattr(one, each.name) for each in fields(one)}, id=first_id + at)
        for at, one in enumerate(shuffled)
    ]
    assert content_hash(given_) == content_hash(shuffled) == content_hash(with_ids)


@given(SETS, SETS)
def test_the_hash_is_equal_for_equal_definitions_only(
    one: list[Definition], other: list[Definition]
) -> None:
    def by_name(definition: Definition) -> str:
        return definition.name

    equal = sorted(one, key=by_name) == sorted(other, key=by_name)
    assert (content_hash(one) == content_hash(other)) == equal


@given(st.data(), DEFINITIONS)
def test_the_hash_changes_with_every_field(data: st.DataObject, definition: Definition) -> None:
    name = data.draw(st.sampled_from(sorted(OF_A_FIELD)))
    value = data.draw(OF_A_FIELD[name].filter(lambda it: it != getattr(definition, name)))
    changed = replace(definition, **{name: value})
    assert content_hash([changed]) != content_hash([definition])


@given(st.data(), DEFINITIONS)
def test_the_hash_changes_with_every_limit(data: st.DataObject, definition: Definition) -> None:
    limits = definition.limits
    name = data.draw(st.sampled_from([each.name for each in fields(Limits)]))
    values: st.SearchStrategy[Any] = TEXT if name == "names" else NUMBERS
    value = data.draw(values.filter(lambda it: it != getattr(limits, name)))
    changed = replace(definition, limits=replace(limits, **{name: value}))
    assert content_hash([changed]) != content_hash([definition])


@given(st.data())
def test_ids_are_for_one_name_for_ever_and_nothing_is_forgotten(data: st.DataObject) -> None:
    """Whatever is applied and rolled back, in whatever order."""
    versions = [EMPTY]
    name_of: dict[int, str] = {}
    for _ in range(data.draw(st.integers(1, 8))):
        current = versions[-1]
        wanted, ids = data.draw(SETS), {}
        if data.draw(st.booleans()):
            earlier = data.draw(st.sampled_from(versions))
            wanted, ids = earlier.definitions, _ids(earlier)
        following = next_snapshot(current, wanted, applied_at_ns=len(versions), ids=ids)
        if following is current:
            continue
        versions.append(following)
        if ids:
            assert _ids(following) == ids
        for namespace in following.by_id.values():
            assert name_of.setdefault(namespace.id, namespace.name) == namespace.name
        # Live or retired, never both; and all that there ever was.
        assert len(following.by_id) == len(following.namespaces) + len(following.retired)
        assert following.by_id.keys() == name_of.keys()
        assert max(name_of) < following.next_id
        about = following.about
        grown = len(following.namespaces) - len(current.namespaces)
        assert about.created - about.deleted == grown
        assert about.created + about.changed + about.deleted > 0
        assert snapshot_from_json(snapshot_to_json(following)) == following
        info = following.info
        assert version_info_from_json(version_info_to_json(info)) == info


def _ids(snapshot: Snapshot) -> dict[str, int]:
    return {name: each.id for name, each in snapshot.namespaces.items()}
