"""The metrics of one process, gathered, and served to Prometheus."""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider, ObservableGauge
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry, ProcessCollector

from counter import metrics
from counter.errors import SetupError
from counter.http_endpoint import Health, HttpEndpoint
from counter.instruments import Counter, Gauge, Histogram
from counter.settings import SHARDS_MAX


class ProcessMetrics:
    """All metrics of this process, in a registry for Prometheus, to the end of its `with`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._provider = MeterProvider(
            [_Reader(self.registry)],
            resource=Resource.get_empty(),
            exemplar_filter=AlwaysOffExemplarFilter(),
        )
        _observe_all(self._provider)

    def __enter__(self) -> "ProcessMetrics":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._provider.shutdown()


class MetricsEndpoint:
    """Serves from its creation to the end of its `with`: GET /metrics and /healthz, on threads of
    its own.

    An address that cannot be had is a SetupError that names the setting.
    """

    def __init__(self, listen: str, *, setting: str) -> None:
        self._problem: str | None = "starting"
        self._stack = ExitStack()
        metrics = self._stack.enter_context(ProcessMetrics())
        try:
            endpoint = HttpEndpoint(
                listen, setting=setting, registry=metrics.registry, health=self._health
            )
        except SetupError:
            self._stack.close()
            raise
        self._stack.enter_context(endpoint)
        self.port = endpoint.port
        self.address = endpoint.address

    def tell(self, problem: str | None) -> None:
        """Why the process does not serve, for /healthz; None: it does."""
        self._problem = problem

    def _health(self) -> Health:
        problem = self._problem
        return Health(problem is None, "serving" if problem is None else f"not serving: {problem}")

    def __enter__(self) -> "MetricsEndpoint":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()


def _observe_all(provider: MeterProvider) -> None:
    """Has OpenTelemetry ask for the values of all counters and gauges, whenever it collects."""
    meter = provider.get_meter("tally")
    for metric in metrics.ALL:
        match metric:
            case Counter():
                # Prometheus gets its `_total` from the exporter.
                name = metric.name.removesuffix("_total")
                observe = [partial(_observe, metric)]
                meter.create_observable_counter(name, observe, metric.unit, metric.description)
            case Gauge():
                observe = [partial(_observe, metric)]
                meter.create_observable_gauge(metric.name, observe, metric.unit, metric.description)


def _observe(metric: Counter | Gauge, _: CallbackOptions) -> Iterable[Observation]:
    for labels, series in metric.series():
        value = series.value
        if value is not None:
            yield Observation(value, labels)


class _Reader(PrometheusMetricReader):
    """Adds the histograms, for OpenTelemetry has none that it observes, to what it did observe.

    Leaves out the scope's labels and the target's line: they say the same in every process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(
            disable_target_info=True,
            scope_info_enabled=False,
            registry=registry,
            cardinality_limits={ObservableGauge: SHARDS_MAX + 1},
        )

    def _receive_metrics(
        self, metrics_data: points.MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        histograms = [histogram_points(each) for each in metrics.ALL if isinstance(each, Histogram)]
        shown = [each for each in histograms if each.data.data_points]
        scope = points.ScopeMetrics(InstrumentationScope("tally"), shown, "")
        of_process = points.ResourceMetrics(Resource.get_empty(), [scope], "")
        super()._receive_metrics(
            points.MetricsData([*metrics_data.resource_metrics, of_process]), timeout_millis
        )


def histogram_points(histogram: Histogram) -> points.Metric:
    """A histogram as OpenTelemetry has it."""
    now_ns = time.time_ns()
    series = []
    for labels, each in histogram.series():
        counts, total = each.state
        series.append(
            points.HistogramDataPoint(
                attributes=labels,
                start_time_unix_nano=now_ns,
                time_unix_nano=now_ns,
                count=sum(counts),
                sum=total,
                bucket_counts=counts,
                explicit_bounds=histogram.bounds,
                min=0.0,
                max=0.0,
            )
        )
    data = points.Histogram(series, points.AggregationTemporality.CUMULATIVE)
    return points.Metric(histogram.name, histogram.description, histogram.unit, data)
