from dataclasses import replace

from control_plane.files.loader import Loaded, load_files
from control_plane.planning.check import data_loss_mistakes, impossible_changes, report
from control_plane.planning.plan import plan
from counter.namespaces import EMPTY, Snapshot, next_snapshot

ROLLING = "strategy: rolling_window\nrolling_window: {length: 300s}"
HISTORY = "strategy: eventual\nhistory: [{step: 1m, retention: 7d}]"


def load(**texts: str) -> Loaded:
    loaded = load_files({f"{name}.yaml": f"namespace: {name}\n{texts[name]}" for name in texts})
    assert loaded.mistakes == ()
    return replace(loaded, origin="configs/namespaces")


def live(**texts: str) -> Snapshot:
    return next_snapshot(EMPTY, load(**texts).definitions, applied_at_ns=1)


def lost(current: Snapshot, wanted: Loaded) -> list[str]:
    found = data_loss_mistakes(plan(current, wanted.definitions), wanted)
    return report(found).splitlines()


def test_what_may_change_may_change() -> None:
    current = live(a="strategy: eventual", b="strategy: best_effort", c=ROLLING, d=HISTORY)
    wanted = load(
        a=ROLLING,
        b="strategy: best_effort\ndedupe_ttl: 1m\nshadow: eventual",
        c="strategy: accurate\nmax_delta: 5\ncache: {ttl: 1s}\nowner: me",
        d="strategy: eventual",
        e="strategy: eventual\ncardinality: low",
    )
    assert impossible_changes(current, wanted) == ()


def test_impossible_changes_are_told_where_they_are_written() -> None:
    current = live(a="strategy: eventual\ncardinality: high", b="strategy: accurate")
    wanted = load(a="strategy: best_effort\ncardinality: low", b="strategy: best_effort")
    elsewhere = "the counts of best_effort are kept elsewhere, so all reads would start at 0"
    assert report(impossible_changes(current, wanted)).splitlines() == [
        "a.yaml:2:11: strategy: cannot change from eventual to best_effort: "
        f"{elsewhere} (keep 'strategy: eventual', and create a namespace for best_effort under "
        "another name)",
        "a.yaml:3:14: cardinality: cannot change from high to low: it is fixed once a namespace "
        "is created: the rollups would not be found any more, and all reads would start at 0 "
        "(write 'cardinality: high'; or create a namespace under another name with "
        "'cardinality: low', add to both for a while, and then delete this one)",
        "b.yaml:2:11: strategy: cannot change from accurate to best_effort: "
        f"{elsewhere} (keep 'strategy: accurate', and create a namespace for best_effort under "
        "another name)",
    ]


def test_an_impossible_change_by_leaving_a_field_out_is_told_at_the_name() -> None:
    current = live(a="strategy: eventual\ncardinality: high")
    [left_out] = impossible_changes(current, load(a="strategy: eventual"))
    assert str(left_out).startswith("a.yaml:1:12: cardinality: cannot change from high to medium: ")


def test_namespaces_that_are_left_out_are_not_asked_for() -> None:
    current = live(a="strategy: eventual", b="strategy: eventual\ncardinality: low")
    assert impossible_changes(current, load(z="strategy: eventual")) == ()


def test_what_loses_no_data_is_no_mistake() -> None:
    current = live(a="strategy: eventual", b="strategy: best_effort", c=HISTORY)
    wanted = load(
        a="strategy: accurate\nmax_delta: 5",
        b="strategy: best_effort\nshadow: eventual",
        c=HISTORY.replace("7d", "9d"),
        d="strategy: eventual",
    )
    assert lost(current, wanted) == []


def test_data_loss_is_told_where_it_is_written_with_the_command_that_does_it() -> None:
    allow = "'tally apply configs/namespaces --allow-data-loss' does it all the same"
    current = live(a=HISTORY, b=HISTORY, c="strategy: best_effort\nshadow: eventual")
    wanted = load(a=HISTORY.replace("7d", "2d"), b="strategy: eventual", c="strategy: eventual")
    assert lost(current, wanted) == [
        "a.yaml:3:10: history: changing from {step: 1m, retention: 7d} to {step: 1m, retention: "
        "2d} loses data: states by steps of 1m that are written from now on are lost after 2d "
        f"instead of 7d; those that are there stay for their 7d ({allow})",
        "b.yaml:1:12: history: removing {step: 1m, retention: 7d} loses data: no history is kept "
        "any more, and the states by steps of 1m that were kept are out of reach (HISTORY_OFF) "
        "(a rollback brings back what has not expired by then, with a gap for the time between; "
        f"{allow})",
        "c.yaml:2:11: strategy: changing from best_effort to eventual loses data: reads answer "
        "with what was added in shadow phases: what best_effort counted before stays "
        "behind ('tally cutover c --carry-over' compares the two first, and adds what the shadow "
        f"lacks to counters that were added to since; {allow})",
    ]


def test_deleting_is_told_at_the_folder() -> None:
    current = live(a="strategy: eventual", b="strategy: eventual")
    assert lost(current, load(b="strategy: eventual")) == [
        "configs/namespaces:1:1: deletes the namespace a: callers are refused (NAMESPACE_UNKNOWN), "
        "and its counts are out of reach; a rollback brings them back as long as it is among the "
        "last 1,000 that were deleted (put a.yaml back; 'tally apply configs/namespaces "
        "--allow-data-loss' does it all the same)"
    ]


def test_replacing_by_an_earlier_one_is_told_at_the_name() -> None:
    gone = next_snapshot(live(a="strategy: eventual"), [], applied_at_ns=2)
    wanted = load(a="strategy: eventual")
    again = next_snapshot(gone, wanted.definitions, applied_at_ns=3)
    [only] = data_loss_mistakes(plan(again, wanted.definitions, {"a": 1}), wanted)
    assert str(only).startswith("a.yaml:1:12: namespace: replaces the namespace a: the earlier")
