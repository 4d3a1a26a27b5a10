"""What charts are drawn from: the values behind the figures, as they go into the results' JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """A bar: what one system did of one workload, in a closed loop."""

    system: str
    workload: str
    per_s: float
    place: str = ""  # what it was measured beside
    unit: str = "adds/s"
    limit: bool = False  # what a part can do at most, and no system that one could use instead


@dataclass(frozen=True, kw_only=True)
class LoadPoint:
    """The latencies at one offered load, counted from when each call was due."""

    share_of_peak: float
    offered_per_s: float
    done_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line: one system's latencies against offered load, in an open loop."""

    system: str
    peak_per_s: float  # in a closed loop; what the shares are of
    points: Sequence[LoadPoint]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A line: the memory of one process over time."""

    process: str
    seconds: Sequence[float]
    memory_mb: Sequence[float]


@dataclass(kw_only=True)
class Series:
    """Filled while a suite measures."""

    throughputs: list[Throughput] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)

    def panels(self) -> dict[tuple[str, str], list[Throughput]]:
        """What may be compared with each other: the bars of one place and one workload."""
        panels: dict[tuple[str, str], list[Throughput]] = {}
        for each in self.throughputs:
            panels.setdefault((each.place, each.workload), []).append(each)
        return panels

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> "Series":
        return cls(
            throughputs=[Throughput(**each) for each in written.get("throughputs", ())],
            curves=[
                Curve(
                    system=each["system"],
                    peak_per_s=each["peak_per_s"],
                    points=[LoadPoint(**point) for point in each["points"]],
                )
                for each in written.get("curves", ())
            ],
            traces=[Trace(**each) for each in written.get("traces", ())],
        )
