"""Snapshots of namespaces: ids are given once, and nothing changes unless something did."""

from dataclasses import replace
from typing import Any

import pytest

from counter.errors import SetupError, StoreDamaged
from counter.namespaces import (
    EMPTY,
    NO_LIMITS,
    RECENT_WINDOWS_MAX,
    RETIRED_MAX,
    About,
    Cardinality,
    Definition,
    HistoryStep,
    Limits,
    Namespace,
    Origin,
    Snapshot,
    Strategy,
    VersionInfo,
    check_windows,
    content_hash,
    definition_of,
    next_snapshot,
    snapshot_from_json,
    snapshot_to_json,
    version_info_from_json,
    version_info_to_json,
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
    first = next_snapshot(EMPTY, named("a"), applied_at_ns=5)
    assert snapshot_from_json(body) == replace(first, about=About())


def test_json_of_an_older_tally_knows_of_nothing_that_was_deleted_and_of_no_author() -> None:
    body = (
        b'{"version": 3, "applied_at_ns": 5, "next_id": 9, '
        b'"namespaces": [{"name": "a", "strategy": "best_effort", "id": 1}]}'
    )
    stored = snapshot_from_json(body)
    assert (stored.retired, stored.about, stored.folder_hash) == ((), About(), "")
    [namespace] = stored.namespaces.values()
    assert (namespace.limits, namespace.shadow) == (NO_LIMITS, None)
    assert list(stored.by_id) == [1]
    assert stored.info == VersionInfo(
        version=3,
        applied_at_ns=5,
        content_hash=content_hash([Definition(name="a", strategy=Strategy.BEST_EFFORT)]),
        namespaces=1,
    )


def test_the_info_of_a_version_comes_back_from_json() -> None:
    about = About(origin=Origin.ROLLED_BACK, author="ä", reason="b\n", restores=4, changed=2)
    info = VersionInfo(
        version=2**40, applied_at_ns=2**62, content_hash="c0", namespaces=1_000, about=about
    )
    assert version_info_from_json(version_info_to_json(info)) == info
    earlier = b'{"version":1,"applied_at_ns":2,"content_hash":"c0","namespaces":3}'
    assert version_info_from_json(earlier).about == About()
    later = version_info_to_json(info)[:-1] + b',"new":{}}'
    assert version_info_from_json(later) == info


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"version":1,"namespaces":[{"id":1}]}'])
def test_what_cannot_be_read_is_damage(body: bytes) -> None:
    for read in (snapshot_from_json, version_info_from_json):
        with pytest.raises(StoreDamaged, match="a stored version of the namespaces cannot be"):
            read(body)


def chain(*steps: list[Definition]) -> list[Snapshot]:
    """Version by version, each with the definitions of its step."""
    made: list[Snapshot] = [EMPTY]
    for at, wanted in enumerate(steps, start=1):
        made.append(next_snapshot(made[-1], wanted, applied_at_ns=at))
    return made


def test_what_is_deleted_is_remembered_but_cannot_be_called() -> None:
    *_, first, second = chain(named("a", "b"), named("b"))
    assert dict(second.namespaces) == {"b": first.namespaces["b"]}
    assert second.retired == (first.namespaces["a"],)
    assert second.by_id == {1: first.namespaces["a"], 2: first.namespaces["b"]}
    assert second.definitions == named("b")


def test_of_what_is_deleted_only_that_is_remembered_which_a_fold_needs() -> None:
    """All versions carry it along: texts would add up."""
    steps = (HistoryStep(step_ms=60_000, retention_ms=86_400_000),)
    given = Definition(
        name="a",
        strategy=Strategy.ROLLING_WINDOW,
        description="long",
        owner="somebody",
        cardinality=Cardinality.LOW,
        cache_ttl_ms=7,
        history=steps,
        rolling_window_ms=60_000,
        limits=Limits(names="x" * 200),
    )
    *_, second = chain([given], [])
    [remembered] = second.retired
    short = replace(given, description="", owner="", limits=NO_LIMITS)
    assert definition_of(remembered) == short
    third = next_snapshot(second, [given], applied_at_ns=3, ids={"a": 1})
    assert definition_of(third.namespaces["a"]) == given


def test_a_retired_id_can_be_given_back() -> None:
    *_, first, second = chain(named("a", "b"), named("b"))
    third = next_snapshot(second, named("a", "b"), applied_at_ns=3, ids=ids(first))
    assert ids(third) == {"a": 1, "b": 2}
    assert third.retired == ()
    assert third.next_id == second.next_id == 3


def test_an_id_comes_back_with_the_definition_that_is_wanted() -> None:
    *_, first, second = chain(named("a"), [])
    wanted = replace(named("a")[0], strategy=Strategy.ACCURATE, max_delta=7)
    third = next_snapshot(second, [wanted], applied_at_ns=3, ids=ids(first))
    assert third.namespaces["a"] == Namespace(
        id=1, name="a", strategy=Strategy.ACCURATE, max_delta=7
    )


def test_a_name_that_was_created_anew_meanwhile_gives_way_and_is_retired() -> None:
    *_, first, _, third = chain(named("a", "b"), named("b"), named("a", "b"))
    assert ids(third) == {"a": 3, "b": 2}
    fourth = next_snapshot(third, named("a", "b"), applied_at_ns=4, ids=ids(first))
    assert ids(fourth) == {"a": 1, "b": 2}
    assert [each.id for each in fourth.retired] == [3]
    assert (fourth.about.created, fourth.about.changed, fourth.about.deleted) == (1, 0, 1)
    # And back again: none of the two is lost.
    fifth = next_snapshot(fourth, named("a", "b"), applied_at_ns=5, ids=ids(third))
    assert ids(fifth) == {"a": 3, "b": 2}
    assert [each.id for each in fifth.retired] == [1]
    assert fifth.next_id == 4


def test_an_id_that_is_not_known_any_more_is_not_given_back() -> None:
    """Its events may have been left out of folds: a new id says that the count is a new one."""
    *_, first, second = chain(named("a"), [])
    forgetful = replace(second, retired=())
    third = next_snapshot(forgetful, named("a"), applied_at_ns=3, ids=ids(first))
    assert ids(third) == {"a": 2}
    assert third.next_id == 3


def test_a_live_name_keeps_its_id_if_the_earlier_one_is_not_known_any_more() -> None:
    *_, third = chain(named("a"), [], named("a"))
    forgetful = replace(third, retired=())
    assert next_snapshot(forgetful, named("a"), applied_at_ns=4, ids={"a": 1}) is forgetful


@pytest.mark.parametrize("of_another", [1, 2])
def test_an_id_of_another_name_is_not_taken(of_another: int) -> None:
    *_, second = chain(named("a", "b"), named("b"))
    assert {each.id: each.name for each in second.by_id.values()} == {1: "a", 2: "b"}
    third = next_snapshot(second, named("b", "c"), applied_at_ns=3, ids={"c": of_another})
    assert ids(third) == {"b": 2, "c": 3}
    assert [each.id for each in third.retired] == [1]


def test_an_id_without_a_definition_stays_retired() -> None:
    *_, second = chain(named("a", "b"), named("b"))
    third = next_snapshot(second, named("b", "c"), applied_at_ns=3, ids={"a": 1})
    assert ids(third) == {"b": 2, "c": 3}
    assert [each.id for each in third.retired] == [1]


def test_nothing_changes_when_the_ids_are_those_that_are_there() -> None:
    *_, second = chain(named("a", "b"), named("b"))
    assert next_snapshot(second, named("b"), applied_at_ns=3, ids=ids(second)) is second


def test_the_last_deleted_ones_are_remembered() -> None:
    many = [f"n{number}" for number in range(RETIRED_MAX)]
    *_, second, third, fourth = chain(
        named("first", "second"), named("second", *many), named("second"), []
    )
    assert [each.name for each in second.retired] == ["first"]
    names = [each.name for each in third.retired]
    assert (len(names), "first" in names) == (RETIRED_MAX, False)
    names = [each.name for each in fourth.retired]
    assert (len(names), names[-1], names[0]) == (RETIRED_MAX, "second", third.retired[1].name)
    assert len(fourth.by_id) == RETIRED_MAX


def test_a_version_says_what_it_did_to_the_one_before() -> None:
    about = About(origin=Origin.APPLIED, author="me", reason="why not", created=99, deleted=99)
    first = next_snapshot(EMPTY, named("a", "b", "c"), applied_at_ns=1, about=about)
    assert first.about == replace(about, created=3, changed=0, deleted=0)
    wanted = [*named("a", "d"), Definition(name="b", strategy=Strategy.ACCURATE)]
    second = next_snapshot(first, wanted, applied_at_ns=2)
    assert second.about == About(created=1, changed=1, deleted=1)
    back = About(origin=Origin.ROLLED_BACK, restores=1)
    third = next_snapshot(second, first.definitions, applied_at_ns=3, about=back, ids=ids(first))
    assert third.about == replace(back, created=1, changed=1, deleted=1)
    assert ids(third) == ids(first)
    assert third.info.content_hash == first.info.content_hash != second.info.content_hash
    assert (third.info.version, third.info.applied_at_ns, third.info.namespaces) == (3, 3, 3)
    assert third.info.about == third.about


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
