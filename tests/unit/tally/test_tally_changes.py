"""Applies, rollbacks, differences and versions, as an admin sees them."""

import json
from typing import Any

import grpc
import pytest
import typer

from counter import errors
from counter.v1 import namespace_service_pb2 as pb
from tally.commands import changes
from tests.unit.tally.control_plane_script import ControlPlane
from tests.unit.tally.planned import (
    ESCAPE,
    NOTE,
    add_change,
    fleet,
    without_styles,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a fleet that does not change."""
    monkeypatch.setattr(changes, "ROLLOUT_WAIT_S", 0.2)
    monkeypatch.setattr(changes, "ROLLOUT_POLL_S", 0.0)


def test_apply_without_asking(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    control_plane.fleets = [fleet(7, 8, 7), fleet(8, 8, 9)]
    ran = tally("apply", folder, *NOTE, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert "~ plays" in ran.out
    assert ran.out.splitlines()[-2:] == [
        "version 8 is applied", "version 8 runs on 3 of 3 processes"
    ]  # fmt: skip
    (request,) = control_plane.asked(pb.ApplyNamespacesRequest)
    assert (request.expected_version, request.allow_data_loss) == (7, False)
    assert (request.author, request.reason) == ("oncall", "more history")
    assert [each.path for each in request.files] == ["namespaces/plays.yaml"]


def test_apply_says_who_does_not_run_it(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    control_plane.fleets = [fleet(8, 7)]
    ran = tally("apply", folder, *NOTE, "--yes")
    assert ran.code == 0
    assert "version 8 runs on 1 of 2 processes: see tally namespaces --fleet" in ran.out


def test_apply_says_who_refuses_it(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    control_plane.fleets = [fleet(8, refused=8)]
    ran = tally("apply", folder, *NOTE, "--yes")
    assert ran.code == 1
    assert "worker host x refuses version 8: the windows are too long" in ran.err
    control_plane.plan.base_version = 8
    control_plane.fleets = [fleet(9, refused=9)]
    document = tally("apply", folder, *NOTE, "--yes", "--json").json
    assert document["processes"] == {
        "alive": 2,
        "running": 1,
        "refused": [
            {"process": "host x", "program": "worker", "problem": "the windows are too long"}
        ],
    }


def test_what_is_live_and_refused_is_told_again(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    control_plane.plan.base_version = 8
    control_plane.fleets = [fleet(8, refused=8)]
    ran = tally("apply", folder, *NOTE, "--yes")
    assert ran.code == 1
    assert "refuses version 8" in ran.err


@pytest.mark.parametrize(("expected", "code"), [("7", 0), ("6", 1), ("8", 1)])
def test_apply_on_an_expected_version(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str, expected: str, code: int
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    ran = tally("apply", folder, *NOTE, "--yes", "--no-wait", "--expected-version", expected)
    assert ran.code == code
    if code:
        assert f"version 7 is live, and {expected} was expected" in ran.err


def test_apply_without_waiting(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    document = tally("apply", folder, *NOTE, "--yes", "--no-wait", "--json").json
    assert document["applied"] is True
    assert document["processes"] is None
    assert document["version"]["version"] == 8
    assert document["version"]["origin"] == "applied"
    assert control_plane.asked(pb.ListProcessesRequest) == []


def test_apply_asks_first(
    tally: Any,
    on_terminal: Any,
    script: Any,
    control_plane: ControlPlane,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    control_plane.fleets = [fleet(8)]
    for option in ((), ("--json",)):
        ran = tally("apply", folder, *NOTE, *option)
        assert ran.code == 2
        assert "--yes" in ran.err
    asked: list[str] = []
    answers = [False, True]
    monkeypatch.setattr(
        typer, "confirm", lambda question, **_: (asked.append(question), answers.pop(0))[1]
    )
    code, shown = on_terminal("apply", folder, *NOTE)
    assert (code, control_plane.live) == (1, 7)
    assert "nothing was changed: you did not agree" in without_styles(shown)
    code, shown = on_terminal("apply", folder, *NOTE)
    assert (code, control_plane.live) == (0, 8)
    assert asked == ["Apply this as version 8?"] * 2
    assert "version 8 runs on 1 of 1 processes" in without_styles(shown)


@pytest.mark.parametrize("command", [("apply", "namespaces"), ("rollback", "5")])
def test_a_change_needs_a_reason(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str, command: tuple[str, ...]
) -> None:
    ran = tally(*command, "--yes")
    assert ran.code == 2
    assert "--reason" in ran.err
    assert control_plane.requests == []


@pytest.mark.parametrize("command", [("apply", "namespaces"), ("rollback", "5")])
@pytest.mark.parametrize("consequence", [pb.CONSEQUENCE_DATA_LOSS, pb.CONSEQUENCE_IMPOSSIBLE])
def test_what_must_not_be_applied_is_not_sent(
    tally: Any,
    script: Any,
    control_plane: ControlPlane,
    folder: str,
    command: tuple[str, ...],
    consequence: Any,
) -> None:
    add_change(control_plane.plan, consequence)
    ran = tally(*command, *NOTE, "--yes")
    assert ran.code == 1
    assert "~ plays" in ran.out
    assert "nothing was changed" in ran.err
    ran = tally(*command, *NOTE, "--yes", "--json")
    assert (ran.code, ran.json["applied"]) == (1, False)
    ran = tally(*command, *NOTE, "--yes", "--allow-data-loss")
    is_allowed = consequence == pb.CONSEQUENCE_DATA_LOSS
    assert (ran.code, control_plane.live) == ((0, 8) if is_allowed else (1, 7))


def test_a_lost_race_says_who_was_faster(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    for number, author in ((8, "first"), (9, "")):
        version = pb.Version(version=number, author=author, reason=f"reason {number}")
        version.applied_at.FromNanoseconds(1_700_000_000_000_000_000)
        control_plane.faster.insert(0, version)
    ran = tally("apply", folder, *NOTE, "--yes")
    assert ran.code == 1
    first, second, last = ran.err.splitlines()
    assert "version 8 was applied at 2023-11-14T22:13:20Z by first: reason 8" in first
    assert "version 9 was applied at 2023-11-14T22:13:20Z by nobody named: reason 9" in second
    assert "planned on version 7" in last
    assert f"tally plan namespaces --server {script.address}" in last
    assert control_plane.live == 9


def test_a_lost_answer_is_not_taken_for_a_lost_race(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    control_plane.refusals.append(grpc.StatusCode.UNAVAILABLE)
    ran = tally("apply", folder, *NOTE, "--yes")
    assert ran.code == 4
    assert "if version 8 has your name and reason" in ran.err
    assert f"tally versions --server {script.address}" in ran.err
    assert control_plane.live == 8
    assert len(control_plane.asked(pb.ApplyNamespacesRequest)) == 2


def test_the_servers_own_refusal_is_shown(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    control_plane.refusals.append(errors.ChangeImpossible("not like this"))
    ran = tally("apply", folder, *NOTE, "--yes")
    assert ran.code == 1
    assert "not like this" in ran.err


def test_rollback(tally: Any, script: Any, control_plane: ControlPlane) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    control_plane.fleets = [fleet(8)]
    ran = tally("rollback", "5", *NOTE, "--yes")
    assert ran.code == 0
    assert "~ plays" in ran.out
    assert "version 8 runs on 1 of 1 processes" in ran.out
    (planned,) = control_plane.asked(pb.PlanNamespacesRequest)
    assert (planned.version, planned.base_version) == (5, 0)
    (request,) = control_plane.asked(pb.RollbackNamespacesRequest)
    assert (request.version, request.expected_version) == (5, 7)
    assert (request.author, request.reason) == ("oncall", "more history")


def test_rollback_to_what_is_live(tally: Any, script: Any, control_plane: ControlPlane) -> None:
    ran = tally("rollback", "7", *NOTE)
    assert (ran.code, control_plane.live) == (0, 7)
    assert ran.out == "Nothing to do: version 7 has what version 7 has.\n"
    assert tally("rollback", "0", *NOTE).code == 2


@pytest.mark.parametrize(
    ("arguments", "expected"), [((), (6, 7)), (("3",), (3, 7)), (("5", "2"), (5, 2))]
)
def test_diff(
    tally: Any,
    script: Any,
    control_plane: ControlPlane,
    arguments: tuple[str, ...],
    expected: tuple[int, int],
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_IMPOSSIBLE)
    ran = tally("diff", *arguments)
    assert ran.code == 0
    before, after = expected
    assert ran.out.splitlines()[-1] == (
        f"From version {before} to version {after}: 0 created, 1 changed, 0 deleted."
    )
    (request,) = control_plane.asked(pb.PlanNamespacesRequest)
    assert (request.base_version, request.version) == expected
    document = tally("diff", *arguments, "--json").json
    assert (document["from_version"], document["to_version"]) == expected
    assert document["changes"][0]["namespace"] == "plays"


def test_diff_without_a_difference(tally: Any, script: Any, control_plane: ControlPlane) -> None:
    ran = tally("diff", "2")
    assert (ran.code, ran.out) == (0, "No difference between version 2 and version 7.\n")
    del control_plane.versions[1:]
    assert "is the only one" in tally("diff").err
    control_plane.versions.clear()
    assert "no version of the namespaces yet" in tally("diff").err


def test_versions(tally: Any, script: Any, control_plane: ControlPlane) -> None:
    control_plane.versions = control_plane.versions[-2:]
    newest = pb.Version(
        version=3,
        origin=pb.Version.ORIGIN_ROLLED_BACK,
        restores=1,
        author="oncall",
        reason="reads were slow",
        content_hash="0123456789abcdef",
        namespaces=4,
        created=1,
        changed=2,
    )
    newest.applied_at.FromNanoseconds(1_700_000_000_000_000_000)
    control_plane.versions.insert(0, newest)
    control_plane.versions[1].origin = pb.Version.ORIGIN_CUT_OVER
    ran = tally("versions")
    assert ran.code == 0
    assert ran.table == [
        ["version", "state", "applied", "by", "how", "changes", "hash", "why"],
        [
            "3", "live", "2023-11-14T22:13:20Z", "oncall", "rolled back to 1", "+1 ~2 -0",
            "0123456789ab", "reads were slow",
        ],
        ["2", "", "unknown", "", "cut over", "+0 ~0 -0", "", ""],
        ["1", "", "unknown", "", "unknown", "+0 ~0 -0", "", ""],
    ]  # fmt: skip
    document = tally("versions", "--limit", "1", "--json").json
    assert document["live_version"] == 3
    (only,) = document["versions"]
    assert (only["restores"], only["origin"]) == (1, "rolled_back")
    assert control_plane.requests[-1].page_size == 1
    assert tally("versions", "--limit", "0").code == 2
    control_plane.versions.clear()
    assert tally("versions").out.startswith("no version yet")


def test_versions_on_a_terminal(on_terminal: Any, script: Any, control_plane: ControlPlane) -> None:
    for version in control_plane.versions:
        version.origin = pb.Version.ORIGIN_ROLLED_BACK
        version.restores = 1
        version.author = "some-admin"
        version.reason = "reads were slow, and nobody knew why they were"
        version.content_hash = "0123456789abcdef"
        version.applied_at.FromNanoseconds(1_700_000_000_000_000_000)
    _, shown = on_terminal("versions")
    lines = without_styles(shown).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:4] == [
        "7  live  2023-11-14 22:13  rolled back to 1  +0 ~0 -0  0123456789ab",
        "   some-admin: reads were slow, and nobody knew why they were",
        "6        2023-11-14 22:13  rolled back to 1  +0 ~0 -0  0123456789ab",
        "   some-admin: reads were slow, and nobody knew why they were",
    ]
    assert f"{ESCAPE}1;32mlive" in shown
    _, shown = on_terminal("versions", columns=120)
    header, _, first, *_ = without_styles(shown).splitlines()
    assert header.split() == [
        "version", "state", "applied", "by", "how", "changes", "hash", "why"
    ]  # fmt: skip
    assert "rolled back to 1   +0 ~0 -0   0123456789ab   reads were" in first


def test_a_fleets_other_programs_have_no_versions(
    tally: Any, script: Any, control_plane: ControlPlane, nobody: str, folder: str
) -> None:
    for command in (("versions",), ("diff",), ("plan", folder), ("apply", folder, *NOTE)):
        ran = tally(*command, "--server", nobody, "--timeout", "0.2")
        assert ran.code == 3
        assert ran.err.count("\n") == 1


def test_json_of_a_change_is_one_document(
    tally: Any, script: Any, control_plane: ControlPlane, folder: str
) -> None:
    add_change(control_plane.plan, pb.CONSEQUENCE_COSTS)
    control_plane.fleets = [fleet(8)]
    document = json.loads(tally("apply", folder, *NOTE, "--yes", "--json").out)
    assert set(document) == {
        "applied", "version", "base_version", "consequence", "changes", "mistakes", "processes",
    }  # fmt: skip
