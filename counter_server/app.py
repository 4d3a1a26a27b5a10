"""The composition root of the server: the only place here that knows how its parts fit."""

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from functools import partial
from random import Random

from counter.background import keep_running
from counter.clock import Clock
from counter.namespaces import Namespace, Snapshot, check_windows
from counter.namespaces import Strategy as StrategyName
from counter.presence import NamespaceTraffic
from counter.rpc.server import RpcServer
from counter.settings import Platform
from counter.storage.ports import (
    BestEffortCounters,
    CountCache,
    EventLog,
    HistoryStore,
    Ledger,
    RollupStore,
)
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter.windows import Layout
from counter_server.adjustments import Adjustments
from counter_server.admission import Admission
from counter_server.batches import Batches
from counter_server.commit import CommitLimits, GroupCommit
from counter_server.comparison import Comparison
from counter_server.count_at import CountsAt
from counter_server.count_history import CountHistories
from counter_server.late import LateTokens
from counter_server.ledger_watch import LedgerWatch
from counter_server.limits import Limits
from counter_server.listing import Listing
from counter_server.ranking import Rankings
from counter_server.reads import Reads
from counter_server.registry import Registry
from counter_server.service import CounterService, Questions
from counter_server.shadow_watch import ShadowWatch
from counter_server.strategies import (
    Accurate,
    BestEffort,
    CacheLayer,
    EventPath,
    Eventual,
    RollingWindow,
    Source,
)
from counter_server.streams import Streams
from counter_server.tail import Tail

SERVICE = "counter.v1.CounterService"


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Those that may be None can be done without; what needs one is then refused."""

    event_log: EventLog
    ledger: Ledger
    rollup_store: RollupStore
    history_store: HistoryStore
    local_cache: CountCache  # this process's own
    shared_cache: CountCache | None  # the fleet's
    best_effort_counters: BestEffortCounters | None

    @property
    def present(self) -> frozenset[str]:
        names = (each.name for each in fields(self))
        return frozenset(name for name in names if getattr(self, name) is not None)


class CounterServer:
    def __init__(
        self,
        stores: Stores,
        *,
        platform: Platform,
        layout: Layout,
        clock: Clock,
        limits: CommitLimits,
        servers_alive: Callable[[], int] = lambda: 1,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        chance: Random | None = None,
    ) -> None:
        """`servers_alive`: how many share the limits of the namespaces, this one included.
        `chance`: where all that is random comes from; None: from the system."""
        self._layout = layout
        self._admission = Admission(platform, layout, clock, chance)
        self._commit = GroupCommit(
            stores.event_log, layout, limits, self._admission.observe, chance
        )
        self._limits = Limits(
            stores.rollup_store, servers_alive=servers_alive, monotonic_ns=monotonic_ns
        )
        self._watch = LedgerWatch(stores.ledger, self._admission, layout, platform, clock)
        tail = Tail(stores.event_log, stores.ledger, shards=layout.shards)
        reads = Reads(stores.ledger, stores.rollup_store, tail, layout)
        path = EventPath(
            admission=self._admission,
            commit=self._commit,
            late=LateTokens(stores.event_log, stores.ledger, layout, clock),
            reads=reads,
            layout=layout,
        )
        listing = Listing(stores.ledger, stores.rollup_store, layout, clock)
        self._questions = Questions(
            counts_at=CountsAt(reads, stores.history_store, layout),
            count_histories=CountHistories(reads, stores.history_store, layout),
            listing=listing,
            comparison=Comparison(listing),
            rankings=Rankings(
                stores.ledger, stores.rollup_store, stores.history_store, layout, clock
            ),
        )

        def eventual(namespace: Namespace) -> Eventual:
            layers = [
                CacheLayer(
                    cache=stores.local_cache,
                    source=Source.LOCAL_CACHE,
                    ttl_ms=namespace.cache_local_ttl_ms,
                )
            ]
            if stores.shared_cache is not None:
                shared = CacheLayer(
                    cache=stores.shared_cache,
                    source=Source.SHARED_CACHE,
                    ttl_ms=namespace.cache_ttl_ms,
                )
                layers.append(shared)
            return Eventual(namespace, path, layers)

        def best_effort(namespace: Namespace) -> BestEffort:
            assert stores.best_effort_counters is not None, "such namespaces are refused"
            return BestEffort(namespace, counters=stores.best_effort_counters)

        self._registry = Registry(
            {
                StrategyName.EVENTUAL: (Eventual, eventual),
                StrategyName.ACCURATE: (Accurate, partial(Accurate, path=path)),
                StrategyName.BEST_EFFORT: (BestEffort, best_effort),
                StrategyName.ROLLING_WINDOW: (RollingWindow, partial(RollingWindow, path=path)),
            },
            stores.present,
        )

    def check(self, snapshot: Snapshot) -> None:
        """Raises SetupError if these namespaces cannot be served; changes nothing."""
        self._registry.check(snapshot)
        self._limits.check(snapshot)
        check_windows(snapshot, self._layout.window_ms)

    def switch(self, snapshot: Snapshot) -> None:
        """Serves these namespaces from now on."""
        self._limits.switch(snapshot)
        self._registry.switch(snapshot)

    async def start(self, rpc: RpcServer, stack: AsyncExitStack) -> None:
        """Registers the service; on the stack's way out the commits under way are finished."""
        await self._watch.look()
        batches = Batches(self._registry, self._admission, self._limits)
        pb_grpc.add_CounterServiceServicer_to_server(
            CounterService(
                self._registry,
                self._admission,
                self._questions,
                Adjustments(self._admission),
                self._limits,
                batches,
                Streams(batches, stopping=rpc.stopping),
            ),
            rpc.services,
        )
        stack.push_async_callback(self._commit.drain)
        stack.callback(self._questions.rankings.stop)
        shadows = ShadowWatch(self._registry, self._questions.comparison)
        for name, run in (
            ("look at the ledger", self._watch.run),
            ("compare shadows", shadows.run),
            ("sample traffic", self._limits.run),
            ("count counters", self._limits.count),
        ):
            stack.callback(keep_running(name, run).cancel)

    def traffic(self) -> tuple[NamespaceTraffic, ...]:
        """What each namespace took on in the last seconds."""
        return self._limits.traffic()

    def problem(self) -> str | None:
        """Why no event can be accepted now; None when all is well."""
        error = self._admission.problem()
        return None if error is None else error.message
