"""Programs beside us: found again, never mistaken for others, and gone when they should be."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.dev.processes import ManagedProcess

GONE_WITHIN_S = 30.0


def program(marker: str, script: str = "while :; do sleep 60; done") -> list[str]:
    """A program that runs until it is ended."""
    return ["/bin/sh", "-c", script, marker]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for detached in (True, False):
        managed(tmp_path, detached=detached).kill()


def managed(home: Path, *, detached: bool = False, marker: str = "") -> ManagedProcess:
    return ManagedProcess(
        pid_file=home / "program.pid", marker=marker or f"home={home}", detached=detached
    )


@pytest.mark.parametrize("detached", [True, False])
def test_it_runs_until_it_is_killed_and_starts_again(home: Path, detached: bool) -> None:
    process = managed(home, detached=detached)
    assert process.pid is None
    for _ in range(2):
        process.start(program(f"home={home}"), log=home / "log")
        pid = process.pid
        assert pid is not None
        assert process.is_running
        process.kill()
        assert not process.is_running
        assert not process.pid_file.exists()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_it_says_is_in_the_log(home: Path) -> None:
    process = managed(home)
    process.start(program(f"home={home}", "echo out; echo err >&2"), log=home / "log")
    assert process.wait_gone(GONE_WITHIN_S)
    assert sorted((home / "log").read_text().split()) == ["err", "out"]


def test_the_pid_of_somebody_else_is_not_ours(home: Path) -> None:
    stranger = subprocess.Popen(program("home=elsewhere"))
    try:
        process = managed(home)
        process.pid_file.write_text(f"{stranger.pid}\n")
        assert process.pid is None
        process.kill()
        process.stop(1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_longer_marker_is_another_one(home: Path) -> None:
    process = managed(home, marker="home=/data/node1")
    stranger = subprocess.Popen(program("home=/data/node10"))
    try:
        process.pid_file.write_text(f"{stranger.pid}\n")
        assert process.pid is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_paused_process_is_still_running(home: Path) -> None:
    process = managed(home)
    process.start(program(f"home={home}"), log=home / "log")
    process.pause()
    assert process.is_running
    assert _state(process.pid) == "T"
    process.resume()
    assert _state(process.pid) != "T"
    process.pause()
    assert process.stop(GONE_WITHIN_S), "a paused process is asked to stop, too"


def test_what_does_not_stop_is_killed(home: Path) -> None:
    process = managed(home)
    said = home / "log"
    process.start(
        program(f"home={home}", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"), log=said
    )
    while "deaf" not in said.read_text():
        assert process.is_running
    assert not process.stop(0.2)
    assert not process.is_running


_STARTER = """
import os, signal, sys
from pathlib import Path
from tally.dev.processes import ManagedProcess
home, detached = Path(sys.argv[1]), sys.argv[2] == "detached"
process = ManagedProcess(pid_file=home / "program.pid", marker=f"home={home}", detached=detached)
process.start(["/bin/sh", "-c", "while :; do sleep 60; done", f"home={home}"], log=home / "log")
assert process.is_running
print("started", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["bound", "detached"])
def test_who_started_it_is_killed(home: Path, kind: str) -> None:
    starter = subprocess.run(
        [sys.executable, "-c", _STARTER, str(home), kind],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (starter.returncode, starter.stdout) == (-signal.SIGKILL, "started\n"), starter.stderr
    found_again = managed(home, detached=True)
    if kind == "bound":
        assert found_again.wait_gone(GONE_WITHIN_S)
    else:
        assert found_again.is_running
        found_again.kill()
        assert not found_again.is_running


def _state(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
