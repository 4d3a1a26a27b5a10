"""A full disk and a damaged file: a clear message, NOT_SERVING, no false acknowledgement."""

import errno
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Calls, fresh_counter, refusal, refusal_of, token
from tests.processes import FAST, TallyProcess, run_tally, write_namespaces

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
COUNTER_SERVICE = "counter.v1.CounterService"
DISK_BYTES = 12 * 1024 * 1024


def fill_up(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"\0" * 4096)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def add_many(calls: Calls, counter: str) -> list[pb.IdempotencyToken]:
    tokens = [token() for _ in range(1_000)]
    items = [
        pb.AddCountItem(counter_name=counter, delta=1, idempotency_token=each) for each in tokens
    ]
    request = pb.BatchAddCountRequest(namespace="plays", items=items)
    outcomes = calls.counters.BatchAddCount(request, timeout=10).outcomes
    assert all(each.code == 0 for each in outcomes)
    return tokens


def test_full_disk(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    mount = f'mount -t tmpfs -o size={DISK_BYTES} tmpfs "$0" && exec "$@"'
    own_namespace = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount)
    tally = TallyProcess(tmp_path, *FAST, run_by=(*own_namespace, str(data)))
    counter = fresh_counter()
    try:
        tally.start()
        # The small disk is seen only by the server, and through it.
        ballast = Path(f"/proc/{tally.process.pid}/root{data}/ballast")
        with Calls(tally.address) as calls:
            acknowledged = len(add_many(calls, counter))
            fill_up(ballast)
            seen = None
            while seen is None:  # what was set aside before may still hold some
                try:
                    acknowledged += len(add_many(calls, counter))
                except grpc.RpcError as error:
                    seen = refusal_of(error)
            assert (seen.code, seen.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
            assert "no space left" in seen.message
            tally.wait_health(COUNTER_SERVICE, NOT_SERVING)
            tally.wait_health("", NOT_SERVING)
            kept = token()
            assert refusal(lambda: calls.add("plays", counter, 1, kept)).code is (
                grpc.StatusCode.UNAVAILABLE
            )

            ballast.unlink()
            tally.wait_health("", SERVING)  # by itself
            calls.add("plays", counter, 1, token())
            assert calls.accurate("plays", counter) == acknowledged + 1
            assert calls.status("plays", counter, kept) in (
                pb.TOKEN_STATUS_PENDING,
                pb.TOKEN_STATUS_NOT_APPLIED,
            )
        assert tally.stop() == 0
    finally:
        tally.end()


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
