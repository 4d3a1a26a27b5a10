"""The program as a process: on a terminal, into pipes, and interrupted."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counter.v1 import rollup_service_pb2 as rollup_pb

DEADLINE_S = 30.0
ESCAPE = "\x1b["


class Terminal:
    """A process whose stdin, stdout and stderr are one terminal."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._controller, inner = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tally", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=kept | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment,
            start_new_session=True,
        )
        os.close(inner)
        self.shown = ""

    def read_until(self, text: str) -> str:
        """Reads on until the text was shown; an empty text is the end of the program."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not text or text not in self.shown:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{text!r} was not shown, but: {self.shown!r}"
            if not select.select([self._controller], [], [], left_s)[0]:
                continue
            try:
                data = os.read(self._controller, 65_536)
            except OSError:  # what a terminal says when nobody has it open any more
                data = b""
            if not data:
                assert not text, f"ended before {text!r} was shown: {self.shown!r}"
                break
            self.shown += data.decode()
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._controller, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._controller)


@pytest.fixture
def terminal() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, **environment: str) -> Terminal:
            started = Terminal(*arguments, **environment)
            stack.callback(started.close)
            return started

        yield start


def test_tables_have_colours_on_a_terminal_only(terminal: Any, tally: Any, script: Any) -> None:
    assert ESCAPE in terminal("get", "plays", "a").read_until("")
    without_colours = terminal("get", "plays", "a", NO_COLOR="1").read_until("")
    for bold_dim_plain in (f"{ESCAPE}1m", f"{ESCAPE}2m", f"{ESCAPE}0m"):
        without_colours = without_colours.replace(bold_dim_plain, "")
    assert ESCAPE not in without_colours
    assert ESCAPE not in tally("get", "plays", "a").out


def test_clear_asks_on_a_terminal(terminal: Any, script: Any) -> None:
    script.counts = {"a": 7}
    refused = terminal("clear", "plays", "a")
    refused.read_until("[y/N]")
    refused.type("n\n")
    assert "plays/a is not cleared" in refused.read_until("")
    assert refused.process.wait(DEADLINE_S) == 1
    assert script.counts == {"a": 7}
    agreed = terminal("clear", "plays", "a")
    agreed.read_until("[y/N]")
    agreed.type("y\n")
    agreed.read_until("")
    assert agreed.process.wait(DEADLINE_S) == 0
    assert script.counts == {"a": 0}


def test_apply_asks_on_a_terminal(
    terminal: Any, script: Any, control_plane: Any, tmp_path: Path
) -> None:
    (tmp_path / "plays.yaml").write_text("namespace: plays\nstrategy: eventual\n")
    change = control_plane.plan.changes.add(namespace="plays")
    change.action = change.ACTION_CREATE
    control_plane.fleets[0].processes.add(process="host", program="serve", version=8)
    refused = terminal("apply", str(tmp_path), "-m", "why not")
    refused.read_until("Apply this as version 8? [y/N]")
    assert "Plan: 1 to create, 0 to change, 0 to delete." in refused.shown
    refused.type("\n")
    assert "nothing was changed: you did not agree" in refused.read_until("")
    assert refused.process.wait(DEADLINE_S) == 1
    assert control_plane.live == 7
    agreed = terminal("apply", str(tmp_path), "-m", "why not")
    agreed.read_until("[y/N]")
    agreed.type("y\n")
    assert "version 8 runs on 1 of 1 processes" in agreed.read_until("")
    assert agreed.process.wait(DEADLINE_S) == 0
    assert control_plane.live == 8


def test_batch_shows_its_progress_on_a_terminal_only(
    terminal: Any, tally: Any, script: Any, tmp_path: Path
) -> None:
    file = tmp_path / "adds.csv"
    file.write_text("a,1\n" * 20_000, encoding="utf-8")
    shown = terminal("batch", "plays", str(file))
    shown.read_until("adding ")
    assert "20,000 adds in" in shown.read_until("")
    ran = tally("batch", "plays", str(file))
    assert ran.err == ""
    assert "adding" not in ran.out


def without_styles(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text).replace("\r", "")


def test_history_is_a_chart_as_wide_as_the_terminal(terminal: Any, script: Any) -> None:
    script.history.step.FromSeconds(60)
    script.history.resolution.FromSeconds(60)
    for number in range(200):
        point = script.history.points.add(delta=number, count=number * 1_000, known=True)
        point.start.FromNanoseconds(1_700_000_040_000_000_000 + number * 60_000_000_000)
    shown = terminal("history", "plays", "a", COLUMNS="60", LINES="24")
    lines = without_styles(shown.read_until("")).splitlines()
    assert shown.process.wait(DEADLINE_S) == 0
    assert lines[0].startswith("plays/a  count 199,000  added +19,900 in 3 h 20 min")
    assert max(map(len, lines)) <= 60
    assert 15 <= len(lines) < 24
    assert "added per 5m" in lines
    assert any("█" in line and "┤" in line for line in lines)
    assert f"{ESCAPE}32m" in shown.shown
    running = terminal("history", "plays", "a", "--running", COLUMNS="60", LINES="24")
    assert any("⠤" <= each <= "⣿" for each in running.read_until(""))
    table = terminal("history", "plays", "a", "--table", COLUMNS="60").read_until("")
    assert "199,000" in table
    assert "█" not in table


def test_lists_have_bars_on_a_terminal(terminal: Any, script: Any) -> None:
    script.counts = {"title-1": 4_000, "title-2": 1_000, "title-3": -5}
    lines = without_styles(terminal("list", "plays", COLUMNS="50").read_until("")).splitlines()
    rows = {line.split()[0]: line.rstrip() for line in lines if line.startswith("title-")}
    assert rows == {
        "title-1": "title-1   4,000   " + "█" * 32,
        "title-2": "title-2   1,000   " + "█" * 8,
        "title-3": "title-3      -5",
    }
    assert lines[-1].startswith("3 counters, complete through 6.")
    script.top.counters_seen = 9
    script.top.counters.add(counter_name="title-1", value=script._value("title-1"), growth=7)
    lines = without_styles(terminal("top", "plays", "--growth", "10m").read_until("")).splitlines()
    assert lines[2].split()[:4] == ["1", "title-1", "4,000", "+7"]
    assert "█" * 40 in lines[2]
    assert lines[3].startswith("of 9 counters, complete through")


def test_quarantine_asks_on_a_terminal(terminal: Any, script: Any, rollups: Any) -> None:
    rollups.shard_problems = {1: "segment 5f cannot be read: set it aside"}
    arguments = ("quarantine", "5f", "--reason", "disk failure")
    refused = terminal(*arguments)
    assert "shard 1: segment 5f cannot be read" in without_styles(refused.read_until("[y/N]"))
    refused.type("n\n")
    assert "segment 5f is not set aside" in refused.read_until("")
    assert refused.process.wait(DEADLINE_S) == 1
    assert rollups.requests == []
    agreed = terminal(*arguments)
    agreed.read_until("[y/N]")
    agreed.type("y\n")
    assert "1,234 events will never count" in without_styles(agreed.read_until(""))
    assert agreed.process.wait(DEADLINE_S) == 0
    assert len(rollups.requests) == 1


def test_one_audit_is_told_in_sentences_on_a_terminal(
    terminal: Any, script: Any, rollups: Any
) -> None:
    audit = rollup_pb.AuditCounterResponse(
        result=rollup_pb.AUDIT_RESULT_DIFFERENT, expected_count=1_234, actual_count=1_200
    )
    found = audit.differences.add(
        kind=rollup_pb.AuditDifference.KIND_ROLLUP, expected=1_234, actual=1_200, message="it lacks"
    )
    getattr(found, "from").FromNanoseconds(1_700_000_030_000_000_000)
    found.to.FromNanoseconds(1_700_000_040_000_000_000)
    rollups.audits = {"a": audit}
    shown = terminal("audit", "plays", "a", COLUMNS="80")
    lines = [line.rstrip() for line in without_styles(shown.read_until("")).splitlines()]
    assert shown.process.wait(DEADLINE_S) == 1
    assert "what the events say     1,234" in lines
    assert "what the rollup says    1,200" in lines
    assert "a         rollup    2023-11-14T22:13:50 to 22:14:00Z      1,234    1,200" in lines
    assert "a: it lacks" in lines


def test_watch_draws_and_ends_with_ctrl_c(terminal: Any, script: Any) -> None:
    script.counts = {"a": 41}
    shown = terminal("watch", "plays", "a", "--interval", "50ms")
    shown.read_until("41")
    script.counts = {"a": 99}
    shown.read_until("99")
    shown.read_until("█")
    shown.process.send_signal(signal.SIGINT)
    shown.read_until("")
    assert shown.process.wait(DEADLINE_S) == 0
    assert "Traceback" not in shown.shown


def test_an_interrupted_import_says_where_it_is(terminal: Any, script: Any, tmp_path: Path) -> None:
    file = tmp_path / "adds.csv"
    file.write_text("a,1\n" * 500_000, encoding="utf-8")
    tokens = tmp_path / "tokens.csv"
    shown = terminal("batch", "plays", str(file), "--write-tokens", str(tokens))
    shown.read_until("4,000 adds")
    shown.process.send_signal(signal.SIGINT)
    assert "Run the same command again" in shown.read_until("")
    assert shown.process.wait(DEADLINE_S) == 130
    assert "Traceback" not in shown.shown


def test_an_interrupted_command_is_130(terminal: Any, nobody: str) -> None:
    shown = terminal("clear", "plays", "a", "--server", nobody)
    shown.read_until("[y/N]")
    shown.process.send_signal(signal.SIGINT)
    # One that comes between the question and the wait for its answer ends only the next wait.
    with contextlib.suppress(subprocess.TimeoutExpired):
        shown.process.wait(3)
    if shown.process.poll() is None:
        shown.process.send_signal(signal.SIGINT)
    assert "tally: interrupted." in shown.read_until("").replace(f"{ESCAPE}0m", "").replace(
        f"{ESCAPE}1;31m", ""
    )
    assert shown.process.wait(DEADLINE_S) == 130


def test_a_reader_that_goes_away_ends_it_quietly(script: Any) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tally", "watch", "plays", "a", "--interval", "50ms"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(DEADLINE_S) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("tally")
    ran = subprocess.run([command, "nonsense"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("tally: no such command 'nonsense'.")
    ran = subprocess.run([command, "--help"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert "Exit codes" in ran.stdout
