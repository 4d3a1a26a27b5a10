from control_plane.check import check_against, check_changes, report
from control_plane.loader import Loaded, load_files
from counter.namespaces import EMPTY, Snapshot, next_snapshot


def load(**texts: str) -> Loaded:
    loaded = load_files({f"{name}.yaml": f"namespace: {name}\n{texts[name]}" for name in texts})
    assert loaded.mistakes == ()
    return loaded


def live(**texts: str) -> Snapshot:
    return next_snapshot(EMPTY, load(**texts).definitions, applied_at_ns=1)


def test_what_may_change_may_change() -> None:
    current = live(a="strategy: eventual", b="strategy: best_effort")
    wanted = load(
        a="strategy: accurate\nmax_delta: 5\ncache: {ttl: 1s}\nowner: me",
        b="strategy: best_effort\ndedupe_ttl: 1m",
        c="strategy: eventual\ncardinality: low",
    )
    assert check_against(current, wanted) == ()


def test_history_and_rolling_window_may_change_at_once() -> None:
    rolling = "strategy: rolling_window\nrolling_window: {length: 300s}"
    history = "strategy: eventual\nhistory: [{step: 1m, retention: 7d}]"
    current = live(a="strategy: eventual", b=rolling, c=history, d="strategy: accurate", e=history)
    wanted = load(
        a=rolling,
        b="strategy: accurate",
        c="strategy: eventual\nhistory: [{step: 5m, retention: 2d}, {step: 1d, retention: 30d}]",
        d=rolling.replace("300s", "60s"),
        e="strategy: eventual",
    )
    assert check_against(current, wanted) == ()
    assert check_against(current, load(b=rolling.replace("300s", "1h"))) == ()


def test_cardinality_is_fixed() -> None:
    current = live(a="strategy: eventual\ncardinality: high")
    given = check_against(current, load(a="strategy: eventual\ncardinality: low"))
    assert report(given) == (
        "a.yaml:3:14: cardinality: cannot change from high to low (it is fixed once a namespace "
        "is created: write 'cardinality: high', or create a namespace under another name)"
    )
    left_out = check_against(current, load(a="strategy: eventual"))
    assert report(left_out).startswith(
        "a.yaml:1:12: cardinality: cannot change from high to medium ("
    )


def test_best_effort_stays_best_effort() -> None:
    current = live(a="strategy: best_effort", b="strategy: accurate")
    wanted = load(a="strategy: eventual", b="strategy: best_effort")
    assert report(check_against(current, wanted)).splitlines() == [
        "a.yaml:2:11: strategy: cannot change from best_effort to eventual on a live namespace: "
        "the counts of best_effort are kept elsewhere (create a namespace under another name, "
        "or delete this one: its counts start at 0 when it is created again)",
        "b.yaml:2:11: strategy: cannot change from accurate to best_effort on a live namespace: "
        "the counts of best_effort are kept elsewhere (create a namespace under another name, "
        "or delete this one: its counts start at 0 when it is created again)",
    ]


def test_rolling_window_is_no_way_out_of_best_effort() -> None:
    rolling = "strategy: rolling_window\nrolling_window: {length: 300s}"
    current = live(a="strategy: best_effort", b=rolling)
    mistakes = check_against(current, load(a=rolling, b="strategy: best_effort"))
    assert [(each.field, each.message.partition(" on ")[0]) for each in mistakes] == [
        ("strategy", "cannot change from best_effort to rolling_window"),
        ("strategy", "cannot change from rolling_window to best_effort"),
    ]


def test_not_every_namespace_may_go_at_once() -> None:
    texts = dict.fromkeys("abcde", "strategy: eventual")
    (only,) = check_against(live(**texts), load(z="strategy: eventual"))
    assert only.message == "would remove every live namespace: a, b, c and 2 more"
    assert check_against(live(**texts), load(e="strategy: eventual")) == ()
    assert check_against(EMPTY, load(z="strategy: eventual")) == ()


def test_changes_alone_do_not_ask_for_the_other_namespaces() -> None:
    assert check_changes(live(a="strategy: eventual"), load(z="strategy: eventual")) == ()
