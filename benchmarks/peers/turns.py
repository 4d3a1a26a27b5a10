"""Rounds that take turns, so that no two systems are compared whose rounds were far apart.

One system is under load at a time and the others idle. Where a system puts work off, as Tally does
with folds, its load lasts until that work is done at the same rate before the measuring begins, and
the next system waits until the rest of it is done: nobody pays for another's work, and nobody
leaves its own out.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.peers.checks import check_counts
from benchmarks.peers.system import Driver, Extent, Peer, Result, Round, measured
from benchmarks.progress import Progress
from benchmarks.workloads import Stream, Workload


@dataclass(frozen=True, kw_only=True)
class Pace:
    round_s: float
    warm_up_s: float
    cycles: int


class Turns:
    """The drivers that are compared with each other, and what they did so far."""

    def __init__(self, drivers: Sequence[Driver], progress: Progress, *, place: str) -> None:
        """`place`: what they share, for tables."""
        self._drivers = drivers
        self._progress = progress
        self._place = place
        # Everything that was ever performed: counts must be the sum of it.
        self._streams: dict[Peer, list[Stream]] = {driver.peer: [] for driver in drivers}

    async def warm_up(self, pace: Pace, *, extent: Extent) -> None:
        """Also finds sizes, and proves that what counts a token once does so."""
        for driver in self._within(extent):
            self._progress.say(f"warming up: {driver.name}")
            stream = self._stream(driver, driver.warms_up_with)
            await driver.choose(stream)
            await driver.run(stream, pace.warm_up_s)
        for peer, streams in self._streams.items():
            await peer.settle()
            await check_counts(peer, streams)

    async def take(self, workload: Workload, pace: Pace, *, extent: Extent) -> list[Result]:
        """The rounds of the drivers with one workload, then a look at the counts."""
        drivers = self._within(extent)
        streams = {driver: self._stream(driver, workload) for driver in drivers}
        rounds: dict[Driver, list[Round]] = {driver: [] for driver in drivers}
        for cycle in range(pace.cycles):
            for driver in drivers:
                self._progress.say(
                    f"{workload.name}, cycle {cycle + 1} of {pace.cycles}: {driver.name}"
                )
                if driver.fill_s:
                    await driver.run(streams[driver], driver.fill_s)
                one = await measured(driver, streams[driver], pace.round_s)
                self._progress.say(f"  {one.per_s:,.0f} a second")
                began_s = time.perf_counter()
                await driver.peer.settle()
                settled_s = time.perf_counter() - began_s
                rounds[driver].append(replace(one, settled_s=settled_s))
        used = {driver.peer for driver in drivers}
        checked = {peer: await check_counts(peer, self._streams[peer]) for peer in used}
        return [
            Result(
                system=driver.name,
                place=self._place,
                workload=workload.name,
                idiom=driver.idiom,
                version=driver.peer.version,
                promises=driver.peer.promises,
                rounds=rounds[driver],
                checked=checked[driver.peer],
            )
            for driver in drivers
        ]

    def _within(self, extent: Extent) -> list[Driver]:
        return [each for each in self._drivers if each.extent.value <= extent.value]

    def _stream(self, driver: Driver, workload: Workload) -> Stream:
        stream = Stream(workload)
        self._streams[driver.peer].append(stream)
        return stream
