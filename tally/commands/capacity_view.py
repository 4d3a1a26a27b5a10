"""How a plan is shown: a table with short formulas, every number on demand, or JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from control_plane.capacity.plan import Plan
from control_plane.capacity.quantities import Kind, Line
from control_plane.capacity.units import plain, shown
from tally.commands.values import format_setting_ms
from tally.output import (
    Column,
    complain,
    is_terminal,
    print_json,
    print_table,
    say,
    write_line,
)

COLUMNS = (
    Column(title="what", style="cyan"),
    Column(title="needed", right=True),
    Column(title="how it comes about"),
)
FIGURE_COLUMNS = tuple(
    Column(title=title)
    for title in ("name", "value", "kind", "formula", "in numbers", "source", "meaning")
)
# Rows of the table, by the number that they show; those under another one are indented.
_ROWS = (
    ("servers", "servers"),
    ("workers", "workers"),
    ("nodes", "Cassandra nodes"),
    ("disk_bytes", "disk of all nodes"),
    ("log_bytes", "  log, a copy"),
    ("fold_record_bytes", "  fold records, a copy"),
    ("rollup_bytes", "  rollups, a copy"),
    ("history_bytes", "  history, a copy"),
    ("copies_bytes", "  all copies"),
    ("compaction_bytes", "  for compactions"),
    ("node_commit_logs_bytes", "  commit logs"),
    ("disk_bytes_per_node", "  on each node"),
    ("memcached_bytes", "memcached"),
    ("shards", "shards"),
    ("lanes", "lanes"),
    ("partition_bytes", "  a partition of the log"),
)
_AFTER = (
    ("client_bytes_per_s", "network, callers"),
    ("store_bytes_per_s", "network, Cassandra"),
    ("cost", "cost"),
    ("server_cost", "  servers"),
    ("worker_cost", "  workers"),
    ("node_cost", "  nodes"),
    ("disk_gb_cost", "  disk"),
    ("memory_gb_cost", "  memory"),
)


def show(
    plan: Plan, *, namespace: str | None, notes: Sequence[str], explain: bool, json: bool
) -> None:
    if json:
        print_json(_document(plan, namespace, notes))
        return
    if plan.refusals:
        for refusal in plan.refusals:
            complain(f"refused: {refusal}")
        return
    print_table(COLUMNS, list(_rows(plan)))
    write_line("")
    _say_embedded(plan)
    for note in (*notes, *plan.notes):
        say(f"note: {note}", style="dim")
    if explain:
        write_line("")
        _explain(plan)
    else:
        say("note: --explain shows every number, formula and constant", style="dim")


def _rows(plan: Plan) -> Iterator[tuple[str, str, str]]:
    yield from _figures(plan, _ROWS)
    load = plan.load
    if "shards" in plan.lines:
        yield "window", format_setting_ms(load.window_ms), "platform.window"
        counters = plain(load.counters / load.namespaces)
        yield "cardinality", str(plan.cardinality), f"{counters} counters in a namespace"
        yield from _freshness(plan)
    yield from _figures(plan, _AFTER)


def _figures(plan: Plan, rows: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    for name, title in rows:
        line = plan.lines.get(name)
        if line is not None:
            yield title, line.shown, line.filled if line.filled != "0" else line.meaning


def _freshness(plan: Plan) -> Iterator[tuple[str, str, str]]:
    least, most = plan.lines["lag_s_least"], plan.lines["lag_s_most"]
    yield "complete_through", f"{plain(least.value)} to {most.shown} ago", most.filled
    if "lag_s_step" in plan.lines:
        step = plan.lines["lag_s_step"]
        yield "  after a step", f"{step.shown} ago", step.filled
    if not plan.load.reads_the_tail and plan.load.cache_ttl_ms:
        ttl_s = plan.load.cache_ttl_ms / 1_000
        local_s = plan.load.cache_local_ttl_ms / 1_000
        older = f"{shown(ttl_s, 's')} + {shown(local_s, 's')}, cache.ttl and cache.local_ttl"
        yield "  from a cache, more", shown(ttl_s + local_s, "s"), older


def _say_embedded(plan: Plan) -> None:
    embedded = plan.embedded
    assert embedded is not None
    cores, disk = embedded.lines["embedded_cores"], embedded.lines["embedded_disk_bytes"]
    if not embedded.enough:
        say(f"One process (tally serve) is not enough: {embedded.why}.")
        return
    say(
        f"One process is enough: tally serve takes {cores.shown} and {disk.shown} of disk.",
        style="bold green",
    )
    say(f"  {cores.shown} = {cores.filled}")
    say(f"  {disk.shown} = {disk.filled}")
    say("  Take the fleet above if the loss of one machine must not stop counting.")


def _explain(plan: Plan) -> None:
    lines = _all_lines(plan)
    if not is_terminal():
        print_table(
            FIGURE_COLUMNS,
            [
                (
                    each.name,
                    each.shown,
                    each.kind,
                    each.formula,
                    each.filled,
                    each.source,
                    each.meaning,
                )
                for each in lines
            ],
        )
        return
    say("Given", style="bold")
    _define([each for each in lines if each.kind is Kind.GIVEN])
    say("Constants", style="bold")
    _define([each for each in lines if each.kind is Kind.CONSTANT])
    say("Computed", style="bold")
    for each in lines:
        if each.kind is Kind.COMPUTED:
            say(f"  {each.name}: {each.meaning}", style="cyan")
            say(f"    = {each.formula}")
            if each.filled != each.formula:
                say(f"    = {each.filled}")
            say(f"    = {each.shown}", style="bold")


def _all_lines(plan: Plan) -> list[Line]:
    """Those of the fleet, and then what else there is of the one process."""
    own = {} if plan.embedded is None else plan.embedded.lines
    alone = [line for name, line in own.items() if name not in plan.lines]
    return [*plan.lines.values(), *alone]


def _define(lines: Sequence[Line]) -> None:
    width = max(len(each.name) for each in lines)
    for each in lines:
        source = f" ({each.source})" if each.source else ""
        say(f"  {each.name:<{width}}  {each.shown:>12}  {each.meaning}{source}")


def _document(plan: Plan, namespace: str | None, notes: Sequence[str]) -> dict[str, Any]:
    computed = {each.name: each.value for each in plan.lines.values() if each.kind is Kind.COMPUTED}
    embedded = plan.embedded
    return {
        "namespace": namespace,
        "load": asdict(plan.load),
        "refusals": [asdict(each) for each in plan.refusals],
        "embedded": None
        if embedded is None
        else {
            "enough": embedded.enough,
            "why": embedded.why,
            "cores": embedded.lines["embedded_cores"].value,
            "disk_bytes": embedded.lines["embedded_disk_bytes"].value,
        },
        "cardinality": None if plan.refusals else plan.cardinality,
        "fleet": None if plan.refusals else computed,
        "notes": [*notes, *plan.notes],
        "figures": [
            {
                "name": each.name,
                "value": each.value,
                "unit": each.unit,
                "kind": each.kind,
                "meaning": each.meaning,
                "formula": each.formula,
                "in_numbers": each.filled,
                "source": each.source,
            }
            for each in _all_lines(plan)
        ],
    }
