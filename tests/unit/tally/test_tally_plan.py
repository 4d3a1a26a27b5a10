"""`tally plan`, as an admin sees it."""

import re
from pathlib import Path
from typing import Any

import pytest

from counter.v1 import namespace_service_pb2 as pb
from tests.unit.tally.control_plane_script import ControlPlane
from tests.unit.tally.planned import (
    ESCAPE,
    LONG,
    NOTE,
    add_change,
    whole_plan,
    without_styles,
)


def test_a_plan_in_a_pipe(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    whole_plan(control_plane.plan)
    ran = tally("plan", folder, "--allow-data-loss")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.splitlines() == [
        "+ likes  namespaces/likes.yaml",
        "    harmless: its counters start at 0",
        "    strategy  accurate",
        "",
        "~ plays",
        "    cache.ttl          5s -> 10s           namespaces/plays.yaml:7",
        f"        costs: {LONG}",
        "        note: do something else",
        "    limits.adds_per_s  (left out) -> 1000  namespaces/plays.yaml:9",
        "",
        "- old",
        "    data loss: its counts are out of reach",
        "",
        "↺ views",
        "    harmless: is there again, with its counts",
        "",
        "Plan: 1 to create, 1 to change, 1 to delete, 1 to restore.",
        "It is compared with version 7, which is live.",
        "Apply it with: tally apply namespaces --allow-data-loss -m REASON"
        f" --server {script.address}",
    ]
    (request,) = control_plane.requests
    assert [each.path for each in request.files] == ["namespaces/plays.yaml"]
    assert request.files[0].content == "namespace: plays\nstrategy: eventual\n"


def test_a_plan_on_a_terminal_of_80_columns(
    on_terminal: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    whole_plan(control_plane.plan)
    long = control_plane.plan.changes[1].fields.add(field="history", consequence=1, line=12)
    long.before = "{step: 1m, retention: 7d}, {step: 1h, retention: 90d}"
    long.after = "{step: 1m, retention: 8d}, {step: 1h, retention: 91d}"
    code, shown = on_terminal("plan", folder)
    lines = without_styles(shown).splitlines()
    assert code == 1
    assert max(map(len, lines)) <= 80
    assert f"    cache.ttl          5s -> 10s{' ' * 11}namespaces/plays.yaml:7" not in lines
    assert "    cache.ttl          5s -> 10s  namespaces/plays.yaml:7" in lines
    assert (
        "        costs: a count may be answered from the shared cache for 10s instead of" in lines
    )
    assert "        5s, and says so" in lines
    where = lines.index(f"    history            {long.before}")
    assert lines[where + 1] == f"{' ' * 20}-> {long.after}"
    assert lines[where + 2] == "        namespaces/plays.yaml:12"
    assert f"{ESCAPE}1;32m+ likes" in shown
    assert f"{ESCAPE}1;33m~ plays" in shown
    assert f"{ESCAPE}1;31m- old" in shown
    assert f"{ESCAPE}33mcosts:" in shown
    assert f"{ESCAPE}31mdata loss:" in shown
    code, shown = on_terminal("plan", folder, columns=200)
    assert max(map(len, without_styles(shown).splitlines())) > 80


def test_a_plan_without_colours(
    on_terminal: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    whole_plan(control_plane.plan)
    _, shown = on_terminal("plan", folder, NO_COLOR="1")
    assert re.search(r"\x1b\[[\d;]*3[1-7]m", shown) is None
    assert "data loss: its counts are out of reach" in without_styles(shown)


def test_nothing_to_do(tally: Any, script: Any, folder: str) -> None:
    for arguments in ((), ("--exit-code",)):
        ran = tally("plan", folder, *arguments)
        assert ran.code == 0
        assert ran.out == "Nothing to do: namespaces has what version 7 has.\n"
    ran = tally("apply", folder, *NOTE)
    assert (ran.code, ran.err) == (0, "")
    assert tally("plan", folder, "--json").json["can_be_applied"] is True


@pytest.mark.parametrize(
    ("consequence", "options", "code", "said"),
    [
        (pb.CONSEQUENCE_HARMLESS, (), 0, "Apply it with"),
        (pb.CONSEQUENCE_COSTS, ("--exit-code",), 5, "Apply it with"),
        (pb.CONSEQUENCE_DATA_LOSS, (), 1, "data of plays would be lost"),
        (pb.CONSEQUENCE_DATA_LOSS, ("--exit-code",), 1, "add --allow-data-loss"),
        (pb.CONSEQUENCE_DATA_LOSS, ("--exit-code", "--allow-data-loss"), 5, "Apply it with"),
        (pb.CONSEQUENCE_IMPOSSIBLE, ("--exit-code", "--allow-data-loss"), 1, "no live namespace"),
        # What a newer server says is for that server to refuse.
        (99, (), 0, "not known to this version of tally"),
    ],
)
def test_the_exit_code_of_a_plan(
    tally: Any,
    script: Any,
    control_plane: ControlPlane,
    folder: str,
    consequence: Any,
    options: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    add_change(control_plane.plan, consequence)
    ran = tally("plan", folder, *options)
    assert ran.code == code
    assert said in ran.out
    document = tally("plan", folder, *options, "--json").json
    assert document["can_be_applied"] is (code != 1)
    assert (document["problem"] is None) is (code != 1)


def test_what_is_impossible_says_what_to_do_instead(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_IMPOSSIBLE)
    assert "        instead: do something else\n" in tally("plan", folder).out


def test_a_plan_as_json(tally: Any, script: Any, control_plane: ControlPlane, folder: str) -> None:
    whole_plan(control_plane.plan)
    ran = tally("plan", folder, "--json")
    assert ran.code == 1
    document = ran.json
    assert (document["base_version"], document["consequence"]) == (7, "data_loss")
    new, changed, *_ = document["changes"]
    assert (new["action"], new["path"]) == ("create", "namespaces/likes.yaml")
    assert changed["fields"][0] == {
        "field": "cache.ttl",
        "before": "5s",
        "after": "10s",
        "consequence": "costs",
        "explanation": LONG,
        "hint": "do something else",
        "line": 7,
        "column": 3,
    }
    assert changed["fields"][1]["before"] is None


def test_mistakes_are_shown_as_check_shows_them(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    control_plane.plan.mistakes.add(
        path="namespaces/plays.yaml", line=2, column=11, field="strategy", message="m", hint="h"
    )
    for command in (("plan", folder), ("apply", folder, *NOTE, "--yes")):
        ran = tally(*command)
        assert ran.code == 1
        assert ran.out.splitlines() == [
            "namespaces/plays.yaml:2:11: strategy: m",
            "    h",
            "",
            "1 mistake in 1 file: nothing of this can be applied",
        ]
        ran = tally(*command, "--json")
        assert ran.code == 1
        assert [each["field"] for each in ran.json["mistakes"]] == ["strategy"]
    assert control_plane.asked(pb.ApplyNamespacesRequest) == []


def test_what_cannot_be_sent_is_a_mistake_too(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str, tmp_path: Path
) -> None:
    Path(folder, "bad.yaml").write_bytes(b"\xff")
    Path(folder, "dead.yaml").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    for command in (("plan",), ("apply", *NOTE, "--yes")):
        ran = tally(*command, folder)
        assert ran.code == 1
        assert "namespaces/bad.yaml:1:1: " in ran.out
        assert "namespaces/dead.yaml:1:1: " in ran.out
        ran = tally(*command, "empty", "--json")
        assert ran.code == 1
        assert "no namespace files" in ran.json["mistakes"][0]["message"]
        assert tally(*command, "missing").code == 2
    assert control_plane.requests == []
