"""The commands of a fleet, without its stores."""

import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from counter.v1 import rollup_service_pb2_grpc as rollup_grpc
from tests.unit.tally.conftest import Rollups

SERVING = health_pb2.HealthCheckResponse.SERVING
CONFIG = """\
cassandra: {contact_points: [127.0.0.1], data_center: datacenter1}
server: {listen: 127.0.0.1:1, metrics: 127.0.0.1:2}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture
def worker() -> Iterator[str]:
    """A process that has a RollupService and nothing else."""
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    healths = health.HealthServicer()
    for service in ("", "counter.v1.RollupService"):
        healths.set(service, SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healths, server)
    rollup_grpc.add_RollupServiceServicer_to_server(Rollups(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(grace=None).wait()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the commands would run, instead of running it."""
    runs: list[tuple[Any, ...]] = []
    fake: Any = types.ModuleType("tally.fleet")

    def run(
        name: str, config: Any, *, listen: Any, metrics: Any, log_format: str, **more: Any
    ) -> int:
        runs.append((name, config.path, listen, metrics, log_format, *more.values()))
        return 7

    fake.run = run
    monkeypatch.setitem(sys.modules, "tally.fleet", fake)
    monkeypatch.setattr("tally.fleet", fake, raising=False)
    return runs


@pytest.mark.parametrize("program", ["server", "worker", "control-plane"])
def test_programs_take_the_file_and_what_goes_before_it(
    tally: Any, config: Path, runs: list[Any], program: str
) -> None:
    assert tally(program, "--config", str(config)).code == 7
    flags = ("--listen", "0.0.0.0:0", "--metrics", "[::1]:9", "--log-format", "json")
    assert tally(program, "--config", str(config), *flags).code == 7
    more = (None,) if program == "server" else ()
    assert runs == [
        (program, config, None, None, "text", *more),
        (program, config, "0.0.0.0:0", "[::1]:9", "json", *more),
    ]


def test_a_server_can_have_several_processes(
    tally: Any, config: Path, runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)))
    for given in ("1", "64", "auto"):
        assert tally("server", "--config", str(config), "--processes", given).code == 7
    assert [processes for *_, processes in runs] == [1, 64, 12]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(200)))
    assert tally("server", "--config", str(config), "--processes", "auto").code == 7
    assert runs[-1][-1] == 64


@pytest.mark.parametrize("program", ["worker", "control-plane"])
def test_only_a_server_has_processes(
    tally: Any, config: Path, runs: list[Any], program: str
) -> None:
    ran = tally(program, "--config", str(config), "--processes", "2")
    assert (ran.code, runs) == (2, [])
    assert "--processes" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--config", "FILE", "--listen", "50051"),
        ("--config", "FILE", "--listen", ":50051"),
        ("--config", "FILE", "--listen", "localhost:http"),
        ("--config", "FILE", "--metrics", "localhost:70000"),
        ("--config", "FILE", "--log-format", "xml"),
        ("--config", "FILE", "--processes", "0"),
        ("--config", "FILE", "--processes", "65"),
        ("--config", "FILE", "--processes", "-1"),
        ("--config", "FILE", "--processes", "many"),
    ],
)
def test_wrong_usage_is_one_line(
    tally: Any, config: Path, runs: list[Any], arguments: tuple[str, ...]
) -> None:
    given = [str(config) if each == "FILE" else each for each in arguments]
    ran = tally("server", *given)
    assert (ran.code, ran.out, runs) == (2, "", [])
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "command", [("server",), ("worker",), ("control-plane",), ("schema", "apply")]
)
def test_each_mistake_in_the_file_is_a_line(
    tally: Any, config: Path, runs: list[Any], command: tuple[str, ...]
) -> None:
    config.write_text("regoin: eu\n" + CONFIG.replace("data_center", "datacentre"))
    ran = tally(*command, "--config", str(config))
    assert (ran.code, ran.out, runs) == (1, "", [])
    lines = ran.err.splitlines()
    assert [line.split(": ")[2] for line in lines] == [
        "regoin",
        "cassandra.data_center",
        "cassandra.datacentre",
    ]
    assert all(line.startswith(f"tally: {config}:") for line in lines)


def test_schema_needs_the_replication_that_it_is_to_create(tally: Any, config: Path) -> None:
    ran = tally("schema", "apply", "--config", str(config))
    assert (ran.code, ran.out) == (1, "")
    assert f"{config}:1:12: cassandra.replication: is required" in ran.err
    assert "datacenter1: 3" in ran.err


class TestAnotherProgramHasIt:
    """A program of the fleet that is asked for what it does not have says who does."""

    def test_counters(self, tally: Any, worker: str) -> None:
        ran = tally("--server", worker, "get", "plays", "a")
        assert (ran.code, ran.out) == (1, "")
        assert f"{worker} has no CounterService: call a server" in ran.err

    def test_namespaces(self, tally: Any, worker: str) -> None:
        ran = tally("--server", worker, "namespaces")
        assert (ran.code, ran.out) == (1, "")
        assert f"{worker} has no NamespaceService: call a control plane" in ran.err

    def test_status_of_a_worker_is_well(self, tally: Any, worker: str) -> None:
        ran = tally("--server", worker, "status")
        assert (ran.code, ran.err) == (0, "")
        assert ["counter.v1.RollupService", "serving"] in ran.table
        assert ["counter.v1.CounterService", "not in this process"] in ran.table
        assert ["largest lag", "7.3 s (shard 1 of 2)"] in ran.table

    def test_status_of_a_process_without_rollups(self, tally: Any) -> None:
        server = grpc.server(ThreadPoolExecutor(max_workers=2))
        healths = health.HealthServicer()
        for service in ("", "counter.v1.CounterService"):
            healths.set(service, SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(healths, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            ran = tally("--server", address, "status")
            assert (ran.code, ran.err) == (0, "")
            assert f"{address} has no RollupService: call a worker" in ran.out
            document = tally("--server", address, "status", "--json").json
            assert (document["serving"], document["rollups"], document["problem"]) == (
                True,
                None,
                None,
            )
            healths.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
            assert tally("--server", address, "status").code == 3
        finally:
            server.stop(grace=None).wait()
