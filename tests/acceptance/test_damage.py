"""A damaged file: a clear message, NOT_SERVING, no false acknowledgement."""

from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

from tests.calls import Calls, fresh_counter, refusal, token
from tests.processes import TallyProcess, run_tally, write_namespaces

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
COUNTER_SERVICE = "counter.v1.CounterService"


def test_damaged_file_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tally.db").write_bytes(b"this is no database\n" * 1_000)
    write_namespaces(tmp_path / "namespaces")
    ended = run_tally(
        *("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")),
        *("--namespaces", str(tmp_path / "namespaces")),
    )
    assert ended.returncode == 1
    assert "tally.db is damaged" in ended.stderr
    assert "restore" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_file_damaged_while_running(own_tally: TallyProcess) -> None:
    own_tally.start()
    counter = fresh_counter()
    with Calls(own_tally.address) as calls:
        calls.add("plays", counter, 1, token())
        database = own_tally.data / "tally.db"
        size = database.stat().st_size
        with database.open("r+b") as file:
            file.write(b"\xa5" * max(size, 1 << 20))
        (own_tally.data / "tally.db-wal").open("r+b").write(b"\x5a" * (1 << 20))
        own_tally.wait_health(COUNTER_SERVICE, NOT_SERVING)
        seen = refusal(lambda: calls.add("plays", counter, 1, token()))
        assert (seen.code, seen.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
        assert "damaged" in seen.message
    own_tally.stop()
