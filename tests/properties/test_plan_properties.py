"""A plan is what an apply does, whatever changes; and what it writes of a field can be read."""

from collections import Counter
from string import Formatter

from hypothesis import given
from hypothesis import strategies as st

from control_plane.files.loader import load_files
from control_plane.planning.changes import changes_between
from control_plane.planning.consequences import rule_for
from control_plane.planning.plan import Action, Consequence, Plan, plan
from control_plane.planning.written import FIELDS, written_step
from counter.namespaces import (
    EMPTY,
    Cardinality,
    Definition,
    HistoryStep,
    Limits,
    Snapshot,
    Strategy,
    next_snapshot,
)
from counter.windows import MS_PER_DAY

MINUTE_MS = 60_000
TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t"), max_size=20
)
MAYBE_FEW = st.none() | st.integers(1, 3)
LIMITS = st.builds(
    Limits,
    adds_per_s=MAYBE_FEW,
    reads_per_s=MAYBE_FEW,
    batch_items=MAYBE_FEW,
    names=st.sampled_from([None, "[a-z]+", r"it's \w{1,3}", "a b", "null", '"', "#: -"]),
)
# All that may follow one another: any part of it, in its order, is a history.
STEPS = [
    HistoryStep(step_ms=minutes * MINUTE_MS, retention_ms=days * MS_PER_DAY)
    for minutes, days in ((1, 1), (5, 2), (60, 20), (1_440, 300))
]
HISTORIES = st.sets(st.sampled_from(STEPS)).map(
    lambda steps: tuple(sorted(steps, key=lambda each: each.step_ms))
) | st.just((HistoryStep(step_ms=5 * MINUTE_MS, retention_ms=MS_PER_DAY),))


@st.composite
def definitions(draw: st.DrawFn, names: st.SearchStrategy[str]) -> Definition:
    strategy = draw(st.sampled_from(Strategy))
    is_best_effort = strategy is Strategy.BEST_EFFORT
    ttl_ms = draw(st.sampled_from([0, 500, 5_000, 60_000]))
    fields: dict[str, object] = {}
    if is_best_effort:
        fields["dedupe_ttl_ms"] = draw(st.sampled_from([None, 1_000, 60_000]))
        fields["shadow"] = draw(st.sampled_from([None, Strategy.EVENTUAL]))
    else:
        fields["history"] = draw(HISTORIES)
    if strategy is Strategy.ROLLING_WINDOW:
        fields["rolling_window_ms"] = draw(st.sampled_from([10_000, 300_000]))
    return Definition(
        name=draw(names),
        strategy=strategy,
        description=draw(TEXT),
        owner=draw(st.sampled_from(["", "playback-team", "no", "12", "a: b"])),
        cardinality=draw(st.sampled_from(Cardinality)),
        max_delta=draw(st.sampled_from([1, 1_000, 1_000_000])),
        cache_ttl_ms=ttl_ms,
        cache_local_ttl_ms=draw(st.sampled_from([0, 500])) if ttl_ms else 0,
        limits=draw(LIMITS),
        **fields,  # type: ignore[arg-type]
    )


# Of few names, so that they go, come again and change.
VERSIONS = st.lists(definitions(st.sampled_from("abc")), max_size=3, unique_by=lambda d: d.name)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """After some versions, with namespaces that were deleted and created again."""
    snapshot = EMPTY
    for number, wanted in enumerate(draw(st.lists(VERSIONS, max_size=4))):
        snapshot = next_snapshot(snapshot, wanted, applied_at_ns=number)
    return snapshot


# An id may be live, retired, of another name, or of none.
IDS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 8))


@given(snapshots(), VERSIONS, IDS)
def test_a_plan_is_what_an_apply_does(
    base: Snapshot, wanted: list[Definition], ids: dict[str, int]
) -> None:
    planned = plan(base, wanted, ids)
    applied = next_snapshot(base, wanted, applied_at_ns=99, ids=ids)
    assert planned.base_version == base.version
    assert (planned.changes == ()) == (applied is base)
    assert [each.namespace for each in planned.changes] == sorted(
        {each.namespace for each in planned.changes}
    )
    if applied is not base:
        about = applied.about
        assert counts(planned) == (about.created, about.changed, about.deleted)
    for change in planned.changes:
        name = change.namespace
        live, later = base.namespaces.get(name), applied.namespaces.get(name)
        earlier_id = ids.get(name, 0)
        earlier = base.by_id.get(earlier_id)
        is_restored = (
            earlier is not None and earlier in base.retired and earlier.name == name
        ) and later is not None
        assert (change.action is Action.RESTORE) == is_restored
        if change.action is Action.RESTORE:
            assert later is not None
            assert later.id == earlier_id
            loses = change.own_consequence is Consequence.DATA_LOSS
            assert loses == (live is not None)


def counts(planned: Plan) -> tuple[int, int, int]:
    """Created, changed and deleted, as a version tells them."""
    by_action = Counter(each.action for each in planned.changes)
    replaced = sum(
        each.action is Action.RESTORE and each.own_consequence is Consequence.DATA_LOSS
        for each in planned.changes
    )
    return (
        by_action[Action.CREATE] + by_action[Action.RESTORE],
        by_action[Action.CHANGE],
        by_action[Action.DELETE] + replaced,
    )


@given(definitions(st.just("a")), definitions(st.just("a")))
def test_every_change_has_its_rule_and_every_word_a_value(
    before: Definition, after: Definition
) -> None:
    """Whatever follows whatever."""
    for change in changes_between(before, after):
        rule = rule_for(change)
        for _, word, _, _ in Formatter().parse(rule.explanation + rule.hint):
            assert word is None or change.words[word]


@given(definitions(st.just("a")))
def test_what_is_written_of_a_definition_reads_as_the_same(definition: Definition) -> None:
    lines = ["namespace: a"]
    sections: dict[str, list[str]] = {}
    for field in FIELDS:
        text = field.written(definition)
        section, _, name = field.name.rpartition(".")
        if text and section:
            sections.setdefault(section, []).append(f"  {name}: {text}")
        elif text:
            lines.append(f"{field.name}: {text}")
    for section, inner in sections.items():
        lines += [f"{section}:", *inner]
    if definition.history:
        lines += ["history:", *(f"  - {written_step(each)}" for each in definition.history)]
    loaded = load_files({"a.yaml": "\n".join(lines)})
    assert (loaded.mistakes, loaded.definitions) == ((), (definition,))
