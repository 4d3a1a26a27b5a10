"""What a system under comparison is: a peer that runs, and drivers that use it.

A peer is the real thing as child processes. A driver is one way in which a Python service would use
it; a peer may have several. Drivers perform the operations of a stream in a closed loop and say how
many they performed; what that cost is measured around them, the same way for all.
"""

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

import psutil

from benchmarks.figures import percentile_ms
from benchmarks.workloads import DUPLICATES, Stream, Workload

_OWN = psutil.Process()
_SETTLED_SHOWN_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Promises:
    """What an acknowledged add can rely on, in words, and what of it is checked after a run."""

    durability: str
    dedupe: str
    freshness: str
    dedupes: bool = True  # a repeated token counts once
    keeps: bool = True  # False: there are no counts to check


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a driver did."""

    operations: int
    latencies_s: Sequence[float]  # of some of its awaits


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a driver did, and what it cost."""

    operations: int
    elapsed_s: float
    client_cpu_s: float
    server_cpu_s: Mapping[str, float]  # by process of the peer
    latencies_s: Sequence[float]
    settled_s: float = 0.0  # after it: until no work was left of what it put off

    @property
    def per_s(self) -> float:
        return self.operations / self.elapsed_s

    @property
    def client_cpu_us(self) -> float:
        """Of this process, for each operation."""
        return self.client_cpu_s / self.operations * 1_000_000

    @property
    def server_cpu_us(self) -> float:
        """Of all processes of the peer, for each operation."""
        return sum(self.server_cpu_s.values()) / self.operations * 1_000_000


class Peer(ABC):
    """A running system."""

    name: str
    version: str
    promises: Promises

    @abstractmethod
    def cpu_s(self) -> dict[str, float]:
        """Processor time of each of its processes since their start."""

    async def counts(self, counters: Sequence[str]) -> list[int]:
        """What they read now, in order. Of a peer that keeps counts."""
        raise NotImplementedError(f"{self.name} keeps no counts")

    async def settle(self) -> None:
        """Returns when it has no work left of what was acknowledged, so that it idles."""
        return


class Extent(Enum):
    """With what a driver is measured."""

    EVERYWHERE = 1  # with every workload
    RATIOS = 2  # with the one workload that ratios are about
    DETAILS = 3  # the same, and not in quick runs


class Driver(ABC):
    """One way to use a peer from a Python service."""

    # How long a load must last before work that the peer puts off is part of what is measured.
    fill_s = 0.0
    extent = Extent.EVERYWHERE
    # Proves that tokens dedupe, where the driver can repeat one.
    warms_up_with: Workload = DUPLICATES

    def __init__(self, peer: Peer, name: str, idiom: str) -> None:
        self.peer = peer
        self.name = name  # of the peer and its use, for tables
        self.idiom = idiom  # one line: how it is used

    @abstractmethod
    async def run(self, stream: Stream, seconds: float) -> Load:
        """Performs operations for so long, and returns when all of them are answered."""

    async def choose(self, stream: Stream) -> None:
        """Finds the sizes with which the peer is fastest here, if there are any to choose."""
        return


async def measured(driver: Driver, stream: Stream, seconds: float) -> Round:
    # What the benchmarks keep is no part of what a service has: its collector need not see it.
    gc.collect()
    gc.freeze()
    try:
        return await _measured(driver, stream, seconds)
    finally:
        gc.unfreeze()


async def _measured(driver: Driver, stream: Stream, seconds: float) -> Round:
    server_s = driver.peer.cpu_s()
    client = _OWN.cpu_times()
    began_s = time.perf_counter()
    load = await driver.run(stream, seconds)
    elapsed_s = time.perf_counter() - began_s
    after = _OWN.cpu_times()
    if not load.operations:
        raise RuntimeError(f"{driver.name} performed nothing in {seconds:.1f} s")
    return Round(
        operations=load.operations,
        elapsed_s=elapsed_s,
        client_cpu_s=after.user + after.system - client.user - client.system,
        server_cpu_s={
            process: now_s - server_s[process] for process, now_s in driver.peer.cpu_s().items()
        },
        latencies_s=load.latencies_s,
    )


@dataclass(frozen=True, kw_only=True)
class Result:
    """All rounds of one driver with one workload, or the reason why there are none."""

    system: str
    place: str = ""  # what it was measured beside; only results of the same place are compared
    workload: str
    idiom: str = ""
    version: str = ""
    promises: Promises | None = None
    rounds: Sequence[Round] = ()
    checked: str = ""  # what was compared after the rounds
    not_measured: str = ""  # the reason, if there are no rounds

    @property
    def per_s(self) -> float:
        """The median of the rounds."""
        return median(each.per_s for each in self.rounds)

    @property
    def is_limit(self) -> bool:
        """No system that one could use instead, but what a part can do at most."""
        return self.promises is not None and not self.promises.keeps

    @property
    def unit(self) -> str:
        return "operations/s" if self.workload == "mixed" else "adds/s"

    def processor_us(self) -> dict[str, float]:
        """For each operation; on few cores it is what decides the rate."""
        costs = {
            "client_cpu_us": median(each.client_cpu_us for each in self.rounds),
            "server_cpu_us": median(each.server_cpu_us for each in self.rounds),
        }
        processes = self.rounds[0].server_cpu_s
        if len(processes) > 1:
            for process in processes:
                costs[f"of_it_{process}_us"] = median(
                    each.server_cpu_s[process] / each.operations * 1_000_000 for each in self.rounds
                )
        return costs

    def costs(self) -> dict[str, float]:
        """What explains the rate: processor time for each operation, and how long an await took."""
        latencies_s = [each for one in self.rounds for each in one.latencies_s]
        costs = self.processor_us()
        if latencies_s:
            costs |= {
                "p50_ms": percentile_ms(latencies_s, 50),
                "p99_ms": percentile_ms(latencies_s, 99),
            }
        if (settled_s := median(each.settled_s for each in self.rounds)) >= _SETTLED_SHOWN_S:
            costs["settled_after_s"] = settled_s
        return costs
