"""The metrics of all processes in one answer.

Each series has a label more, `process`, with the number of its process, so nothing is added up
here: a process that is started again begins at 0, and `rate()` sees that in its own series alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from counter.instruments import Counter, Gauge
from counter.metrics import PROCESS_RESTARTS, PROCESSES_UP, PROCESSES_WANTED
from tally.supervision.messages import Family, Sample

LABEL = "process"
SUPERVISOR = "supervisor"  # its own memory and processor time have this for a number

# Of the supervisor itself.
_OWN: tuple[Counter | Gauge, ...] = (PROCESSES_WANTED, PROCESSES_UP, PROCESS_RESTARTS)


def families_of(registry: CollectorRegistry) -> list[Family]:
    """All that a registry has now, in a form that can travel."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            metric.unit,
            [Sample(each.name, dict(each.labels), each.value) for each in metric.samples],
        )
        for metric in registry.collect()
    ]


def merged(by_process: Mapping[str, Sequence[Family]]) -> list[Metric]:
    """Each metric once, with the series of all processes."""
    found: dict[str, Metric] = {}
    for process, families in by_process.items():
        for family in families:
            metric = found.get(family.name)
            if metric is None:
                metric = found[family.name] = Metric(
                    family.name, family.documentation, family.type, family.unit
                )
            for sample in family.samples:
                metric.add_sample(sample.name, {**sample.labels, LABEL: process}, sample.value)
    return list(found.values())


class MergedMetrics(Collector):
    """`scrape` asks the processes that are there; it is called on the thread that serves."""

    def __init__(self, scrape: Callable[[], Mapping[str, Sequence[Family]]]) -> None:
        self._scrape = scrape
        self._itself = CollectorRegistry()
        ProcessCollector(registry=self._itself)

    def collect(self) -> Iterable[Metric]:
        yield from map(_own, _OWN)
        yield from merged({SUPERVISOR: families_of(self._itself), **self._scrape()})


def _own(metric: Counter | Gauge) -> Metric:
    shown = Metric(metric.name.removesuffix("_total"), metric.description, metric.kind)
    for labels, series in metric.series():
        if series.value is not None:
            shown.add_sample(metric.name, labels, series.value)
    return shown
