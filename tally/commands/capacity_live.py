"""The load of a live namespace: its own traffic, and what its definition says."""

from dataclasses import dataclass
from typing import Any

from clients import Namespace
from counter.namespaces import Cardinality, HistoryStep, Strategy
from tally.commands.connection import Target, calling
from tally.commands.health import NAMESPACES
from tally.commands.values import format_count
from tally.output import Failure


@dataclass(frozen=True, kw_only=True)
class Live:
    values: dict[str, Any]  # of a Load, as far as they are known
    notes: tuple[str, ...]


def measure(target: Target, name: str) -> Live:
    with calling(target, name, service=NAMESPACES) as client:
        namespace = client.get_namespace(name)
        processes = client.processes().processes
    if namespace.strategy is None or namespace.cardinality is None:
        raise Failure(
            f"namespace {name} has a strategy or cardinality that this tally does not know. "
            "Install the version that the fleet runs."
        )
    values, notes = _definition(namespace)
    traffic = [each for process in processes for each in process.traffic if each.namespace == name]
    servers = sum(any(each.namespace == name for each in one.traffic) for one in processes)
    if not traffic:
        notes.append(f"no server says anything about the traffic of {name}")
        return Live(values=values, notes=tuple(notes))
    adds_per_s = sum(each.adds_per_s for each in traffic)
    reads_per_s = sum(each.reads_per_s for each in traffic)
    values |= {"adds_per_s": adds_per_s, "reads_per_s": reads_per_s}
    # Each server counts the same counters.
    known = [each.counters for each in traffic if each.counters is not None]
    if known:
        values["counters"] = max(1, *known)
    notes.append(
        f"the traffic of {name} in the last seconds, on {format_count(servers)} "
        f"server{'' if servers == 1 else 's'}: plan for the peak with --adds-per-s and "
        "--reads-per-s"
    )
    limited = sum(each.limited_per_s for each in traffic)
    if limited > 0:
        notes.append(f"a limit of the namespace refused {limited:,.1f} calls/s of it meanwhile")
    return Live(values=values, notes=tuple(notes))


def _definition(namespace: Namespace) -> tuple[dict[str, Any], list[str]]:
    assert namespace.strategy is not None
    assert namespace.cardinality is not None
    notes = []
    strategy = Strategy(namespace.shadow or namespace.strategy)
    if namespace.shadow is not None:
        notes.append(
            f"the namespace is in a shadow phase: planned as {strategy}, which it will be; until "
            f"the cutover memcached holds its {namespace.strategy} counters too"
        )
    values: dict[str, Any] = {
        "strategy": strategy,
        "cardinality": Cardinality(namespace.cardinality),
        "cache_ttl_ms": namespace.cache_ttl_ms,
        "cache_local_ttl_ms": namespace.cache_local_ttl_ms,
        "history": tuple(
            HistoryStep(step_ms=each.step_ms, retention_ms=each.retention_ms)
            for each in namespace.history
        ),
        "rolling_window_ms": namespace.rolling_window_ms,
    }
    if strategy is Strategy.BEST_EFFORT and namespace.dedupe_ttl_ms is not None:
        values["dedupe_ttl_ms"] = namespace.dedupe_ttl_ms
    limits = namespace.limits
    if limits.batch_items is not None:
        values["batch"] = min(100, limits.batch_items)
    if limits.counters is not None:
        values["counters"] = limits.counters  # unless a server knows better
    for limit, option in ((limits.adds_per_s, "adds"), (limits.reads_per_s, "reads")):
        if limit is not None:
            notes.append(
                f"its limit allows {format_count(limit)} {option}/s: plan for that with "
                f"--{option}-per-s {limit}"
            )
    return values, notes
