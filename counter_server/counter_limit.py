"""How many counters namespaces have, for those that may only have so many.

A counter is there from its first fold on, when it has a rollup row. Counting rows takes time, so it
is done in the background every COUNT_EVERY_S, and between two counts a limit can be passed by what
comes in meanwhile and by what is not folded yet.

Names are spread evenly over the buckets of a namespace, so some buckets tell about the others.
Those that tell enough are always the same ones: servers agree, and a count does not go up and down.

While a namespace has as many counters as it may have, adds to those that are there go on. Which
ones are there is looked up once and remembered, up to KNOWN_MAX names of all namespaces together.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import structlog

from counter.clock import NS_PER_S
from counter.errors import TallyError
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import Namespace, Strategy
from counter.rollups import RollupKey
from counter.storage.ports import CounterKey, RollupStore

COUNT_EVERY_S = 10
# A count that takes long is made less often: so many times as long later.
PAUSE_PER_COUNT = 20
# Rows that tell about all others to some percent.
ROWS_ENOUGH = 10_000
# Buckets that tell whether a namespace is far below its limit: under a half of it.
BUCKETS_ENOUGH = 16
KNOWN_MAX = 200_000
_LOOK_EVERY_S = 1.0

log = structlog.get_logger()


class CounterLimits:
    def __init__(self, rollups: RollupStore, monotonic_ns: Callable[[], int]) -> None:
        self._rollups = rollups
        self._monotonic_ns = monotonic_ns
        self._limited: dict[int, Namespace] = {}
        self._counted: dict[int, int] = {}
        self._due_ns: dict[int, int] = {}
        # In the order in which they were found. (In a plain dict the first one is slow to find.)
        self._known: OrderedDict[CounterKey, None] = OrderedDict()
        self._failing: set[int] = set()

    def switch(self, namespaces: Iterable[Namespace]) -> None:
        """Counts these from now on: those of them that have a limit. Counts so far stay."""
        self._limited = {each.id: each for each in namespaces if _is_counted(each)}
        self._counted = {id_: each for id_, each in self._counted.items() if id_ in self._limited}
        self._due_ns = {id_: each for id_, each in self._due_ns.items() if id_ in self._limited}
        self._failing &= self._limited.keys()

    def counted(self, namespace_id: int) -> int | None:
        """About how many counters there are; None: not counted, or not yet."""
        return self._counted.get(namespace_id)

    def reached(self, namespace: Namespace) -> bool:
        """Whether there are as many as there may be. Unless that is known for sure: no."""
        most = namespace.limits.counters
        return most is not None and self._counted.get(namespace.id, 0) >= most

    async def missing(self, namespace: Namespace, counters: Sequence[str]) -> set[str]:
        """Which of the counters are not there; none if the store cannot tell."""
        asked = [
            each for each in dict.fromkeys(counters) if (namespace.id, each) not in self._known
        ]
        if not asked:
            return set()
        buckets, prefix = ROLLUP_BUCKETS[namespace.cardinality], namespace_prefix(namespace.id)
        keys = [
            RollupKey(namespace.id, counter_hash(prefix, each) % buckets, each) for each in asked
        ]
        try:
            rows = await self._rollups.read(keys)
        except TallyError:
            return set()
        for counter, row in zip(asked, rows, strict=True):
            if row is not None:
                self._known[namespace.id, counter] = None
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return {counter for counter, row in zip(asked, rows, strict=True) if row is None}

    async def count_those_due(self) -> None:
        for namespace in list(self._limited.values()):
            began_ns = self._monotonic_ns()
            if began_ns < self._due_ns.get(namespace.id, began_ns):
                continue
            await self._count(namespace)
            took_ns = self._monotonic_ns() - began_ns
            pause_ns = max(COUNT_EVERY_S * NS_PER_S, PAUSE_PER_COUNT * took_ns)
            self._due_ns[namespace.id] = began_ns + pause_ns

    async def run(self) -> None:
        while True:
            await self.count_those_due()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _count(self, namespace: Namespace) -> None:
        try:
            about = await self._about(namespace)
        except TallyError as error:
            # What was counted before stays: counters come and never go.
            if namespace.id not in self._failing:
                self._failing.add(namespace.id)
                log.warning(
                    "the counters of a namespace cannot be counted: its limit holds as of the "
                    "last count, or not at all if there was none",
                    action="counters_uncounted",
                    namespace=namespace.name,
                    problem=error.message,
                )
            return
        self._failing.discard(namespace.id)
        if namespace.id in self._limited:
            self._counted[namespace.id] = about

    async def _about(self, namespace: Namespace) -> int:
        """Exact while all buckets together have fewer than ROWS_ENOUGH rows."""
        most = namespace.limits.counters
        assert most is not None, "others are not counted"
        buckets = ROLLUP_BUCKETS[namespace.cardinality]
        rows = about = 0
        for bucket in range(buckets):
            rows += await self._rollups.count(namespace.id, bucket)
            about = rows * buckets // (bucket + 1)
            is_far_below = bucket + 1 >= BUCKETS_ENOUGH and about < most // 2
            if rows >= ROWS_ENOUGH or is_far_below:
                break
        return about


def _is_counted(namespace: Namespace) -> bool:
    """best_effort has no rollup rows that could be counted."""
    return namespace.limits.counters is not None and namespace.strategy is not Strategy.BEST_EFFORT
