"""The metrics of a whole process under traffic, as Prometheus and its users see them."""

import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import namespace_service_pb2 as namespaces_pb
from counter.v1 import rollup_service_pb2 as rollups_pb
from tests.calls import Calls, eventually, fresh_counter, refusal, token
from tests.processes import (
    FAST,
    NAMESPACES,
    TallyProcess,
    free_port,
    run_tally,
    write_namespaces,
)
from tests.scrape import Scrape

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
DOCUMENTED = dict(re.findall(r"^\| `(tally_\w+)` \| \w+ \| .*?\| (.+) \|$", PAGE, re.MULTILINE))
EMBEDDED = {name for name, meaning in DOCUMENTED.items() if not meaning.startswith("*fleet:*")}


class Watched:
    """A process with metrics, and a way to ask for them."""

    def __init__(self, process: TallyProcess, address: str) -> None:
        self.process = process
        self._address = address

    def scrape(self) -> Scrape:
        return Scrape(self._address)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    address = f"127.0.0.1:{free_port()}"
    home = tmp_path_factory.mktemp("watched")
    process = TallyProcess(home, *FAST, "--metrics", address)
    try:
        yield Watched(process.start(), address)
        assert process.stop() == 0
    finally:
        process.end()


@pytest.fixture
def calls(watched: Watched) -> Iterator[Calls]:
    with Calls(watched.process.address) as calls:
        yield calls


def batch(counter: str, *deltas: int) -> pb.BatchAddCountRequest:
    items = [
        pb.AddCountItem(counter_name=counter, delta=delta, idempotency_token=token())
        for delta in deltas
    ]
    return pb.BatchAddCountRequest(namespace="plays", items=items)


def test_every_call_is_counted_once(watched: Watched, calls: Calls) -> None:
    before, counter = watched.scrape(), fresh_counter()
    for _ in range(7):
        calls.add("plays", counter)
    for _ in range(3):
        calls.get("plays", counter)
    calls.counters.BatchAddCount(batch(counter, 1, 2, 3), timeout=10)
    calls.namespaces.ListNamespaces(namespaces_pb.ListNamespacesRequest(), timeout=10)
    calls.rollups.GetRollupStatus(rollups_pb.GetRollupStatusRequest(), timeout=10)
    assert refusal(lambda: calls.add("nowhere", counter)).reason == "NAMESPACE_UNKNOWN"
    after = watched.scrape()

    def made(rpc: str, code: str) -> float:
        name = "tally_call_seconds_count"
        return after.total(name, rpc=rpc, code=code) - before.total(name, rpc=rpc, code=code)

    assert made("AddCount", "OK") == 7
    assert made("AddCount", "NOT_FOUND") == 1
    assert made("GetCount", "OK") == 3
    assert made("BatchAddCount", "OK") == 1
    assert made("ListNamespaces", "OK") == 1
    assert made("GetRollupStatus", "OK") == 1
    count = "tally_call_seconds_count"
    assert after.total(count) - before.total(count) == 14
    assert after.total("tally_call_seconds_sum", rpc="AddCount") > 0
    assert after.total("tally_calls_in_flight") == 0
    written = "tally_commit_events_sum"
    assert after.total(written) - before.total(written) == 7 + 3
    commits = after.total("tally_commit_seconds_count", result="ok")
    assert commits == after.total("tally_commit_events_count")
    assert commits == after.total("tally_commit_segments_count")
    assert after.total("tally_events_waiting") == 0
    transactions = "tally_store_seconds_count"
    assert after.total(transactions, store="sqlite", statement="transaction") > before.total(
        transactions, store="sqlite", statement="transaction"
    )


def test_errors_are_counted_by_reason(watched: Watched, calls: Calls) -> None:
    before, counter = watched.scrape(), fresh_counter()
    assert refusal(lambda: calls.add("nowhere", counter)).reason == "NAMESPACE_UNKNOWN"
    assert refusal(lambda: calls.add("plays", "")).reason == "NAME_EMPTY"
    assert refusal(lambda: calls.add("plays", counter, 0)).reason == "DELTA_ZERO"
    calls.counters.BatchAddCount(batch(counter, 1, 0, 0, 2), timeout=10)
    after = watched.scrape()

    def counted(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    name = "tally_call_errors_total"
    assert counted(name, rpc="AddCount", reason="NAMESPACE_UNKNOWN") == 1
    assert counted(name, rpc="AddCount", reason="NAME_EMPTY") == 1
    assert counted(name, rpc="AddCount", reason="DELTA_ZERO") == 1
    assert counted(name) == 3
    assert counted("tally_item_errors_total", reason="DELTA_ZERO") == 2
    assert after.total(name, reason="INTERNAL") == 0


def test_counting_is_exact_while_others_scrape(watched: Watched) -> None:
    before, counter = watched.scrape(), fresh_counter()
    done = threading.Event()

    def add(_: int) -> None:
        with Calls(watched.process.address) as calls:
            for _ in range(40):
                calls.add("plays", counter)

    def scrape() -> int:
        scrapes = 0
        while not done.is_set():
            watched.scrape()
            scrapes += 1
        return scrapes

    with ThreadPoolExecutor(10) as pool:
        scraping = [pool.submit(scrape) for _ in range(2)]
        list(pool.map(add, range(8)))
        done.set()
        assert all(each.result() > 0 for each in scraping)
    after = watched.scrape()
    for name in ("tally_call_seconds_count", "tally_commit_events_sum"):
        assert after.total(name) - before.total(name) == 320, name


def test_folds_and_late_tokens_show(watched: Watched, calls: Calls) -> None:
    before, counter = watched.scrape(), fresh_counter()
    add, reused = token(), token()
    calls.add("plays", counter, 5, add)
    calls.add("plays", counter, 5, add)  # a retry
    calls.add("plays", counter, 5, reused)
    calls.add("plays", counter, 6, reused)  # a caller's mistake
    assert calls.folded_status("plays", counter, reused) == pb.TOKEN_STATUS_APPLIED
    assert calls.folded_status("plays", counter, add) == pb.TOKEN_STATUS_APPLIED
    assert calls.add("plays", counter, 5, add).duplicate
    late = token(age_s=30)
    assert refusal(lambda: calls.add("plays", counter, 1, late)).reason == "TOKEN_EXPIRED"

    def counted(name: str, **labels: str) -> float:
        return watched.scrape().total(name, **labels) - before.total(name, **labels)

    # The fold is decided before its worker counts it.
    eventually(lambda: counted("tally_fold_duplicates_total"), lambda count: count == 2)
    assert counted("tally_fold_conflicts_total") == 1
    assert counted("tally_late_tokens_total", outcome="duplicate") == 1
    assert counted("tally_late_tokens_total", outcome="expired") == 1
    assert counted("tally_fold_pass_events_sum") >= 4
    assert counted("tally_fold_pass_seconds_count") >= 1
    assert counted("tally_rollups_written_total") >= 1
    assert counted("tally_closes_total") >= 1
    assert counted("tally_fold_failures_total") == counted("tally_job_failures_total") == 0


def test_lags_are_those_of_a_healthy_process(watched: Watched) -> None:
    grace_s = 1.0 + 0.3  # accept_limit and max_clock_skew of FAST: no window closes sooner

    def healthy(scrape: Scrape) -> bool:
        close_lag = scrape.total("tally_close_lag_seconds")
        fold_lags = scrape.values("tally_fold_lag_seconds")
        assert close_lag >= grace_s
        assert len(fold_lags) == 2
        assert all(lag >= grace_s for lag in fold_lags)
        return max(fold_lags) < 15

    scrape = eventually(watched.scrape, healthy)
    assert abs(scrape.total("tally_clock_skew_seconds")) < 0.3
    assert scrape.total("tally_workers_alive") == 1
    assert scrape.total("tally_shards_owned") == 2


def test_reads_show_which_layer_answered(watched: Watched, calls: Calls) -> None:
    before, counter = watched.scrape(), fresh_counter()
    calls.add("plays", counter)
    calls.get("plays", counter)  # nobody asked before: from the store
    calls.accurate("plays", counter)
    calls.add("hits", counter, 1, token(name="once"))
    calls.get("hits", counter)
    after = watched.scrape()

    def counted(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    lookups = "tally_cache_lookups_total"
    assert counted(lookups, layer="local", result="miss") >= 1
    assert counted(lookups, layer="shared", result="miss") >= 1
    assert counted(lookups, layer="store", result="hit") == 1
    assert counted(lookups, layer="store", result="stale") == 1
    assert counted("tally_accurate_reads_total") == 1
    assert counted("tally_tail_read_seconds_count") == 1
    assert counted("tally_tail_segments_fetched_total") >= 1
    assert after.total("tally_tail_events_kept") >= 1
    assert counted("tally_best_effort_adds_total", result="counted") == 1
    assert counted("tally_best_effort_reads_total") == 1


def test_a_mistake_in_the_namespaces_shows_until_it_is_corrected(watched: Watched) -> None:
    assert watched.scrape().total("tally_namespace_mistakes") == 0
    version = watched.scrape().total("tally_namespaces_version")
    assert version >= 1
    assert watched.scrape().total("tally_namespaces") == len(NAMESPACES)
    file = watched.process.namespaces / "plays.yaml"
    good = file.read_text()

    def mistakes(number: int) -> None:
        eventually(
            lambda: watched.scrape().total("tally_namespace_mistakes"), lambda seen: seen == number
        )

    file.write_text("namespace: plays\nstrat")
    mistakes(1)
    assert watched.scrape().total("tally_namespaces_version") == version
    file.write_text(good)
    mistakes(0)


def test_what_is_documented_is_there_and_nothing_else(watched: Watched, calls: Calls) -> None:
    refusal(lambda: calls.add("nowhere", "counter"))
    calls.counters.BatchAddCount(batch("counter", 0), timeout=10)
    assert len(EMBEDDED) > 30
    # Shadows are compared for the first time after some seconds, also if there are none.
    scrape = eventually(watched.scrape, lambda seen: seen.names() == EMBEDDED)
    for line in scrape.text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ", "tally_", "process_")), line
        assert "otel" not in line
        assert "_total_total" not in line
    for name, family in scrape.families.items():
        if family.type == "histogram":
            buckets: dict[str, list[float]] = {}
            for sample in family.samples:
                if sample.name == f"{name}_bucket":
                    series = str({**sample.labels, "le": ""})
                    buckets.setdefault(series, []).append(sample.value)
            assert buckets, name
            assert all(counts == sorted(counts) for counts in buckets.values()), name


def test_metrics_are_off_unless_asked_for(tally: TallyProcess) -> None:
    assert "metrics_served" not in tally.log.read_text()


def test_a_free_port_can_be_taken_and_is_logged(tmp_path: Path) -> None:
    process = TallyProcess(tmp_path, *FAST, "--metrics", "127.0.0.1:0").start()
    try:
        address = re.search(r"action=metrics_served address=(\S+)", process.log.read_text())
        assert address is not None
        assert "tally_namespaces" in Scrape(address[1]).text
        assert process.stop() == 0
    finally:
        process.end()


def serve(home: Path, *flags: str) -> tuple[int, str]:
    write_namespaces(home / "namespaces")
    ended = run_tally(
        *("serve", "--listen", "127.0.0.1:0", "--data", str(home / "data")),
        *("--namespaces", str(home / "namespaces"), *flags),
    )
    return ended.returncode, ended.stderr


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, message = serve(tmp_path, "--metrics", address)
    assert code == 1
    assert f"cannot serve metrics on {address}" in message
    assert "--metrics" in message
    assert "Traceback" not in message


@pytest.mark.parametrize("address", ["9464", "127.0.0.1:prometheus"])
def test_what_is_not_an_address_is_refused(tmp_path: Path, address: str) -> None:
    code, message = serve(tmp_path, "--metrics", address)
    assert code == 2
    assert address in message
    assert "HOST:PORT" in message
    assert "Traceback" not in message


def test_the_endpoint_outlives_the_calls_when_stopping(tmp_path: Path) -> None:
    """Whoever stops a process wants to see its last figures too."""
    address = f"127.0.0.1:{free_port()}"
    process = TallyProcess(tmp_path, *FAST, "--metrics", address).start()
    try:
        with grpc.insecure_channel(process.address) as channel:
            stream = channel.stream_stream("/grpc.health.v1.Health/Watch")
            watching = stream(iter([b""]))
            next(watching)  # holds up the graceful stop
            process.process.terminate()
            eventually(process.log.read_text, lambda text: "action=stopping" in text)
            assert "tally_namespaces" in Scrape(address).text
            watching.cancel()
        assert process.process.wait(30) == 0
    finally:
        process.end()
