"""Unary calls from ghz, beside the empty handler: embedded, on Cassandra, with two processes.

Rounds take turns, each cycle gives one ratio, and the median of the cycles is the figure. The
server, the stores and ghz share the machine.

A second process can bring no more than the machine has left: what one process, the stores and ghz
keep busy is busy already, and grows with every call. How much that leaves is measured: with all
cores in use while one process serves, more calls are impossible, and then the processor time per
call is what can be compared. It must not grow: a second process must not make a call dearer.
"""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from benchmarks.calls import check_local_share
from benchmarks.figures import Figure, Target, at_least, at_most, over_rounds
from benchmarks.ghz import HOT_COUNTERS, GhzRun, add_flags, get_flags, merged, run_ghz
from benchmarks.load import call_of
from benchmarks.programs import Fleet, fleet_on_cassandra
from benchmarks.progress import Progress
from benchmarks.requests import get_requests
from benchmarks.series import Series, Throughput
from benchmarks.servers import Server, empty_server, tally_server
from tally.dev.cassandra_files import CommitlogSync

_WARM_UP_S = 1.0
# Java compiles the paths of its node meanwhile.
_WARM_UP_ON_CASSANDRA_S = 15.0
_COMMITLOG_SYNC: CommitlogSync = "batch"
_PROCESSES = 2
_PROCESSES_TARGET = 1.5
_CPU_TARGET = 1.15
# The kernel spreads connections over the processes by chance: enough of them, so that none idles.
_MANY_CONNECTIONS = 20
_MANY_IN_FLIGHT = 100
# Of 100 counters whose entries live for half a second: most are found, if ghz found them.
_SAMPLED_READS = 1_000


async def measure(
    home: Path,
    *,
    cycles: int,
    seconds: float,
    on_cassandra: bool,
    progress: Progress,
    series: Series,
) -> AsyncIterator[list[Figure]]:
    async with empty_server(home / "empty") as empty:
        async with tally_server(home / "tally") as tally:
            rounds = await _beside_empty(
                empty, tally, "embedded", cycles, seconds, progress, warm_up_s=_WARM_UP_S
            )
            yield rounds.figures("embedded", at_least(0.75))
            series.throughputs += rounds.bars("Tally embedded")
        if not on_cassandra:
            return
        progress.say("starting a fleet on Cassandra")
        async with fleet_on_cassandra(home / "fleet", _COMMITLOG_SYNC) as fleet:
            rounds = await _beside_empty(
                empty,
                fleet.server,
                "Cassandra",
                cycles,
                seconds,
                progress,
                warm_up_s=_WARM_UP_ON_CASSANDRA_S,
            )
            yield rounds.figures("Cassandra", at_least(0.6))
            series.throughputs += rounds.bars("Tally on Cassandra")
            yield await _processes(fleet, cycles, seconds, progress)


@dataclass(kw_only=True)
class _Rounds:
    """Of the empty handler and of Tally, by server and method."""

    runs: dict[tuple[str, str], list[GhzRun]] = field(default_factory=dict)
    local_share: float = 0.0

    def figures(self, store: str, add_target: Target) -> list[Figure]:
        return [
            _ratio(f"ghz: AddCount, {store} / empty", "AddCount", self.runs, add_target),
            _ratio(
                f"ghz: GetCount cached, {store} / empty",
                "GetCount",
                self.runs,
                at_least(0.85),
                local_share=self.local_share,
            ),
        ]

    def bars(self, tally: str) -> list[Throughput]:
        return [
            Throughput(
                system=tally if name == "tally" else "empty handler",
                workload=f"{method} from ghz, beside {tally}",
                per_s=merged(runs).calls_per_s,
                unit="calls/s",
                limit=name == "empty",
            )
            for (name, method), runs in self.runs.items()
        ]


async def _beside_empty(
    empty: Server,
    tally: Server,
    store: str,
    cycles: int,
    seconds: float,
    progress: Progress,
    *,
    warm_up_s: float,
) -> _Rounds:
    rounds = _Rounds()
    for cycle in itertools.chain((None,), range(cycles)):
        progress.say(f"ghz, {store}: cycle {'-' if cycle is None else cycle + 1} of {cycles}")
        for method, flags in (("AddCount", add_flags), ("GetCount", get_flags)):
            for name, server in (("empty", empty), ("tally", tally)):
                round_s = warm_up_s if cycle is None else seconds
                run = await run_ghz(server, flags(), seconds=round_s)
                if cycle is not None:
                    rounds.runs.setdefault((name, method), []).append(run)
        # Cached? Right behind ghz's own reads, while their entries live.
        rounds.local_share = await _local_share(tally)
    return rounds


def _ratio(
    name: str,
    method: str,
    rounds: dict[tuple[str, str], list[GhzRun]],
    target: Target,
    **explains: float,
) -> Figure:
    tally, empty = rounds["tally", method], rounds["empty", method]
    beside = merged(empty)
    return over_rounds(
        name,
        [mine.calls_per_s / its.calls_per_s for mine, its in zip(tally, empty, strict=True)],
        unit="x",
        target=target,
        explains=merged(tally).explained()
        | {
            "empty_calls_per_s": beside.calls_per_s,
            "empty_p99_ms": beside.p99_ms,
            "empty_cpu_us_per_call": beside.cpu_us_per_call,
        }
        | explains,
    )


async def _local_share(server: Server) -> float:
    """Of some reads like ghz's, how many the server answers from its own cache."""
    call = call_of(server, "GetCount")
    requests = get_requests(HOT_COUNTERS)
    return check_local_share([await call(next(requests)) for _ in range(_SAMPLED_READS)])


async def _processes(fleet: Fleet, cycles: int, seconds: float, progress: Progress) -> list[Figure]:
    one: list[GhzRun] = []
    many: list[GhzRun] = []
    busy_cores: list[float] = []
    async with (
        fleet.another_server("one", "--processes", "1") as single,
        fleet.another_server("many", "--processes", str(_PROCESSES)) as multiple,
    ):
        for cycle in itertools.chain((None,), range(cycles)):
            shown = "-" if cycle is None else cycle + 1
            progress.say(f"ghz, {_PROCESSES} processes beside one: cycle {shown} of {cycles}")
            round_s = _WARM_UP_S if cycle is None else seconds
            for server, runs in ((single, one), (multiple, many)):
                psutil.cpu_percent()
                run = await run_ghz(
                    server,
                    add_flags(),
                    seconds=round_s,
                    connections=_MANY_CONNECTIONS,
                    in_flight=_MANY_IN_FLIGHT,
                )
                busy = psutil.cpu_percent() / 100 * _cores()
                if cycle is not None:
                    runs.append(run)
                    if server is single:
                        busy_cores.append(busy)
    return process_figures(one, many, room=_cores() / median(busy_cores))


def process_figures(one: list[GhzRun], many: list[GhzRun], *, room: float) -> list[Figure]:
    """`room`: how many times the load of one process the machine's cores could take."""
    leaves_room = room >= _PROCESSES_TARGET
    pairs = list(zip(one, many, strict=True))
    before, after = merged(one), merged(many)
    return [
        over_rounds(
            f"ghz: AddCount, {_PROCESSES} processes / 1, calls/s",
            [more.calls_per_s / single.calls_per_s for single, more in pairs],
            unit="x",
            target=at_least(_PROCESSES_TARGET) if leaves_room else None,
            explains={
                "room_x": room,
                "calls_per_s": after.calls_per_s,
                "one_calls_per_s": before.calls_per_s,
                "p99_ms": after.p99_ms,
                "one_p99_ms": before.p99_ms,
            },
        ),
        over_rounds(
            f"ghz: AddCount, {_PROCESSES} processes / 1, server CPU per call",
            [more.cpu_us_per_call / single.cpu_us_per_call for single, more in pairs],
            unit="x",
            target=None if leaves_room else at_most(_CPU_TARGET),
            explains={
                "server_cpu_us_per_call": after.cpu_us_per_call,
                "one_server_cpu_us_per_call": before.cpu_us_per_call,
            },
        ),
    ]


def _cores() -> int:
    return psutil.cpu_count() or 1
