"""What each process of a fleet says about itself, so that anybody can tell who runs what.

It is for people and for shares of limits, and decides nothing: whoever falls silent is forgotten.
Fields are only ever added at the end, with a default: processes of two versions run side by side
during an upgrade. A report that cannot be read is as good as none.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import structlog

from counter.decoding import UNREADABLE
from counter.errors import TallyError
from counter.storage.ports import Membership

# A process that died is forgotten after this long; one that stops says so itself.
TTL_S = 10
BEAT_EVERY_S = 1.0
# A report stays small: the busiest namespaces, and as much of a problem as fits on some lines.
TRAFFIC_MAX = 100
PROBLEM_CHARS_MAX = 500
# Programs that take calls.
SERVERS = ("server", "serve")

log = structlog.get_logger()


class NamespaceTraffic(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a server took on lately, per second."""

    namespace: str
    adds_per_s: float = 0.0
    reads_per_s: float = 0.0
    limited_per_s: float = 0.0  # adds and reads that a limit of the namespace refused
    counters: int | None = None  # about; None: nobody counts them


class ProcessReport(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    program: str = ""  # as it is typed: server, worker, control-plane, or serve for all in one
    version: int = 0  # of the namespaces that it runs
    refused_version: int = 0  # a later one that it cannot run; 0: there is none
    problem: str = ""  # why not
    traffic: tuple[NamespaceTraffic, ...] = ()


_DECODER = msgspec.msgpack.Decoder(ProcessReport)


def encode(report: ProcessReport) -> bytes:
    busiest = sorted(report.traffic, key=lambda each: -each.adds_per_s - each.reads_per_s)
    return msgspec.msgpack.encode(
        msgspec.structs.replace(
            report,
            traffic=tuple(busiest[:TRAFFIC_MAX]),
            problem=report.problem[:PROBLEM_CHARS_MAX],
        )
    )


def decode(body: bytes) -> ProcessReport | None:
    try:
        return _DECODER.decode(body)
    except UNREADABLE:
        return None


class Presence:
    def __init__(
        self, membership: Membership, process: str, report: Callable[[], ProcessReport]
    ) -> None:
        """`process` is another one after each start."""
        self._membership = membership
        self._process = process
        self._report = report
        self._failing = False
        self._news = asyncio.Event()
        # How many take calls, as of the last beat, this one included if it does.
        self.servers_alive = 1

    async def beat(self) -> None:
        """Says how this process is, and looks who else is there."""
        await self._membership.beat(self._process, encode(self._report()), ttl_s=TTL_S)
        alive = await self.processes()
        servers = sum(each is not None and each.program in SERVERS for each in alive.values())
        self.servers_alive = max(1, servers)

    async def processes(self) -> Mapping[str, ProcessReport | None]:
        """The live processes by name; None: what it says cannot be read."""
        return {process: decode(body) for process, body in await self._membership.live()}

    def tell(self) -> None:
        """Beats at once: there is something new to say."""
        self._news.set()

    async def run(self) -> None:
        """Beats for ever. While the store is away the last known number of servers stays."""
        while True:
            try:
                await self.beat()
                self._failing = False
            except TallyError as error:
                if not self._failing:
                    self._failing = True
                    log.warning(
                        "the fleet cannot be told how this process is: trying on",
                        action="presence_failed",
                        problem=error.message,
                    )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), BEAT_EVERY_S)
            self._news.clear()

    async def leave(self) -> None:
        try:
            await self._membership.leave(self._process)
        except TallyError:
            log.info("the store is away: the fleet forgets this process by itself", action="left")
