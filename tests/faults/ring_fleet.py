"""A fleet on three Cassandra nodes, each program of which can be disturbed alone.

Each has faults of its own (its clock, the steps at which it fails) and its own network: it reaches
every node, and memcached, through a proxy that no other program uses.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from tally.dev.cassandra_node import CassandraNode
from tally.dev.memcached import Memcached
from tally.dev.ring import wait_ring_ready
from tests import backends
from tests.faults.injected import Faults
from tests.faults.marks import watched_marks
from tests.faults.proxy import Proxy, Way, where
from tests.fleet import ACCEPT_LIMIT_MS, CLOCK_SKEW_MS, LATE_S, Fleet
from tests.load import Load, under_load
from tests.processes import ProgramProcess, free_port
from tests.scrape import Scrape

# Enough to do for a fleet that shares two cores with its stores and its callers: long windows mean
# few folds.
WINDOW_MS = 1_000
CONVERGENCE_S = (WINDOW_MS + ACCEPT_LIMIT_MS + CLOCK_SKEW_MS) / 1_000
COUNTERS = 60
PAUSE_S = 0.1
EVENTS_LEAST = 500
MEMCACHED_MB = 8  # so little that it can be filled

# The nodes are on 127.0.0.N; each program of a run has a network of its own.
_networks = (f"127.1.{number}" for number in itertools.count(1))


class Links:
    """The ways of one program to all nodes, broken and healed together; `[n]` is the one to the
    nth node."""

    def __init__(self, proxies: Sequence[Proxy]) -> None:
        self._proxies = proxies

    def __getitem__(self, number: int) -> Proxy:
        return self._proxies[number]

    @property
    def seen(self) -> Counter[str]:
        """What was done to all of them."""
        return sum((each.seen for each in self._proxies), Counter())

    def cut(self) -> None:
        self._each(Proxy.cut)

    def drop(self, *ways: Way) -> None:
        self._each(Proxy.drop, *ways)

    def hold(self, *ways: Way) -> None:
        self._each(Proxy.hold, *ways)

    def delay(self, seconds: float, *ways: Way) -> None:
        self._each(Proxy.delay, seconds, *ways)

    def heal(self) -> None:
        self._each(Proxy.heal)

    def close(self) -> None:
        self._each(Proxy.close)

    def _each(self, change: Callable[..., None], *arguments: Any) -> None:
        for proxy in self._proxies:
            change(proxy, *arguments)


class Member(ProgramProcess):
    """A program of the fleet, with all that can happen to it."""

    def __init__(
        self,
        log: Path,
        program: str,
        *arguments: str,
        faults: Faults,
        cassandra: Links,
        memcached: Proxy,
        address: str | None,
    ) -> None:
        self.name = log.stem
        self.faults = faults
        self.cassandra = cassandra
        self.memcached = memcached
        self._metrics = f"127.0.0.1:{free_port()}"
        metrics = ("--metrics", self._metrics)
        super().__init__(log, program, *arguments, *metrics, address=address, faults=faults)

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric over all series with these labels, since its start."""
        return Scrape(self._metrics).total(name, **labels)

    @property
    def memory_mib(self) -> float:
        resident: int = psutil.Process(self.process.pid).memory_info().rss
        return resident / (1 << 20)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def mend(self) -> None:
        """Nothing is broken any more; what has ended is started, and not waited for."""
        self.cassandra.heal()
        self.memcached.heal()
        self.faults.disarm()
        self.faults.set_clock()
        if self._process is None:
            return
        if self.has_ended:
            self.start(wait=False)
        else:
            self.resume()


class RingFleet(Fleet):
    def __init__(
        self, home: Path, ring: Sequence[CassandraNode], *, log_retention: str = "1h"
    ) -> None:
        self.ring = ring
        self.memcached: Memcached = backends.start_memcached(f"--memory-limit={MEMCACHED_MB}")
        self.members: list[Member] = []
        super().__init__(
            home,
            contact_points=[node.settings.address for node in ring],
            port=ring[0].settings.native_port,
            copies=len(ring),
            memcached=self.memcached.address,
            log_retention=log_retention,
            window_ms=WINDOW_MS,
        )

    def add(self, program: str, *flags: str) -> Member:
        name = f"{program}-{len(self._processes)}"
        network = next(_networks)
        faults = Faults(self._home / name)
        faults.reach_cassandra_at(network)
        proxies = [_proxy_of(node, network) for node in self.ring]
        memcached = Proxy(where(self.memcached.address))
        config = self._write_config(
            name, [where(each.address)[0] for each in proxies], memcached.address
        )
        member = Member(
            self._home / f"{name}.log",
            program,
            *("--config", str(config), *flags),
            faults=faults,
            cassandra=Links(proxies),
            memcached=memcached,
            address=self._unused.pop(0) if program == "control-plane" else None,
        )
        self._processes.append(member)
        self.members.append(member)
        return member

    async def start_all(self) -> None:
        """Two servers, two workers and a control plane, on a schema of their own."""
        await self.apply_schema()
        self.servers = [self.add("server"), self.add("server")]
        self.workers = [self.add("worker"), self.add("worker")]
        self.control_plane = self.add("control-plane")
        await self.start(*self.members)

    @property
    def addresses(self) -> list[str]:
        """Of the servers."""
        return [each.address for each in self.servers]

    @asynccontextmanager
    async def under_load(
        self, name: str, *, servers: Sequence[str] | None = None, **habits: Any
    ) -> AsyncIterator[Load]:
        """Clients with counters of their own call all servers, at `servers` if those are not where
        the servers themselves listen. When the block is over everything is mended, and all that
        clients saw is checked; marks never go back meanwhile (I4)."""
        usual = {
            "late_s": LATE_S,
            "counters": COUNTERS,
            "pause_s": PAUSE_S,
            "events_least": EVENTS_LEAST,
        }
        async with (
            watched_marks(*(each.address for each in self.workers)),
            under_load(*(servers or self.addresses), name=name, **(usual | habits)) as load,
        ):
            await load.acknowledged(100)
            yield load
            await self.mend()
            await load.finish(converges_s=CONVERGENCE_S, worker=self.workers[0].address)

    def remove(self, member: Member) -> None:
        """Ends one that was only needed for a while."""
        member.end()
        self.members.remove(member)

    async def mend(self) -> None:
        """Whatever was broken is whole again, and everybody serves."""
        await asyncio.to_thread(mend_ring, self.ring)
        self.memcached.resume()
        if not self.memcached.is_running:
            self.memcached.start()
        for member in self.members:
            member.mend()
        for member in self.members:
            await asyncio.to_thread(member.wait_ready)

    def assert_no_bug_shows(self) -> None:
        """What goes wrong outside is told in a line; a traceback is of our own mistakes."""
        for member in self.members:
            assert "Traceback" not in member.log.read_text(), member.log

    def end(self) -> None:
        super().end()
        for member in self.members:
            member.cassandra.close()
            member.memcached.close()
        self.memcached.kill()


def mend_ring(ring: Sequence[CassandraNode]) -> None:
    """Every node runs, and sees all the others."""
    for node in ring:
        if node.is_running:
            node.resume()
        else:
            node.start()
    wait_ring_ready(ring)


def _proxy_of(node: CassandraNode, network: str) -> Proxy:
    settings = node.settings
    number = settings.address.rpartition(".")[2]
    return Proxy(
        (settings.address, settings.native_port),
        listen=(f"{network}.{number}", settings.native_port),
    )
