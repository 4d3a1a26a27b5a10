"""The metrics of several processes in one answer, as Prometheus sees it."""

import math
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families

from counter import metrics
from counter.http_endpoint import HttpEndpoint
from counter.metrics_endpoint import ProcessMetrics
from tally.supervision.merged_metrics import MergedMetrics, families_of, merged
from tally.supervision.messages import LENGTH, Family, Sample, Scraped, encode, from_child
from tally.supervision.supervisor import Supervisor

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples_of(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of_this_process() -> list[Family]:
    """As they arrive over the line. What only a supervisor has, other tests may have left here."""
    with ProcessMetrics() as process:
        families = families_of(process.registry)
    message = from_child.decode(encode(Scraped(1, families))[LENGTH.size :])
    assert isinstance(message, Scraped)
    return [each for each in message.families if not each.name.startswith("tally_process")]


def registry_of(by_process: Mapping[str, Sequence[Family]]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(MergedMetrics(lambda: by_process))
    return registry


def counted(value: float, **labels: str) -> Family:
    return Family("tally_x", "X.", "counter", "", [Sample("tally_x_total", labels, value)])


def test_nothing_is_added_up() -> None:
    shown = merged({"1": [counted(2, rpc="Add")], "2": [counted(3, rpc="Add")]})
    assert [(each.name, each.type, each.documentation) for each in shown] == [
        ("tally_x", "counter", "X.")
    ]
    assert [(each.name, each.labels, each.value) for each in shown[0].samples] == [
        ("tally_x_total", {"rpc": "Add", "process": "1"}, 2),
        ("tally_x_total", {"rpc": "Add", "process": "2"}, 3),
    ]


def test_a_process_that_is_away_hides_nothing_of_the_others() -> None:
    shown = merged({"1": [], "2": [counted(3)], "3": [counted(4)]})
    assert [each.labels["process"] for each in shown[0].samples] == ["2", "3"]


def test_a_process_shows_the_same_as_alone_and_a_label_more() -> None:
    seconds = metrics.CALL_SECONDS.at(rpc="GetCount", code="DATA_LOSS")
    seconds.record(0.0004)
    seconds.record(99.0)
    metrics.CALL_ERRORS.at(rpc="GetCount", reason="OVERLOADED").add(3)
    with ProcessMetrics() as process:
        alone = samples_of(generate_latest(process.registry).decode())
    families = of_this_process()
    text = generate_latest(registry_of({"1": families, "2": families})).decode()
    together = samples_of(text)
    assert len(alone) > 20
    for (name, labels), value in alone.items():
        if name.startswith("tally_process"):
            continue
        for number in ("1", "2"):
            seen = together[name, tuple(sorted((*labels, ("process", number))))]
            is_steady = name.startswith("tally_") and not math.isnan(value)
            assert not is_steady or seen == value, name
    declared = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(declared) == len(set(declared))
    assert "# TYPE tally_call_seconds histogram" in declared


def test_openmetrics_can_be_asked_for() -> None:
    metrics.CALL_SECONDS.at(rpc="GetCount", code="OK").record(0.002)
    text = exposition.generate_latest(registry_of({"1": of_this_process(), "2": []})).decode()
    units = {each.name: each.unit for each in parser.text_string_to_metric_families(text)}
    assert units["tally_call_seconds"] == "seconds"
    assert "tally_process_restarts" in units


async def _no_start(*_: Any, **__: Any) -> Any:
    raise AssertionError("it does not run")


def get(endpoint: HttpEndpoint, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{endpoint.address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_one_endpoint_answers_for_all() -> None:
    supervisor = Supervisor(3, _no_start, greet=lambda _: None, now_s=lambda: 0.0, random=Random(1))
    registry = registry_of({"1": of_this_process(), "2": of_this_process()})
    with HttpEndpoint(
        "127.0.0.1:0", setting="--metrics", registry=registry, health=supervisor.health
    ) as endpoint:
        code, text = get(endpoint, "/metrics")
        assert code == 200
        samples = samples_of(text)
        assert samples["tally_processes_wanted", ()] == 3
        assert samples["tally_processes_up", ()] == 0
        for number in ("1", "2", "3"):
            assert ("tally_process_restarts_total", (("process", number),)) in samples
        memory = {
            dict(labels)["process"]
            for name, labels in samples
            if name == "process_resident_memory_bytes"
        }
        assert memory == {"1", "2", "supervisor"}
        code, text = get(endpoint, "/healthz")
        assert code == 503
        assert text.startswith("0 of 3 processes serve\nprocess 1: not running\n")
