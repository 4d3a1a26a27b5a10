"""`tally dev` as a person uses it, with a real Cassandra and a real memcached."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tally.dev.backends import Backends
from tests.backends import start_node
from tests.processes import run_tally

# A node starts in 7 s on an idle machine, and in much more on one that is busy with tests.
pytestmark = pytest.mark.timeout(400)
UP_WITHIN_S = 200.0


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """For `--dir`. Whatever happens, nothing runs there afterwards."""
    directory = tmp_path / "dev"
    yield directory
    backends = Backends(directory)
    if (state := backends.state) is not None:
        for each in backends.all(state).values():
            each.kill()


def dev(command: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_tally("dev", command, "--dir", str(directory), *options, timeout_s=UP_WITHIN_S)


def states(directory: Path) -> dict[str, str]:
    shown: Any = json.loads(dev("status", directory, "--json").stdout)
    return {each["name"]: each["state"] for each in shown["backends"]}


def pids(directory: Path) -> dict[str, int]:
    shown: Any = json.loads(dev("status", directory, "--json").stdout)
    return {each["name"]: each["pid"] for each in shown["backends"]}


def test_up_status_up_again_down(directory: Path) -> None:
    before = dev("status", directory)
    assert before.returncode == 3
    assert "tally dev up" in before.stderr

    started = dev("up", directory)
    assert started.returncode == 0, started.stderr
    config = directory / "tally.yaml"
    for program in ("control-plane", "worker", "server"):
        assert f"tally {program} --config {config}" in started.stdout
    assert states(directory) == {"node1": "ready", "memcached": "ready"}
    assert run_tally("schema", "status", "--config", str(config)).returncode == 0

    first = pids(directory)
    again = dev("up", directory)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("was running") == 2
    assert pids(directory) == first, "what runs is left alone"

    os.kill(first["node1"], signal.SIGKILL)
    assert dev("status", directory).returncode == 3
    assert states(directory) == {"node1": "stopped", "memcached": "ready"}
    repaired = dev("up", directory)
    assert repaired.returncode == 0, repaired.stderr
    second = pids(directory)
    assert second["memcached"] == first["memcached"]
    assert second["node1"] != first["node1"]
    assert run_tally("schema", "status", "--config", str(config)).returncode == 0, "the data stays"

    down = dev("down", directory)
    assert (down.returncode, down.stdout.splitlines()[0]) == (0, "stopped node1, memcached")
    assert set(states(directory).values()) == {"stopped"}
    assert config.exists()
    assert dev("down", directory, "--purge").returncode == 0
    assert not directory.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing_running(
    directory: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "tally", "dev", "up", "--dir", str(directory)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        # The node's Java runs from here on.
        for line in process.stderr:
            if "reading its settings" in line:
                break
        process.send_signal(number)
        assert "interrupted" in process.stderr.read()
    assert process.returncode == 130
    assert states(directory) == {"node1": "stopped", "memcached": "stopped"}


def test_the_end_of_the_log_is_shown_when_a_node_does_not_start(directory: Path) -> None:
    (directory / "node1").mkdir(parents=True)
    (directory / "state.json").write_text(
        '{"nodes": 1, "native_port": 20421, "storage_port": 20422, "memcached_port": 20423}'
    )
    (directory / "node1" / "data").write_text("not a directory")
    failed = dev("up", directory)
    assert failed.returncode == 1
    lines = failed.stderr.splitlines()
    assert lines[-1].startswith("tally: Cassandra on 127.0.0.1:20421 ended: ")
    assert any(f"{directory}/node1/logs/system.log ends with:" in line for line in lines)
    assert any("Not a directory" in line for line in lines)
    assert set(states(directory).values()) == {"stopped"}


def test_a_killed_node_has_what_it_acknowledged(tmp_path: Path) -> None:
    """The promises of a fleet on one node rest on this; Cassandra's defaults do not give it."""
    node = start_node(tmp_path / "node")
    try:
        with node.session() as session:
            session.execute(
                "CREATE KEYSPACE k WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
            session.execute("CREATE TABLE k.t (a int PRIMARY KEY)")
            insert = session.prepare("INSERT INTO k.t (a) VALUES (?)")
            for number in range(1_000):
                session.execute(insert, (number,))
            pid = node.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        node.start()
        node.wait_ready()
        with node.session() as session:
            found = {row.a for row in session.execute("SELECT a FROM k.t")}
        assert found == set(range(1_000))
    finally:
        node.kill()
