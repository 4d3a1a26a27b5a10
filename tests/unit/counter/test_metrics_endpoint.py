"""The endpoint, as Prometheus sees it."""

import socket
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from counter import metrics
from counter.errors import SetupError
from counter.metrics_endpoint import MetricsEndpoint


def scrape(endpoint: MetricsEndpoint, accept: str = "text/plain") -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{endpoint.port}/metrics", headers={"Accept": accept}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_was_recorded_is_served() -> None:
    errors = metrics.CALL_ERRORS.at(rpc="GetCount", reason="OVERLOADED")
    seconds = metrics.CALL_SECONDS.at(rpc="GetCount", code="DATA_LOSS")
    (fast, *_), _ = seconds.state
    shards = metrics.SHARDS_OWNED.at()
    shards.set(5)
    with MetricsEndpoint("127.0.0.1:0", setting="--metrics") as endpoint:
        before = samples(scrape(endpoint))
        errors.add(3)
        seconds.record(0.0004)
        seconds.record(99.0)
        shards.set(6)
        text = scrape(endpoint)
    after = samples(text)
    counted = ("tally_call_errors_total", (("reason", "OVERLOADED"), ("rpc", "GetCount")))
    assert after[counted] == before[counted] + 3
    owned = ("tally_shards_owned", ())
    assert (before[owned], after[owned]) == (5, 6)
    labels = (("code", "DATA_LOSS"), ("rpc", "GetCount"))
    count = ("tally_call_seconds_count", labels)
    assert after[count] == before[count] + 2
    bucket = "tally_call_seconds_bucket"
    assert after[bucket, (labels[0], ("le", "0.0005"), labels[1])] == fast + 1
    assert after[bucket, (labels[0], ("le", "+Inf"), labels[1])] == after[count]
    assert text.count("# TYPE tally_call_errors_total counter\n") == 1
    assert "# TYPE tally_call_seconds histogram\n" in text


def test_nothing_but_the_metrics_is_served() -> None:
    metrics.CALL_ERRORS.at(rpc="GetCount", reason="OVERLOADED")
    with MetricsEndpoint("127.0.0.1:0", setting="--metrics") as endpoint:
        text = scrape(endpoint)
    assert "otel_" not in text
    assert "target_info" not in text
    assert "_total_total" not in text
    assert "_created" not in text
    shown = {family.name for family in text_string_to_metric_families(text)}
    known = {metric.name.removesuffix("_total") for metric in metrics.ALL}
    assert {name for name in shown if not name.startswith("process_")} <= known
    assert {"process_resident_memory_bytes", "process_open_fds"} <= shown


def test_openmetrics_can_be_asked_for() -> None:
    metrics.STORE_SECONDS.at(store="sqlite", statement="read").record(0.002)
    metrics.CALL_ERRORS.at(rpc="GetCount", reason="OVERLOADED").add()
    with MetricsEndpoint("127.0.0.1:0", setting="--metrics") as endpoint:
        text = scrape(endpoint, "application/openmetrics-text; version=1.0.0")
    units = {each.name: each.unit for each in openmetrics.text_string_to_metric_families(text)}
    assert units["tally_store_seconds"] == "seconds"
    assert "tally_call_errors" in units


def test_a_gauge_that_nobody_knows_is_not_shown() -> None:
    metrics.WORKERS_ALIVE.at().watch(metrics, lambda _: None)
    with MetricsEndpoint("127.0.0.1:0", setting="--metrics") as endpoint:
        assert "tally_workers_alive" not in scrape(endpoint)


def test_a_taken_port_names_the_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SetupError) as refused:
            MetricsEndpoint(address, setting="server.metrics")
    assert address in refused.value.message
    assert "already in use" in refused.value.message
    assert "server.metrics" in refused.value.message


@pytest.mark.parametrize("listen", ["9464", ":9464", "localhost:http", "localhost:70000", ""])
def test_what_is_not_an_address_is_refused(listen: str) -> None:
    with pytest.raises(SetupError, match=r"--metrics .*HOST:PORT"):
        MetricsEndpoint(listen, setting="--metrics")


def test_an_unknown_host_is_refused() -> None:
    with pytest.raises(SetupError, match=r"no-such-host\.invalid:0.*--metrics"):
        MetricsEndpoint("no-such-host.invalid:0", setting="--metrics")


def health(endpoint: MetricsEndpoint) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{endpoint.address}/healthz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_is_what_it_was_told_last() -> None:
    with MetricsEndpoint("127.0.0.1:0", setting="--metrics") as endpoint:
        assert health(endpoint) == (503, "not serving: starting\n")
        endpoint.tell("waiting for Cassandra")
        assert health(endpoint) == (503, "not serving: waiting for Cassandra\n")
        endpoint.tell(None)
        assert health(endpoint) == (200, "serving\n")
        assert "process_cpu_seconds_total" in scrape(endpoint)


def test_the_end_frees_the_port_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with MetricsEndpoint("127.0.0.1:0", setting="--metrics") as endpoint:
        port = endpoint.port
    assert set(threading.enumerate()) <= before
    with MetricsEndpoint(f"127.0.0.1:{port}", setting="--metrics") as again:
        assert "process_cpu_seconds_total" in scrape(again)
