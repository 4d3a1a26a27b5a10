"""Starting, stopping, and everything that can be in the way."""

import signal
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import namespace_service_pb2 as namespaces_pb
from tests.calls import Calls, eventually, fresh_counter, refusal, token
from tests.processes import FAST, TallyProcess, run_tally, write_namespaces

SERVING = health_pb2.HealthCheckResponse.SERVING
SERVICES = (
    "",
    "counter.v1.CounterService",
    "counter.v1.NamespaceService",
    "counter.v1.RollupService",
)


def serve(home: Path, *flags: str) -> tuple[int, str]:
    """Starts a server that is expected to end by itself."""
    write_namespaces(home / "namespaces")
    given = ("--data", str(home / "data"), "--namespaces", str(home / "namespaces"), *flags)
    if "--listen" not in flags:
        given += ("--listen", "127.0.0.1:0")
    ended = run_tally("serve", *given)
    return ended.returncode, ended.stderr


def test_health_has_a_name_per_service(calls: Calls) -> None:
    stub = health_pb2_grpc.HealthStub(calls.channel)
    for service in SERVICES:
        request = health_pb2.HealthCheckRequest(service=service)
        assert stub.Check(request, timeout=5).status == SERVING, service


def test_graceful_stop_finishes_what_was_accepted(own_tally: TallyProcess) -> None:
    own_tally.start()
    acknowledged, counter = [], fresh_counter()
    stopping = threading.Event()

    def add_until_refused(_: int) -> None:
        with Calls(own_tally.address) as calls:
            while True:
                add = token()
                try:
                    calls.add("plays", counter, 1, add)
                except grpc.RpcError:
                    assert stopping.is_set()
                    return
                acknowledged.append(add)

    with ThreadPoolExecutor(8) as pool:
        clients = pool.map(add_until_refused, range(8))
        eventually(lambda: len(acknowledged), lambda count: count > 100)
        stopping.set()
        assert own_tally.stop() == 0
        list(clients)
    own_tally.start()
    with Calls(own_tally.address) as calls:
        count = calls.accurate("plays", counter)
        # An answer may be lost on the way, an acknowledged event may not.
        assert len(acknowledged) <= count <= len(acknowledged) + 8
        for add in acknowledged[-20:]:
            assert calls.folded_status("plays", counter, add) == pb.TOKEN_STATUS_APPLIED
    assert own_tally.stop(signal.SIGINT) == 0


def test_a_second_signal_exits_at_once(own_tally: TallyProcess) -> None:
    own_tally.start()
    with grpc.insecure_channel(own_tally.address) as channel:
        # A stream that its client keeps open holds up the graceful stop.
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        next(watching)
        own_tally.process.send_signal(signal.SIGTERM)
        own_tally.process.send_signal(signal.SIGTERM)  # the same one, passed on by somebody
        eventually(lambda: own_tally.log.read_text(), lambda text: "stopping" in text)
        time.sleep(0.7)  # a person's second thought
        assert own_tally.process.poll() is None
        began = time.monotonic()
        assert own_tally.stop() == 128 + signal.SIGTERM
        assert time.monotonic() - began < 4
        watching.cancel()


def test_a_data_directory_has_one_process(own_tally: TallyProcess, tmp_path: Path) -> None:
    own_tally.start()
    code, message = serve(tmp_path)
    assert code == 1
    assert f"is in use by process {own_tally.process.pid}" in message
    assert "--data" in message
    assert "Traceback" not in message


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, message = serve(tmp_path, "--listen", address)
    assert code == 1
    assert f"cannot listen on {address}" in message
    assert "--listen" in message
    assert "Traceback" not in message


def test_another_layout_than_the_data_directorys_is_refused(own_tally: TallyProcess) -> None:
    own_tally.start()
    assert own_tally.stop() == 0
    code, message = serve(own_tally.data.parent, "--window", "2s")
    assert code == 1
    assert "window_ms 200, not 2000" in message
    code, message = serve(own_tally.data.parent, "--window", "200ms", "--shards", "8")
    assert code == 1
    assert "shards 2, not 8" in message


def test_a_newer_schema_is_refused(own_tally: TallyProcess) -> None:
    own_tally.start()
    assert own_tally.stop() == 0
    with sqlite3.connect(own_tally.data / "tally.db") as database:
        database.execute("PRAGMA user_version = 99")
    code, message = serve(own_tally.data.parent, *FAST)
    assert code == 1
    assert "schema version 99" in message


def test_bad_namespaces_at_the_first_start(tmp_path: Path) -> None:
    write_namespaces(tmp_path / "namespaces", {"plays": "namespace: plays\nstrategi: eventual\n"})
    ended = run_tally(
        *("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")),
        *("--namespaces", str(tmp_path / "namespaces")),
    )
    assert ended.returncode == 1
    assert "plays.yaml:2:1" in ended.stderr
    assert "strategy" in ended.stderr


def test_namespaces_change_while_running(own_tally: TallyProcess) -> None:
    own_tally.start()
    counter = fresh_counter()
    with Calls(own_tally.address) as calls:
        calls.add("plays", counter, 10, token())
        versions = namespaces_pb.ListNamespacesRequest()
        version = calls.namespaces.ListNamespaces(versions, timeout=5).version
        plays = own_tally.namespaces / "plays.yaml"
        good = plays.read_text()

        plays.write_text(good.replace("eventual", "accurate") + "max_delta: 10\n")
        eventually(
            lambda: calls.namespaces.ListNamespaces(versions, timeout=5).version,
            lambda seen: seen == version + 1,
        )
        assert calls.get("plays", counter).strategy == pb.STRATEGY_ACCURATE
        assert calls.get("plays", counter).count == 10
        assert refusal(lambda: calls.add("plays", counter, 11, token())).reason == "DELTA_TOO_LARGE"

        plays.write_text("namespace: plays\nstrat")  # half-written: nothing changes
        eventually(own_tally.log.read_text, lambda log: "namespace_mistake" in log)
        assert calls.namespaces.ListNamespaces(versions, timeout=5).version == version + 1
        calls.add("plays", counter, 1, token())

        plays.unlink()  # a folder alone deletes nothing
        eventually(own_tally.log.read_text, lambda log: "--allow-data-loss" in log)
        calls.add("plays", counter, 1, token())

        def change(*command: str) -> None:
            options = ("--server", own_tally.address, "--yes", "--allow-data-loss", "-m", "a test")
            done = run_tally(*command, *options)
            assert done.returncode == 0, done.stderr

        change("apply", str(own_tally.namespaces))
        assert refusal(lambda: calls.add("plays", counter, 1)).reason == "NAMESPACE_UNKNOWN"
        plays.write_text(good)  # created again: a new id, and it starts at 0
        eventually(
            lambda: calls.namespaces.ListNamespaces(versions, timeout=5).version,
            lambda seen: seen == version + 3,
        )
        assert calls.accurate("plays", counter) == 0
        change("rollback", str(version + 1))  # the one that was deleted, with its counts
        assert calls.accurate("plays", counter) == 12
