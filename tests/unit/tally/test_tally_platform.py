import json
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from counter import errors
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import rollup_service_pb2 as rollup_pb


def test_namespaces(tally: Any, script: Any) -> None:
    ran = tally("namespaces")
    assert ran.code == 0
    assert ran.table[0][:3] == ["name", "id", "strategy"]
    assert ran.table[0][7:9] == ["history", "rolling window"]
    assert ran.table[1][:10] == [
        "plays", "3", "eventual", "high", "1,000,000", "5s", "500ms",
        "1m for 7d, 1h for 90d", "", "playback-team",
    ]  # fmt: skip
    assert ran.table[2][2] == "rolling_window"
    assert ran.table[2][7:9] == ["", "5m"]
    assert ran.table[4] == ["version 7, since 2023-11-14T22:13:20Z"]
    document = tally("namespaces", "plays", "--json").json
    assert document["version"] == 7
    (plays,) = document["namespaces"]
    assert plays["cache_ttl_ms"] == 5_000
    assert plays["history"] == [
        {"step_ms": 60_000, "retention_ms": 604_800_000},
        {"step_ms": 3_600_000, "retention_ms": 7_776_000_000},
    ]
    assert plays["rolling_window_ms"] is None
    (hits,) = tally("namespaces", "hits", "--json").json["namespaces"]
    assert (hits["history"], hits["rolling_window_ms"]) == ([], 300_000)
    ran = tally("namespaces", "nope")
    assert (ran.code, ran.out) == (1, "")


def test_status_of_a_server_that_serves(tally: Any, script: Any) -> None:
    ran = tally("status", "--shards")
    assert (ran.code, ran.err) == (0, "")
    assert [script.address, "serving"] in ran.table
    assert ["counter.v1.RollupService", "serving"] in ran.table
    assert ["largest lag", "7.3 s (shard 1 of 2)"] in ran.table
    assert ["shard", "watermark", "lag"] in [row[:3] for row in ran.table]
    document = tally("status", "--json").json
    assert document["serving"] is True
    assert document["problem"] is None
    assert document["rollups"]["lag_ms_max"] == 7_300
    assert [each["shard"] for each in document["rollups"]["shards"]] == [0, 1]


def test_status_of_a_server_that_does_not(tally: Any, script: Any, rollups: Any) -> None:
    script.health["counter.v1.CounterService"] = 2
    rollups.problem = "the disk is full"
    ran = tally("status")
    assert ran.code == 3
    assert ["counter.v1.CounterService", "not serving"] in ran.table
    assert "the disk is full" in ran.err
    assert tally("status", "--json").json["services"]["counter.v1.CounterService"] == "not serving"


def test_new_tokens_differ_and_are_accepted(tally: Any, script: Any) -> None:
    first, second = tally("token", "new").out, tally("token", "new").out
    assert first != second
    assert tally("add", "plays", "a", *first.split()).code == 0
    assert set(tally("token", "new", "--json").json) == {"token", "generation_time"}


@pytest.mark.parametrize(
    ("status", "code", "word"),
    [
        (pb.TOKEN_STATUS_APPLIED, 0, "applied"),
        (pb.TOKEN_STATUS_NOT_APPLIED, 1, "not_applied"),
        (pb.TOKEN_STATUS_PENDING, 4, "pending"),
    ],
)
def test_token_status(tally: Any, script: Any, status: Any, code: int, word: str) -> None:
    script.token_statuses = [status]
    ran = tally("token", "status", "plays", "a", "t", "--at", "2023-11-14T22:13:20Z", "--json")
    assert ran.code == code
    assert ran.json["status"] == word
    assert ran.json["generation_time"] == "2023-11-14T22:13:20.000000000Z"
    assert script.requests[-1].idempotency_token.generation_time.seconds == 1_700_000_000


def test_token_status_waits_for_the_decision(tally: Any, script: Any) -> None:
    script.token_statuses = [pb.TOKEN_STATUS_PENDING, pb.TOKEN_STATUS_APPLIED]
    ran = tally("token", "status", "plays", "a", "--token", "-t", "--at", "1", "--wait")
    assert ran.code == 0
    assert ran.out.startswith("applied")


def test_token_status_without_a_whole_token(tally: Any, script: Any) -> None:
    for arguments in ((), ("t",), ("--at", "1"), ("t", "--token", "t", "--at", "1")):
        ran = tally("token", "status", "plays", "a", *arguments)
        assert ran.code == 2
        assert ran.err.count("\n") == 1
    assert script.requests == []


def test_watch_prints_lines_where_no_terminal_is(tally: Any, script: Any) -> None:
    script.counts = {"a": 5}
    ran = tally("watch", "plays", "a", "b", "--count", "2", "--interval", "50ms")
    assert ran.code == 0
    assert ran.table[0] == ["time", "counter", "count", "change/s", "complete through"]
    assert [row[1:4] for row in ran.table[1:]] == [
        ["a", "5", ""], ["b", "0", ""], ["a", "5", "+0.0"], ["b", "0", "+0.0"],
    ]  # fmt: skip


def test_watch_as_json_is_one_object_per_line(tally: Any, script: Any) -> None:
    ran = tally("watch", "plays", "a", "--count", "3", "--interval", "50ms", "--json")
    documents = [json.loads(line) for line in ran.out.splitlines()]
    assert len(documents) == 3
    assert {"time", "namespace", "counter", "count", "change_per_second"} <= set(documents[0])


def test_version_needs_no_server(tally: Any, nobody: str) -> None:
    assert set(tally("--server", nobody, "version", "--json").json) == {"tally", "python", "grpc"}
    assert tally("version").out.startswith("tally ")


def test_check_reports_every_mistake_of_every_file(tally: Any, tmp_path: Path) -> None:
    (tmp_path / "plays.yaml").write_text("namespace: plays\nstrategy: eventual\n")
    assert tally("check", str(tmp_path)).out == "1 namespace, no mistakes\n"
    (tmp_path / "likes.yaml").write_text("namespace: likes\nstrategy: evental\ncolour: red\n")
    (tmp_path / "views.yaml").write_text("namespace: views\n")
    ran = tally("check", str(tmp_path))
    assert ran.code == 1
    lines = ran.out.splitlines()
    found = [line for line in lines if line.startswith(str(tmp_path))]
    assert len(found) == 3
    assert found[0].startswith(f"{tmp_path / 'likes.yaml'}:2:")
    assert found[1].startswith(f"{tmp_path / 'likes.yaml'}:3:")
    assert found[2].startswith(f"{tmp_path / 'views.yaml'}:")
    assert lines[lines.index(found[0]) + 1].startswith("    ")
    assert lines[-1].startswith("3 mistakes in 2 files")
    document = tally("check", str(tmp_path), "--json").json
    assert document["namespaces"] == ["plays"]
    assert set(document["mistakes"][0]) == {
        "path", "line", "column", "field", "message", "hint",
    }  # fmt: skip
    ran = tally("check", str(tmp_path / "missing"))
    assert (ran.code, ran.out) == (2, "")


def test_serve_hands_over_its_settings(tally: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class ServeSettings:
        listen: str
        data: Path
        namespaces: Path
        platform: Any
        log_format: str
        metrics: str | None

    given: list[ServeSettings] = []
    fake: Any = types.ModuleType("tally.embedded")
    fake.ServeSettings = ServeSettings
    fake.serve = lambda settings: given.append(settings) or 7
    monkeypatch.setitem(sys.modules, "tally.embedded", fake)
    monkeypatch.setattr("tally.embedded", fake, raising=False)
    assert tally("serve").code == 7
    ran = tally(
        "serve", "--listen", "127.0.0.1:0", "--data", "d", "--window", "250ms", "--shards", "4",
        "--accept-limit", "2s", "--max-clock-skew", "1s", "--log-retention", "1h",
        "--region", "eu", "--log-format", "json", "--metrics", "127.0.0.1:9464",
    )  # fmt: skip
    assert ran.code == 7
    defaults, settings = given
    assert defaults.listen == "127.0.0.1:50051"
    assert defaults.platform == type(defaults.platform)()
    assert (defaults.metrics, settings.metrics) == (None, "127.0.0.1:9464")
    assert settings.log_format == "json"
    assert settings.data == Path("d")
    assert settings.platform.window_ms == 250
    assert settings.platform.accept_limit_ms == 2_000
    assert settings.platform.log_retention_s == 3_600
    for arguments in (("--window", "0s"), ("--shards", "0"), ("--listen", "x"), ("--window", "5")):
        assert tally("serve", *arguments).code == 2
    assert len(given) == 2


def test_what_to_install(tally: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "control_plane"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    ran = tally("check", str(tmp_path))
    assert ran.code == 1
    assert "pip install 'tally[server]'" in ran.err
    assert ran.err.count("\n") == 1
    # What is imported anew below is put into its package, and must not stay there.
    package = sys.modules["tally"]
    monkeypatch.setattr(package, "commands", package.commands)
    for name in [name for name in sys.modules if name.startswith("tally.commands")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    ran = tally("version")
    assert ran.code == 1
    assert "pip install 'tally[cli]'" in ran.err


def fields_of(document: Any) -> set[str]:
    if isinstance(document, list):
        return set().union(*(fields_of(each) for each in document))
    if not isinstance(document, dict):
        return set()
    return set(document) | fields_of(list(document.values()))


@pytest.mark.parametrize(
    "command",
    [
        ("add", "plays", "a", "--get"),
        ("get", "plays", "a"),
        ("clear", "plays", "a", "--yes"),
        ("batch", "plays", "-"),
        ("watch", "plays", "a", "--count", "1"),
        ("token", "new"),
        ("token", "status", "plays", "a", "--token", "t", "--at", "1"),
        ("namespaces",),
        ("status",),
        ("version",),
        ("get", "plays", "a", "--at", "-1h"),
        ("history", "plays", "a"),
        ("list", "plays"),
        ("top", "plays"),
        ("audit", "plays", "a", "b"),
        ("audit", "--window", "-1m", "--shard", "0"),
        ("recount", "plays", "a"),
        ("quarantine", "5f", "--reason", "r", "--yes"),
    ],
)
def test_every_json_field_is_in_the_help(
    tally: Any, script: Any, rollups: Any, command: tuple[str, ...]
) -> None:
    stdin = "a,1\nx,1\nbroken\n" if command[0] == "batch" else ""
    script.refuse = lambda counter, token: (
        errors.InvalidRequest("NAME_EMPTY", "counter_name", "no") if counter == "x" else None
    )
    script.history.points.add(known=True)
    script.history.adjustments.add(author="oncall")
    script.counts["a"] = 1
    script.top.counters.add(counter_name="a")
    audit = rollup_pb.AuditCounterResponse(result=rollup_pb.AUDIT_RESULT_DIFFERENT)
    audit.differences.add(kind=rollup_pb.AuditDifference.KIND_ROLLUP)
    audit.adjustments.add(author="oncall")
    rollups.audits["a"] = audit
    rollups.window.differences.add()
    rollups.window.set_aside.add()
    fields = fields_of(tally(*command, "--json", stdin=stdin).json)
    names = command[:2] if command[0] == "token" else command[:1]
    text = tally(*names, "--help").out.partition("JSON")[2]
    documented = set(re.findall(r"[a-z_]+", text))
    services = {name for name in fields if not name or "." in name}
    assert fields - services <= documented
