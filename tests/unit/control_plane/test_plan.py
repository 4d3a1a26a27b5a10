"""What a plan says, word by word. That it comes true is tested in `test_*_come_true.py`."""

import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from control_plane.files.loader import load_files
from control_plane.planning.changes import changes_between
from control_plane.planning.consequences import RULES, rule_for
from control_plane.planning.plan import Action, Consequence, FieldChange, NamespaceChange, plan
from control_plane.planning.written import FIELDS
from counter.namespaces import (
    EMPTY,
    Definition,
    HistoryStep,
    Limits,
    Snapshot,
    Strategy,
    next_snapshot,
)

MINUTES = HistoryStep(step_ms=60_000, retention_ms=7 * 86_400_000)
HOURS = HistoryStep(step_ms=3_600_000, retention_ms=90 * 86_400_000)
BEST_EFFORT = Strategy.BEST_EFFORT
HARMLESS, DATA_LOSS = Consequence.HARMLESS, Consequence.DATA_LOSS
IMPOSSIBLE = Consequence.IMPOSSIBLE

# Each case: a file as it is live, `->`, the file that is planned, `=>`, and what the plan says.
CASES = [
    (*before_and_after.split("\n->\n"), said)
    for case in Path(__file__).with_name("plans.txt").read_text().strip().split("\n\n")
    for before_and_after, said in [case.split("\n=>\n")]
]


def load(text: str) -> Definition:
    loaded = load_files({"plays.yaml": f"namespace: plays\n{text}\n"})
    assert loaded.mistakes == ()
    [definition] = loaded.definitions
    return definition


def defined(name: str = "plays", **values: Any) -> Definition:
    return Definition(**{"name": name, "strategy": Strategy.EVENTUAL} | values)


def live(*definitions: Definition) -> Snapshot:
    return next_snapshot(EMPTY, definitions, applied_at_ns=1)


def shown(change: FieldChange) -> str:
    was, will = change.before or "(left out)", change.after or "(left out)"
    lines = [f"{change.consequence.name.lower()}: {change.field}: {was} -> {will}"]
    for words in (change.explanation, change.hint and f"({change.hint})"):
        lines += textwrap.wrap(
            words,
            110,
            initial_indent="    ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    CASES,
    ids=[f"{number}: {said.splitlines()[0]}" for number, (_, _, said) in enumerate(CASES)],
)
def test_a_change_is_explained(before: str, after: str, said: str) -> None:
    [change] = plan(live(load(before)), [load(after)]).changes
    assert (change.namespace, change.action, change.explanation) == ("plays", Action.CHANGE, "")
    assert change.own_consequence is HARMLESS
    assert change.consequence is max(each.consequence for each in change.fields)
    assert "\n".join(map(shown, change.fields)) == said


def test_every_rule_has_a_case() -> None:
    reached = [
        rule_for(change)
        for before, after, _ in CASES
        for change in changes_between(load(before), load(after))
    ]
    assert [rule for rule in RULES if rule not in reached] == []


def test_every_field_has_rules_and_nothing_else_has() -> None:
    attributes = {each.name for each in fields(Definition)} - {"name", "history", "limits"}
    attributes |= {f"limits.{each.name}" for each in fields(Limits)}
    assert {each.attribute for each in FIELDS} == attributes
    # A step is known by step_ms, so of a step that stays only the retention can differ.
    assert [each.name for each in fields(HistoryStep)] == ["step_ms", "retention_ms"]
    subjects = {each.name for each in FIELDS} | {"history.step", "history.retention"}
    assert {rule.subject for rule in RULES} == subjects


# Namespaces as a whole.


def only(changes: tuple[NamespaceChange, ...]) -> NamespaceChange:
    [change] = changes
    return change


def test_nothing_to_do_is_an_empty_plan() -> None:
    base = live(defined(), defined("likes"))
    planned = plan(base, [defined("likes"), defined()])
    assert (planned.base_version, planned.changes, planned.consequence) == (1, (), None)
    assert plan(EMPTY, []).changes == ()


def test_changes_are_by_name() -> None:
    base = live(defined("a"), defined("c"), defined("e"))
    planned = plan(base, [defined("e", owner="me"), defined("b"), defined("a")])
    assert [(each.namespace, each.action) for each in planned.changes] == [
        ("b", Action.CREATE),
        ("c", Action.DELETE),
        ("e", Action.CHANGE),
    ]
    assert planned.consequence is DATA_LOSS


def test_a_new_namespace_shows_what_is_not_the_default() -> None:
    change = only(plan(EMPTY, [defined(max_delta=5, history=(MINUTES, HOURS))]).changes)
    assert (change.action, change.consequence) == (Action.CREATE, HARMLESS)
    assert change.explanation == "its counters start at 0"
    assert [(each.field, each.before, each.after) for each in change.fields] == [
        ("strategy", "", "eventual"),
        ("max_delta", "", "5"),
        ("history", "", "{step: 1m, retention: 7d}"),
        ("history", "", "{step: 1h, retention: 90d}"),
    ]


def test_deleting_loses_data() -> None:
    change = only(plan(live(defined()), []).changes)
    assert (change.action, change.fields, change.consequence) == (Action.DELETE, (), DATA_LOSS)
    assert change.explanation == (
        "callers are refused (NAMESPACE_UNKNOWN), and its counts are out of reach; a rollback "
        "brings them back as long as it is among the last 1,000 that were deleted"
    )
    best_effort = only(plan(live(defined(strategy=BEST_EFFORT)), []).changes)
    assert best_effort.explanation == (
        "callers are refused (NAMESPACE_UNKNOWN), and its counts are out of reach; a rollback "
        "brings the namespace back, but best_effort may have lost its counts by then"
    )


def test_an_earlier_id_brings_a_namespace_back_as_it_was_deleted() -> None:
    first = live(defined(owner="a"))
    gone = next_snapshot(first, [], applied_at_ns=2)
    change = only(plan(gone, [defined(owner="a")], {"plays": 1}).changes)
    assert (change.action, change.fields, change.consequence) == (Action.RESTORE, (), HARMLESS)
    assert change.explanation == ("is there again, with the counts that it had when it was deleted")
    # What differs from when it was deleted counts as a change of it.
    change = only(plan(gone, [defined(strategy=BEST_EFFORT)], {"plays": 1}).changes)
    assert [(each.field, each.consequence) for each in change.fields] == [
        ("strategy", IMPOSSIBLE),
    ]
    assert change.consequence is IMPOSSIBLE
    again = only(plan(gone, [defined()]).changes)
    assert again.action is Action.CREATE
    assert again.explanation.startswith("its counters start at 0: the counts of the one of this")
    unknown = only(plan(gone, [defined()], {"plays": 77}).changes)
    assert unknown.action is Action.CREATE
    assert "not among the last 1,000 that were deleted" in unknown.explanation


def test_an_earlier_id_in_place_of_the_live_one_loses_the_live_ones_counts() -> None:
    gone = next_snapshot(live(defined()), [], applied_at_ns=2)
    base = next_snapshot(gone, [defined()], applied_at_ns=3)
    change = only(plan(base, [defined()], {"plays": 1}).changes)
    assert (change.action, change.fields, change.consequence) == (Action.RESTORE, (), DATA_LOSS)
    assert change.explanation == (
        "the earlier namespace of this name is there again with its counts, and the counts of the "
        "one that is live now are out of reach"
    )
