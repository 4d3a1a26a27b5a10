"""What metrics are made of: counters, gauges and histograms that cost next to nothing to record.

Values are gathered in these plain objects, and OpenTelemetry gets them when somebody scrapes
(`counter.metrics_endpoint`). Its own `record` and `add` take 10 to 15 microseconds with two labels,
and several of them per call would be felt; these take less than one.

A metric has the labels and the label values that it was declared with and no others, so the number
of its series is known beforehand. A series exists from its first `at` on: parts ask for theirs
when they are made, so that a process shows zeros for what can happen in it and nothing else.

Everything here may be called from any thread.
"""

import weakref
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

Labels = Mapping[str, frozenset[str]]  # the values that each label can have


class CounterSeries:
    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self._lock = Lock()
        self.value = 0

    def add(self, amount: int = 1) -> None:
        with self._lock:
            self.value += amount


Owner = TypeVar("Owner")


class GaugeSeries:
    """Either set now and then, or read at each scrape from the object that knows."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value: float | None = None
        self._read: Callable[[], float | None] | None = None

    def set(self, value: float) -> None:
        self._value, self._read = value, None

    def watch(self, owner: Owner, read: Callable[[Owner], float | None]) -> None:
        """Reads from `owner` for as long as it lives; None is "not known" and is not shown.

        `read` runs on the thread that scrapes: it must not wait, nor change anything.
        """
        reference = weakref.ref(owner)

        def read_if_alive() -> float | None:
            alive = reference()
            return None if alive is None else read(alive)

        self._read = read_if_alive

    @property
    def value(self) -> float | None:
        read = self._read
        return self._value if read is None else read()


class HistogramState(NamedTuple):
    counts: tuple[int, ...]  # by bucket; the last one is for values beyond all bounds
    sum: float


class HistogramSeries:
    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._lock = Lock()
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def record(self, value: float) -> None:
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[bucket] += 1
            self._sum += value

    def timed(self) -> "_Timer":
        """`with series.timed(): ...` records how many seconds it took, however it ended."""
        return _Timer(self)

    @property
    def state(self) -> HistogramState:
        with self._lock:
            return HistogramState(tuple(self._counts), self._sum)


class _Timer:
    __slots__ = ("_began_s", "_series")

    def __init__(self, series: HistogramSeries) -> None:
        self._series = series

    def __enter__(self) -> None:
        self._began_s = perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._series.record(perf_counter() - self._began_s)


Series = TypeVar("Series", CounterSeries, GaugeSeries, HistogramSeries)


class Metric(Generic[Series]):
    """`name` is what Prometheus shows. `unit` is OpenTelemetry's: `s`, or what is counted in
    braces, such as `{event}`."""

    kind: str

    def __init__(self, name: str, unit: str, description: str, labels: Labels) -> None:
        self.name = name
        self.unit = unit
        self.description = description
        self.labels = labels
        self._series: dict[tuple[str, ...], Series] = {}
        self._creating = Lock()

    def at(self, **values: str) -> Series:
        """The series with these label values. All labels must be given, with declared values."""
        key = tuple(values.get(label, "") for label in self.labels)
        series = self._series.get(key)
        if series is None:
            assert values.keys() == self.labels.keys(), f"{self.name} with {sorted(values)}"
            for label, value in values.items():
                assert value in self.labels[label], f"{self.name}: {label} cannot be {value}"
            with self._creating:
                series = self._series.setdefault(key, self._new())
        return series

    def series(self) -> list[tuple[dict[str, str], Series]]:
        """All there are by now, each with its label values."""
        with self._creating:
            present = list(self._series.items())
        return [(dict(zip(self.labels, key, strict=True)), series) for key, series in present]

    def _new(self) -> Series:
        raise NotImplementedError


class Counter(Metric[CounterSeries]):
    kind = "counter"

    def __init__(self, name: str, unit: str, description: str, labels: Labels) -> None:
        super().__init__(name, unit, description, labels)
        assert name.endswith("_total"), name

    def _new(self) -> CounterSeries:
        return CounterSeries()


class Gauge(Metric[GaugeSeries]):
    kind = "gauge"

    def _new(self) -> GaugeSeries:
        return GaugeSeries()


class Histogram(Metric[HistogramSeries]):
    kind = "histogram"

    def __init__(
        self, name: str, unit: str, description: str, labels: Labels, bounds: Sequence[float]
    ) -> None:
        super().__init__(name, unit, description, labels)
        assert list(bounds) == sorted(set(bounds)), name
        self.bounds = tuple(bounds)

    def _new(self) -> HistogramSeries:
        return HistogramSeries(self.bounds)
