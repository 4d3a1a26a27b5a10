"""`tally namespaces`: the list, earlier versions, the fleet, and files for new namespaces."""

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from control_plane.files.loader import load_directory
from counter.v1 import namespace_service_pb2 as pb
from tally.main import main
from tests.unit.tally.control_plane_script import ControlPlane
from tests.unit.tally.test_tally_platform import fields_of


@pytest.fixture
def fleet(control_plane: ControlPlane) -> pb.ListProcessesResponse:
    """Two servers, a worker that is behind, and one that refuses the live version."""
    answer = pb.ListProcessesResponse(version=8)
    busy = answer.processes.add(process="host-a", program="server", version=8)
    busy.traffic.add(
        namespace="plays", adds_per_s=1_234.4, reads_per_s=2.25, limited_per_s=0.5, counters=7
    )
    busy.traffic.add(namespace="likes", adds_per_s=1_000.0)
    answer.processes.add(process="host-b", program="server", version=8)
    answer.processes.add(process="host-c", program="worker", version=6)
    answer.processes.add(
        process="host-d",
        program="worker",
        version=7,
        refused_version=8,
        problem="its windows are longer than 1m",
    )
    control_plane.fleets = [answer]
    return answer


def test_limits_and_shadow_are_shown(tally: Any, script: Any) -> None:
    ran = tally("namespaces", "likes")
    header, likes = ran.table
    assert header[-2:] == ["limits", "shadow"]
    assert likes[-2:] == ["1,000 adds/s, 50 per batch, names [a-z]+", "eventual"]
    (document,) = tally("namespaces", "likes", "--json").json["namespaces"]
    assert document["shadow"] == "eventual"
    assert document["limits"] == {
        "adds_per_s": 1_000,
        "reads_per_s": None,
        "counters": None,
        "batch_items": 50,
        "names": "[a-z]+",
    }


def test_namespaces_of_an_earlier_version(
    tally: Any, script: Any, control_plane: ControlPlane
) -> None:
    assert tally("namespaces", "--version", "3", "--json").json["version"] == 3
    assert control_plane.requests[-1].version == 3
    ran = tally("namespaces", "nope", "--version", "3")
    assert ran.code == 1
    assert "'nope' in version 3" in ran.err


def test_the_fleet(tally: Any, script: Any, fleet: pb.ListProcessesResponse) -> None:
    ran = tally("namespaces", "--fleet")
    assert (ran.code, ran.err) == (0, "")
    assert ran.table == [
        ["process", "program", "version", "state", "adds/s", "reads/s", "limited/s"],
        ["host-a", "server", "8", "runs it", "2,234", "2.2", "0.5"],
        ["host-b", "server", "8", "runs it", "0", "0", "0"],
        ["host-c", "worker", "6", "behind by 2", "", "", ""],
        ["host-d", "worker", "7", "refuses 8", "", "", ""],
        [""],
        ["worker host-d refuses version 8: its windows are longer than 1m"],
        ["version 8 runs on 2 of 4 processes"],
    ]


def test_the_fleet_as_one_namespace_sees_it(
    tally: Any, script: Any, fleet: pb.ListProcessesResponse
) -> None:
    assert tally("namespaces", "likes", "--fleet").table[1][4:] == ["1,000", "0", "0"]
    document = tally("namespaces", "likes", "--fleet", "--json").json
    assert [each["namespace"] for each in document["processes"][0]["traffic"]] == ["likes"]


def test_the_fleet_as_json(tally: Any, script: Any, fleet: pb.ListProcessesResponse) -> None:
    document = tally("namespaces", "--fleet", "--json").json
    assert (document["version"], document["running"], document["alive"]) == (8, 2, 4)
    first, *_, last = document["processes"]
    assert first["traffic"][0] == {
        "namespace": "plays",
        "adds_per_s": 1_234.4,
        "reads_per_s": 2.25,
        "limited_per_s": 0.5,
        "counters": 7,
    }
    assert (first["refused_version"], first["problem"]) == (None, None)
    assert (last["refused_version"], last["problem"]) == (8, "its windows are longer than 1m")
    assert tally("namespaces", "--fleet", "--version", "3").code == 2


def test_a_process_that_knows_more_than_who_answered(
    tally: Any, script: Any, fleet: pb.ListProcessesResponse
) -> None:
    fleet.version = 7
    rows = tally("namespaces", "--fleet").table
    assert rows[1][3] == "ahead by 1"
    assert rows[-1] == ["version 7 runs on 3 of 4 processes"]


def test_the_fleet_on_a_terminal(
    script: Any, fleet: pb.ListProcessesResponse, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.processes[0].process = f"a-host-with-a-long-name-{'x' * 40}-4711"
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["namespaces", "--fleet"]) == 0
    shown = screen.getvalue()
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == [
        "a-host-…xx-4711", "server", "8", "runs", "it", "2,234", "2.2", "0.5"
    ]  # fmt: skip
    assert "\x1b[32mruns it" in shown
    assert "\x1b[33mbehind by 2" in shown
    assert "\x1b[1;31mrefuses 8" in shown


@pytest.mark.parametrize("strategy", ["best_effort", "eventual", "accurate", "rolling_window"])
def test_a_new_namespace(tally: Any, tmp_path: Path, nobody: str, strategy: str) -> None:
    ran = tally(
        "--server", nobody, "namespaces", "new", "likes",
        "--strategy", strategy, "--directory", str(tmp_path),
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    assert f"tally check {tmp_path}" in ran.out
    assert f"tally plan {tmp_path}" in ran.out
    loaded = load_directory(tmp_path)
    assert loaded.mistakes == ()
    assert [(each.name, each.strategy) for each in loaded.definitions] == [("likes", strategy)]
    text = (tmp_path / "likes.yaml").read_text()
    assert "#" in text
    for arguments in ((), ("--strategy", "accurate")):
        ran = tally("namespaces", "new", "likes", "--directory", str(tmp_path), *arguments)
        assert (ran.code, ran.out) == (1, "")
        assert "is there already" in ran.err
    assert (tmp_path / "likes.yaml").read_text() == text


def test_a_new_namespace_over_a_file_with_the_other_ending(tally: Any, tmp_path: Path) -> None:
    (tmp_path / "likes.yml").write_text("namespace: likes\nstrategy: eventual\n")
    ran = tally("namespaces", "new", "likes", "--directory", str(tmp_path))
    assert ran.code == 1
    assert "likes.yml is there already" in ran.err


@pytest.mark.parametrize("name", ["../likes", "Likes", "a b", "", "x" * 300])
def test_a_new_namespace_needs_a_good_name(tally: Any, tmp_path: Path, name: str) -> None:
    ran = tally("namespaces", "new", name, "--directory", str(tmp_path))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_new_namespace_needs_a_folder(tally: Any, tmp_path: Path) -> None:
    assert tally("namespaces", "new", "likes", "--directory", str(tmp_path / "no")).code == 2


def test_a_namespace_may_be_called_new(tally: Any, script: Any) -> None:
    ran = tally("namespaces", "new")
    assert ran.code == 1
    assert "no namespace 'new'" in ran.err
    assert "tally namespaces new NAME" in ran.err
    ran = tally("namespaces", "likes", "plays")
    assert ran.code == 2
    assert "one name too many" in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "DIR"),
        ("apply", "DIR", "-m", "r", "--yes"),
        ("rollback", "5", "-m", "r", "--yes"),
        ("diff",),
        ("versions",),
        ("namespaces",),
        ("namespaces", "--fleet"),
    ],
)
def test_every_json_field_is_in_the_help(
    tally: Any,
    script: Any,
    control_plane: ControlPlane,
    fleet: pb.ListProcessesResponse,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    (tmp_path / "plays.yaml").write_text("namespace: plays\nstrategy: eventual\n")
    change = control_plane.plan.changes.add(namespace="plays", consequence=pb.CONSEQUENCE_COSTS)
    change.fields.add(field="cache.ttl")
    arguments = [str(tmp_path) if each == "DIR" else each for each in command]
    fields = fields_of(tally(*arguments, "--json").json)
    assert len(fields) > 5
    text = tally(command[0], "--help").out.partition("JSON")[2]
    assert fields <= set(re.findall(r"[a-z_]+", text))


def test_a_narrow_terminal_has_a_line_for_each_field(
    tally: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.commands.namespaces.is_terminal", lambda *_: True)
    monkeypatch.setenv("COLUMNS", "80")
    ran = tally("namespaces")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert any(line.startswith("    strategy") for line in lines), lines
    assert max(map(len, lines)) <= 80
