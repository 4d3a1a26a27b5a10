"""Limits of namespaces: what callers may do at most, and how much they do.

`adds_per_s` and `reads_per_s` are limits of the whole fleet. Each server allows its share, the same
for all servers that are alive, from a token bucket per namespace and limit. A call that is over the
limit is refused as a whole before anything of it is written, so the same may always be sent again.

What only the request can be blamed for (a name, a batch that is too large) is refused first and
costs nothing; then rates, which cost no look at a store; then new counters, which may cost one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import structlog

from counter.clock import NS_PER_S
from counter.errors import (
    AddsLimited,
    CountersLimited,
    InvalidRequest,
    ReadsLimited,
    SetupError,
    TallyError,
)
from counter.events import Event
from counter.metrics import LIMITED, LIMITS
from counter.name_patterns import compile_names
from counter.namespaces import Namespace, Snapshot
from counter.presence import NamespaceTraffic
from counter.storage.ports import RollupStore
from counter_server.counter_limit import COUNT_EVERY_S, CounterLimits
from counter_server.rate_limit import Fleet, RateLimit
from counter_server.traffic import SAMPLE_EVERY_S, Traffic

# Of refusals in one namespace by one limit: the first one, then how many since.
_LOG_EVERY_S = 10
_ERRORS = {"adds": AddsLimited, "reads": ReadsLimited}

log = structlog.get_logger()


class _Gate:
    """What stands before one namespace. One that changed has a new gate, which goes on with the
    traffic of the old one, and with its buckets where the limit is the same."""

    def __init__(self, namespace: Namespace, fleet: Fleet, before: "_Gate | None" = None) -> None:
        self.namespace = namespace
        self.traffic: Traffic = before.traffic if before else Traffic(fleet.monotonic_ns())
        # By limit: how many were refused since the log last said so, and when that was.
        self.refused: Counter[str] = before.refused if before else Counter()
        self.logged_ns: dict[str, int] = before.logged_ns if before else {}
        limits = namespace.limits
        self._adds: RateLimit | None = _kept_or_new(
            before._adds if before else None, namespace, "adds", limits.adds_per_s, fleet
        )
        self._reads: RateLimit | None = _kept_or_new(
            before._reads if before else None, namespace, "reads", limits.reads_per_s, fleet
        )
        self.name_allowed = None if limits.names is None else compile_names(limits.names)

    def take(self, adds: int, reads: int) -> None:
        """Lets a call through, with all that it costs, or raises why not."""
        limited_adds, limited_reads = self._adds if adds else None, self._reads if reads else None
        if limited_adds is not None and (error := limited_adds.refusal()) is not None:
            self.refuse("adds_per_s", adds + reads)
            raise error
        if limited_reads is not None and (error := limited_reads.refusal()) is not None:
            self.refuse("reads_per_s", adds + reads)
            raise error
        if limited_adds is not None:
            limited_adds.take(adds)
        if limited_reads is not None:
            limited_reads.take(reads)
        self.traffic.adds += adds
        self.traffic.reads += reads

    def refuse(self, limit: str, number: int) -> None:
        LIMITED.at(limit=limit).add(number)
        self.traffic.limited += number
        self.refused[limit] += number


class Limits:
    def __init__(
        self,
        rollups: RollupStore,
        *,
        servers_alive: Callable[[], int] = lambda: 1,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._fleet = Fleet(servers_alive=servers_alive, monotonic_ns=monotonic_ns)
        self._gates: dict[int, _Gate] = {}
        self._counters = CounterLimits(rollups, monotonic_ns)
        for limit in LIMITS:
            LIMITED.at(limit=limit)

    def check(self, snapshot: Snapshot) -> None:
        """Raises SetupError if a limit cannot be kept here."""
        for namespace in snapshot.namespaces.values():
            if namespace.limits.names is not None:
                try:
                    compile_names(namespace.limits.names)
                except ValueError as error:
                    raise SetupError(
                        f"namespace {namespace.name}: limits.names is no pattern here: {error}"
                    ) from error

    def switch(self, snapshot: Snapshot) -> None:
        gates: dict[int, _Gate] = {}
        for namespace in snapshot.namespaces.values():
            before = self._gates.get(namespace.id)
            if before is None or before.namespace != namespace:
                before = _Gate(namespace, self._fleet, before)
            gates[namespace.id] = before
        self._gates = gates
        self._counters.switch(snapshot.namespaces.values())

    # Before each call, as soon as its namespace is known: each raises why it may not pass.

    def check_batch(self, namespace: Namespace, size: int, field: str) -> None:
        most = namespace.limits.batch_items
        if most is not None and size > most:
            self._gates[namespace.id].refuse("batch_items", size)
            raise InvalidRequest(
                "BATCH_TOO_LARGE",
                field,
                f"{field} has {size} entries: namespace {namespace.name} takes at most {most} at "
                "once (limits.batch_items), so send several calls",
            )

    def reads(self, namespace: Namespace, number: int = 1) -> None:
        self._gates[namespace.id].take(0, number)

    async def add(self, namespace: Namespace, event: Event, *, reads: int = 0) -> None:
        gate = self._gates[namespace.id]
        if gate.name_allowed is not None and not gate.name_allowed(event.counter):
            gate.refuse("names", 1)
            raise _name_not_allowed(namespace)
        gate.take(1, reads)
        if self._counters.reached(namespace) and await self._counters.missing(
            namespace, [event.counter]
        ):
            gate.traffic.adds -= 1
            gate.refuse("counters", 1)
            raise _counters_limited(namespace)

    async def adds(
        self, namespace: Namespace, events: list[Event], errors: dict[int, TallyError]
    ) -> list[Event]:
        """Those of a batch's events that may be written; why others may not goes to `errors`, which
        has what is wrong with the batch's other items, by position."""
        gate = self._gates[namespace.id]
        allowed = gate.name_allowed
        if allowed is not None:
            refused = {event.counter for event in events if not allowed(event.counter)}
            error: TallyError = _name_not_allowed(namespace)
            events = _without(gate, "names", refused, error, events, errors)
        if events:
            gate.take(len(events), 0)
        if events and self._counters.reached(namespace):
            refused = await self._counters.missing(namespace, [each.counter for each in events])
            error, taken = _counters_limited(namespace), len(events)
            events = _without(gate, "counters", refused, error, events, errors)
            gate.traffic.adds -= taken - len(events)
        return events

    # How much came through.

    def traffic(self) -> tuple[NamespaceTraffic, ...]:
        now_ns = self._fleet.monotonic_ns()
        return tuple(
            NamespaceTraffic(
                namespace=gate.namespace.name,
                **gate.traffic.rates(now_ns)._asdict(),
                counters=self._counters.counted(gate.namespace.id),
            )
            for gate in self._gates.values()
        )

    def look(self) -> None:
        """To be called every SAMPLE_EVERY_S: takes a sample, and says in the log who is limited."""
        now_ns = self._fleet.monotonic_ns()
        for gate in self._gates.values():
            gate.traffic.sample(now_ns)
            for limit, refused in list(gate.refused.items()):
                logged_ns = gate.logged_ns.get(limit)
                if logged_ns is not None and now_ns < logged_ns + _LOG_EVERY_S * NS_PER_S:
                    continue
                gate.logged_ns[limit] = now_ns
                del gate.refused[limit]
                log.warning(
                    "a limit of a namespace refuses adds or reads",
                    action="namespace_limited",
                    namespace=gate.namespace.name,
                    limit=limit,
                    refused=refused,
                )

    async def count_counters(self) -> None:
        """Counts what is due to be counted."""
        await self._counters.count_those_due()

    async def count(self) -> None:
        """Counts for ever."""
        await self._counters.run()

    async def run(self) -> None:
        """Samples the traffic for ever."""
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            self.look()


def _kept_or_new(
    known: RateLimit | None, namespace: Namespace, what: str, per_s: int | None, fleet: Fleet
) -> RateLimit | None:
    """The one that is there goes on if it is the same: no change of namespaces fills a bucket."""
    if per_s is None:
        return None
    if known is not None and known.per_s == per_s:
        return known
    return RateLimit(namespace.name, what, per_s, _ERRORS[what], fleet)


def _without(
    gate: _Gate,
    limit: str,
    refused: set[str],
    error: TallyError,
    events: list[Event],
    errors: dict[int, TallyError],
) -> list[Event]:
    """The events of other counters than the refused ones; these get the error."""
    if not refused:
        return events
    positions = [at for at in range(len(events) + len(errors)) if at not in errors]
    for at, event in zip(positions, events, strict=True):
        if event.counter in refused:
            errors[at] = error
    kept = [event for event in events if event.counter not in refused]
    gate.refuse(limit, len(events) - len(kept))
    return kept


def _name_not_allowed(namespace: Namespace) -> InvalidRequest:
    return InvalidRequest(
        "NAME_NOT_ALLOWED",
        "counter_name",
        f"counter_name is not allowed in namespace {namespace.name}: the whole name must match "
        f"{namespace.limits.names} (limits.names)",
    )


def _counters_limited(namespace: Namespace) -> CountersLimited:
    return CountersLimited(
        f"namespace {namespace.name} has as many counters as it may have, "
        f"{namespace.limits.counters} (limits.counters): only adds to counters that are there are "
        "taken. Use one of them, or ask its owner for a higher limit",
        retry_after_ms=COUNT_EVERY_S * 1_000,
    )
