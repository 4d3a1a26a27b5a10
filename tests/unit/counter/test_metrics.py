"""The instruments, and what is declared with them."""

import gc
import threading
from importlib.resources import files
from typing import get_args

import grpc
import pytest

from counter import errors, metrics
from counter.instruments import Counter, Gauge, Histogram
from counter.storage.memcached.servers import Statement
from counter.v1 import counter_service_pb2, namespace_service_pb2, rollup_service_pb2

RESULT = {"result": frozenset({"hit", "miss"})}
# Of one metric: histograms have about twenty lines for each of their series.
SERIES_MAX = {"counter": 2_000, "gauge": 5_000, "histogram": 600}


def test_counters_lose_nothing_between_threads() -> None:
    counter = Counter("tally_things_total", "{thing}", "Things.", {})
    histogram = Histogram("tally_thing_seconds", "s", "Things.", {}, (1, 2))

    def count() -> None:
        for _ in range(20_000):
            counter.at().add(2)
            histogram.at().record(1.5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.at().value == 160_000
    assert histogram.at().state == ((0, 80_000, 0), 120_000.0)


def test_a_series_has_declared_labels_with_declared_values() -> None:
    counter = Counter("tally_things_total", "{thing}", "Things.", RESULT)
    counter.at(result="hit").add()
    assert counter.at(result="hit") is counter.at(result="hit")
    with pytest.raises(AssertionError, match="result cannot be video-42"):
        counter.at(result="video-42")
    with pytest.raises(AssertionError):
        counter.at()
    with pytest.raises(AssertionError):
        counter.at(result="hit ", counter="video-42")
    assert [(labels, series.value) for labels, series in counter.series()] == [
        ({"result": "hit"}, 1)
    ]


def test_a_series_is_shown_from_its_first_mention() -> None:
    counter = Counter("tally_things_total", "{thing}", "Things.", RESULT)
    assert counter.series() == []
    counter.at(result="miss")
    assert [(labels, series.value) for labels, series in counter.series()] == [
        ({"result": "miss"}, 0)
    ]


def test_a_bucket_includes_its_bound() -> None:
    series = Histogram("tally_thing_seconds", "s", "Things.", {}, (1, 2, 5)).at()
    for value in (0, 1, 1.001, 2, 5, 5.001, 100):
        series.record(value)
    counts, total = series.state
    assert counts == (2, 2, 1, 2)
    assert total == pytest.approx(114.002)


def test_what_fails_is_timed_too() -> None:
    series = Histogram("tally_thing_seconds", "s", "Things.", {}, (3_600,)).at()
    with series.timed():
        pass
    with pytest.raises(ValueError, match="as it happens"), series.timed():
        raise ValueError("as it happens")
    counts, total = series.state
    assert counts == (2, 0)
    assert total > 0


def test_a_gauge_reads_from_its_owner_while_that_lives() -> None:
    class Queue:
        waiting = 3

    gauge = Gauge("tally_things", "{thing}", "Things.", {}).at()
    assert gauge.value is None
    queue = Queue()
    gauge.watch(queue, lambda queue: queue.waiting)
    assert gauge.value == 3
    queue.waiting = 4
    assert gauge.value == 4
    del queue
    gc.collect()
    assert gauge.value is None
    gauge.set(7)
    assert gauge.value == 7


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in metrics.ALL]
    assert len(names) == len(set(names)) > 30
    for metric in metrics.ALL:
        name = metric.name
        assert name.startswith("tally_"), name
        assert name.endswith("_seconds") == (metric.unit == "s"), name
        assert name.endswith("_total") == isinstance(metric, Counter), name
        assert name.count("_total") <= 1, name
        assert not name.endswith(("_count", "_sum", "_bucket")), name  # Prometheus's own
        assert metric.description.endswith("."), name


def test_the_number_of_series_is_bounded() -> None:
    unbounded = {"namespace", "namespace_id", "counter", "counter_name", "token", "peer", "address"}
    for metric in metrics.ALL:
        assert not unbounded & metric.labels.keys(), metric.name
        series = 1
        for values in metric.labels.values():
            series *= len(values)
        assert 0 < series <= SERIES_MAX[metric.kind], metric.name


def test_single_digit_milliseconds_can_be_told_apart() -> None:
    times = [each for each in metrics.ALL if isinstance(each, Histogram) and each.unit == "s"]
    assert len(times) >= 5
    for histogram in times:
        assert len([bound for bound in histogram.bounds if 0.001 <= bound <= 0.01]) >= 5
        assert max(histogram.bounds) >= 10


def test_every_call_of_the_contract_can_be_measured() -> None:
    for file in (counter_service_pb2, namespace_service_pb2, rollup_service_pb2):
        for name, service in file.DESCRIPTOR.services_by_name.items():
            calls = {method.name for method in service.methods}
            assert set(metrics.RPCS[name]) == calls, name
    assert len(metrics.RPCS) == 3
    assert set(metrics.CODES) == {code.name for code in grpc.StatusCode}


def test_every_error_can_be_counted() -> None:
    reasons = metrics.CALL_ERRORS.labels["reason"]
    assert {"INTERNAL", "STORE_DAMAGED", "NAMESPACE_UNKNOWN"} <= reasons
    assert reasons >= errors.INVALID_REASONS


def test_every_statement_of_memcached_can_be_measured() -> None:
    assert set(metrics.STATEMENTS["memcached"]) == set(get_args(Statement))


def test_every_statement_of_cassandra_can_be_measured() -> None:
    text = files("counter.storage.cassandra").joinpath("queries.cql").read_text()
    lines = [line for line in text.splitlines() if line.startswith("-- ")]
    named = {line.removeprefix("-- ").partition(": ")[0] for line in lines if ": " in line}
    named = {name for name in named if name.isidentifier()}
    assert set(metrics.STATEMENTS["cassandra"]) == named
