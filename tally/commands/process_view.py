"""How `tally namespaces --fleet` shows who runs which version, and what servers take on."""

from collections.abc import Iterable, Sequence
from typing import Any

from clients import NamespaceTraffic, Process, Processes
from tally.commands.plan_view import say_wrapped
from tally.output import Column, console, is_terminal, print_table, say, write_line

FLEET_FIELDS = (
    "version (the live one), alive, running, processes, a list of: process, program, version, "
    "refused_version, problem, traffic, a list of: namespace, adds_per_s, reads_per_s, "
    "limited_per_s, counters"
)
RUNS = "runs it"
BEHIND = "behind"
AHEAD = "ahead"
# On a terminal the names of processes have the room that the other columns leave.
_PROCESS_CHARACTERS_MIN = 10
_COLUMN_GAP = 3
# Programs that take calls.
_SERVERS = ("server", "serve")


def _style_of(state: str) -> str:
    if state == RUNS:
        return "green"
    return "yellow" if state.startswith((BEHIND, AHEAD)) else "bold red"


COLUMNS = (
    Column(title="process", style="cyan", whole=True),
    Column(title="program", whole=True),
    Column(title="version", right=True, whole=True),
    Column(title="state", style_of=_style_of, whole=True),
    Column(title="adds/s", right=True, optional=True, whole=True),
    Column(title="reads/s", right=True, optional=True, whole=True),
    Column(title="limited/s", right=True, optional=True, whole=True),
)


def print_fleet(fleet: Processes, namespace: str | None) -> None:
    """The processes, and in a line of its own why one of them refuses a version."""
    in_order = sorted(fleet.processes, key=lambda each: (each.program, each.process))
    rows = [_cells(each, fleet.version, namespace) for each in in_order]
    print_table(COLUMNS, _fitting(rows) if is_terminal() else rows)
    refusing = [each for each in in_order if each.refused_version]
    if refusing:
        write_line("")
    for each in refusing:
        say_wrapped(
            f"{each.program} {each.process} refuses version {each.refused_version}: "
            f"{each.problem or 'it does not say why'}",
            style="bold red",
        )
    running, alive = running_of(fleet), len(fleet.processes)
    say(
        f"version {fleet.version} runs on {running} of {alive} processes",
        style="green" if running == alive else "yellow",
    )


def fleet_document(fleet: Processes, namespace: str | None) -> dict[str, Any]:
    return {
        "version": fleet.version,
        "alive": len(fleet.processes),
        "running": running_of(fleet),
        "processes": [
            {
                "process": each.process,
                "program": each.program,
                "version": each.version,
                "refused_version": each.refused_version,
                "problem": each.problem or None,
                "traffic": [_traffic_document(one) for one in _traffic_of(each, namespace)],
            }
            for each in fleet.processes
        ],
    }


def running_of(fleet: Processes) -> int:
    """How many run the live version. One may know of a later one than whoever answered."""
    return sum(each.version >= fleet.version for each in fleet.processes)


def _cells(process: Process, live_version: int, namespace: str | None) -> tuple[str, ...]:
    traffic = _traffic_of(process, namespace)
    takes_calls = process.program in _SERVERS

    def rate(values: Iterable[float]) -> str:
        return _format_rate(sum(values)) if takes_calls or traffic else ""

    return (
        process.process,
        process.program,
        str(process.version) if process.version else "none",
        _state(process, live_version),
        rate(each.adds_per_s for each in traffic),
        rate(each.reads_per_s for each in traffic),
        rate(each.limited_per_s for each in traffic),
    )


def _state(process: Process, live_version: int) -> str:
    if process.refused_version:
        return f"refuses {process.refused_version}"
    behind = live_version - process.version
    if behind > 0:
        return f"{BEHIND} by {behind}"
    return RUNS if behind == 0 else f"{AHEAD} by {-behind}"


def _traffic_of(process: Process, namespace: str | None) -> list[NamespaceTraffic]:
    return [each for each in process.traffic if namespace in (None, each.namespace)]


def _traffic_document(traffic: NamespaceTraffic) -> dict[str, Any]:
    return {
        "namespace": traffic.namespace,
        "adds_per_s": traffic.adds_per_s,
        "reads_per_s": traffic.reads_per_s,
        "limited_per_s": traffic.limited_per_s,
        "counters": traffic.counters,
    }


def _format_rate(rate: float) -> str:
    return f"{rate:,.1f}" if 0 < rate < 10 else f"{rate:,.0f}"


def _fitting(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows as wide as the terminal, without a column of limits that refuse nothing."""
    limited = len(COLUMNS) - 1
    is_limited = any(row[limited] not in ("", "0") for row in rows)
    kept = [list(row) if is_limited else [*row[:limited], ""] for row in rows]
    widths = [
        max(len(column.title), *(len(row[number]) for row in kept)) + _COLUMN_GAP
        for number, column in enumerate(COLUMNS)
        if number and any(row[number] for row in kept)
    ]
    room = max(_PROCESS_CHARACTERS_MIN, console().width - sum(widths))
    return [[_shortened(row[0], room), *row[1:]] for row in kept]


def _shortened(process: str, characters: int) -> str:
    """Names begin with the host and end with what no other has."""
    if len(process) <= characters:
        return process
    end = characters // 2
    return f"{process[: characters - end - 1]}…{process[-end:]}"
