"""`tally capacity`: from a load to a fleet, every number with its formula."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from control_plane.capacity.units import parse_bytes, parse_number
from tally.commands.connection import JsonOption, ServerOption, TimeoutOption, target_of
from tally.commands.extras import needs_server_extra
from tally.commands.values import parse_duration_ms
from tally.output import ExitCode, Failure, complain

if TYPE_CHECKING:
    from control_plane.capacity.prices import Prices

CAPACITY_FIELDS = (
    "JSON: namespace, load, refusals (a list of: code, what, why, change), embedded (enough, why, "
    "cores, disk_bytes), cardinality, fleet (by name, all computed numbers; null if refused), "
    "notes, figures, a list of: name, value, unit, kind (given, constant, computed), meaning, "
    "formula, in_numbers, source."
)
# What nobody can guess, and only callers or a live namespace can tell.
_NEEDED = {
    "adds_per_s": "--adds-per-s",
    "counters": "--counters",
}
_HOT_SHARE_DEFAULT = 0.05


def _number(text: str) -> float:
    value = parse_number(text)
    if value is None:
        raise typer.BadParameter(f"{text!r} is not a number. Write it like 50000, 50k or 2M.")
    return value


def _whole(text: str) -> int:
    value = _number(text)
    if value != int(value):
        raise typer.BadParameter(f"{text!r} is not a whole number. Write it like 50000, 50k or 2M.")
    return int(value)


def _size(text: str) -> float:
    value = parse_bytes(text)
    if value is None:
        raise typer.BadParameter(f"{text!r} is not a size. Write it like 500GB or 2TB.")
    return value


def _steps(text: str) -> list[tuple[int, int]]:
    """`1m:7d,1h:90d`: steps and how long they are kept, in milliseconds."""
    pairs = [each.partition(":") for each in text.split(",")]
    if not all(sign and kept for _, sign, kept in pairs):
        raise typer.BadParameter(
            f"{text!r} is not a history. Write steps and their retention, like 1m:7d,1h:90d."
        )
    return [(parse_duration_ms(step), parse_duration_ms(kept)) for step, _, kept in pairs]


def _option(name: str, metavar: str, help: str, *, parser: Any = None, shown: str = "") -> Any:
    """An option that a namespace or a default may stand in for: `shown`, as a person writes it."""
    return typer.Option(
        name, metavar=metavar, help=help, parser=parser, show_default=shown or False
    )


def _duration(name: str, help: str, *, shown: str = "") -> Any:
    return _option(name, "DURATION", help, parser=parse_duration_ms, shown=shown)


def capacity(
    context: typer.Context,
    adds_per_s: Annotated[
        Any, _option("--adds-per-s", "N", "Adds in a second, at the peak.", parser=_number)
    ] = None,
    reads_per_s: Annotated[
        Any,
        _option(
            "--reads-per-s", "N", "Reads in a second, at the peak. Default: 0.", parser=_number
        ),
    ] = None,
    counters: Annotated[
        Any, _option("--counters", "N", "How many counters there are.", parser=_whole)
    ] = None,
    retention: Annotated[
        Any, _duration("--retention", "How long a token's outcome can be told.", shown="1d")
    ] = None,
    namespace: Annotated[
        str | None,
        _option("--namespace", "NAME", "Measure the load of this live namespace."),
    ] = None,
    batch: Annotated[
        Any, _option("--batch", "N", "Adds in a call.", parser=_whole, shown="100")
    ] = None,
    read_batch: Annotated[
        Any, _option("--read-batch", "N", "Reads in a call.", parser=_whole, shown="1")
    ] = None,
    name_bytes: Annotated[
        Any, _option("--name-bytes", "N", "Of a counter's name.", parser=_whole, shown="30")
    ] = None,
    history: Annotated[
        Any, _option("--history", "STEPS", "Like 1m:7d,1h:90d.", parser=_steps, shown="none")
    ] = None,
    hot_share: Annotated[
        Any,
        _option(
            "--hot-share",
            "SHARE",
            "Of the adds, those to the busiest counter.",
            parser=_number,
            shown="0.05",
        ),
    ] = None,
    strategy: Annotated[
        Literal["best_effort", "eventual", "accurate", "rolling_window"] | None,
        typer.Option(
            "--strategy", metavar="NAME", help="How the counters are read.", show_default="eventual"
        ),
    ] = None,
    rolling_window: Annotated[
        Any, _duration("--rolling-window", "Its length, with that strategy.")
    ] = None,
    dedupe_ttl: Annotated[
        Any, _duration("--dedupe-ttl", "How long best_effort remembers tokens.", shown="not at all")
    ] = None,
    cache_ttl: Annotated[
        Any, _duration("--cache-ttl", "How long counts are cached.", shown="5s")
    ] = None,
    cache_hits: Annotated[
        Any,
        _option(
            "--cache-hits",
            "SHARE",
            "Of the reads, those that a cache can answer.",
            parser=_number,
            shown="0.8",
        ),
    ] = None,
    namespaces: Annotated[
        Any,
        _option("--namespaces", "N", "That the counters are in.", parser=_whole, shown="1"),
    ] = None,
    window: Annotated[Any, _duration("--window", "Length of a window.", shown="5s")] = None,
    accept_limit: Annotated[
        Any, _duration("--accept-limit", "How late an event may come.", shown="5s")
    ] = None,
    max_clock_skew: Annotated[
        Any, _duration("--max-clock-skew", "How far clocks may differ.", shown="500ms")
    ] = None,
    replication: Annotated[
        Any, _option("--replication", "N", "Copies in Cassandra.", parser=_whole, shown="3")
    ] = None,
    headroom: Annotated[
        Any,
        _option("--headroom", "SHARE", "Of each process, stays free.", parser=_number, shown="0.5"),
    ] = None,
    node_cores: Annotated[
        Any, _option("--node-cores", "N", "Of a Cassandra node.", parser=_whole, shown="8")
    ] = None,
    node_disk: Annotated[
        Any, _option("--node-disk", "SIZE", "Of a Cassandra node.", parser=_size, shown="2TB")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="What things cost.", show_default=False),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every number, formula and constant.")
    ] = False,
    json: JsonOption = False,
    server: ServerOption = None,
    timeout: TimeoutOption = None,
) -> int:
    """Work out the fleet for a load: processes, nodes, disk, memory, freshness and cost.

    Every number comes with its formula. Rates and sizes were measured on a small machine, and
    --headroom keeps away from them: take the answer as a start, and measure.
    """
    with needs_server_extra("tally capacity"):
        from control_plane.capacity.load import Load
        from control_plane.capacity.plan import plan
        from control_plane.capacity.prices import priced
        from counter.namespaces import HistoryStep, Strategy
        from tally.commands import capacity_live, capacity_view
    given: dict[str, Any] = {
        "adds_per_s": adds_per_s,
        "reads_per_s": reads_per_s,
        "counters": counters,
        "retention_s": None if retention is None else -(-retention // 1_000),
        "batch": batch,
        "read_batch": read_batch,
        "name_bytes": name_bytes,
        "history": None
        if history is None
        else tuple(HistoryStep(step_ms=step, retention_ms=kept) for step, kept in history),
        "hot_share": hot_share,
        "strategy": None if strategy is None else Strategy(strategy),
        "rolling_window_ms": rolling_window,
        "dedupe_ttl_ms": dedupe_ttl,
        "cache_ttl_ms": cache_ttl,
        "cache_hits": cache_hits,
        "namespaces": namespaces,
        "window_ms": window,
        "accept_limit_ms": accept_limit,
        "max_clock_skew_ms": max_clock_skew,
        "replication": replication,
        "headroom": headroom,
        "node_cores": node_cores,
        "node_disk_bytes": node_disk,
    }
    values = {name: value for name, value in given.items() if value is not None}
    notes: tuple[str, ...] = ()
    if namespace is not None:
        live = capacity_live.measure(target_of(context, server, timeout), namespace)
        values = {**live.values, **values}
        notes = live.notes
    _require(values, namespace)
    if "reads_per_s" not in values:
        values["reads_per_s"] = 0
        notes = (*notes, "no reads are planned for: give --reads-per-s")
    values.setdefault("hot_share", max(_HOT_SHARE_DEFAULT, 1 / max(1, values["counters"])))
    price_list = None if prices is None else _prices(prices)
    made = plan(Load(**values))
    if price_list is not None and not made.refusals:
        made = priced(made, price_list)
    capacity_view.show(made, namespace=namespace, notes=notes, explain=explain, json=json)
    return ExitCode.REFUSED if made.refusals else ExitCode.OK


def _require(values: dict[str, Any], namespace: str | None) -> None:
    missing = [option for name, option in _NEEDED.items() if name not in values]
    if not missing:
        return
    if namespace is None:
        raise Failure(
            f"missing {', '.join(missing)}: without them there is no load to plan for. Give them, "
            "or --namespace NAME to measure them on a live namespace. Try: tally capacity --help",
            ExitCode.USAGE,
        )
    raise Failure(
        f"nobody in the fleet knows what namespace {namespace} has for {', '.join(missing)}. "
        f"Give it yourself, like: tally capacity --namespace {namespace} "
        + " ".join(f"{option} N" for option in missing),
        ExitCode.USAGE,
    )


def _prices(path: Path) -> "Prices":
    from control_plane.capacity.prices import Prices, load_prices

    loaded = load_prices(path)
    if isinstance(loaded, Prices):
        return loaded
    for each in loaded[:-1]:
        complain(str(each))
    raise Failure(str(loaded[-1]))
