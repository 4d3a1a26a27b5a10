"""The background audit: goes round and round through all counters of this worker's shards.

It takes a bounded share of the worker's time and remembers a bounded number of differences. What it
finds is in the log, once, and in the metrics; it changes nothing.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from math import gcd

import structlog

from counter.errors import ShuttingDown, TallyError, Unavailable
from counter.keys import ROLLUP_BUCKETS
from counter.metrics import AUDIT_CYCLES, AUDIT_DIFFERENT, AUDIT_RESULTS, AUDITED
from counter.namespaces import Namespace, Strategy
from rollup_worker.audit.audit import Audit, CounterAudit
from rollup_worker.audit.values import Difference

# Counters of one turn. A walk over a shard's records serves all of them.
COUNTERS_PER_TICK = 1_000
# Of the time: for each second of work it rests for nineteen.
SHARE = 0.05
# A cycle begins at most this often: few counters need not be audited all the time.
CYCLE_S_MIN = 60.0
# Folds of a shard whose digests are compared in one turn: the newest that were not yet.
RECORDS_PER_TICK = 4
# In windows: folds from before a pause are left to the audit of their counters.
_LOOK_BACK = 64
DIFFERENCES_MAX = 10_000
_REST_S_MAX = 30.0

log = structlog.get_logger()

# What was found different: (namespace id, counter) or (shard, first window).
Found = tuple[str, int, str | int]


class Sampler:
    def __init__(
        self,
        audit: Audit,
        owned: Callable[[], Collection[int]],
        *,
        counters_per_tick: int = COUNTERS_PER_TICK,
        share: float = SHARE,
        cycle_s_min: float = CYCLE_S_MIN,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`owned`: the shards of this worker."""
        assert 0 < share <= 1, share
        self._audit = audit
        self._owned = owned
        self._counters_per_tick = counters_per_tick
        self._share = share
        self._cycle_s_min = cycle_s_min
        self._next_cycle_s = 0.0
        self._monotonic_s = monotonic_s
        self._worked_since_s = 0.0
        self._stopping = asyncio.Event()
        # What is left of this cycle, what comes next at the end, and how far that has come.
        self._left: list[tuple[Namespace, int]] = []
        self._after = ""
        self._checked_through: dict[int, int] = {}
        # In the last full cycle, and in this one.
        self._different_before: set[Found] = set()
        self._different: set[Found] = set()
        self._problem: str | None = None
        self._audited = {result: AUDITED.at(result=result) for result in AUDIT_RESULTS}
        self._cycles = AUDIT_CYCLES.at()
        AUDIT_DIFFERENT.at().watch(self, lambda sampler: sampler.differences)

    @property
    def differences(self) -> int:
        """How many counters and folds are known to be different."""
        return len(self._different_before | self._different)

    def stop(self) -> None:
        """A turn under way ends soon."""
        self._stopping.set()

    async def tick(self) -> None:
        """One turn: the newest folds, then the next counters. Errors of stores wait for a later
        turn."""
        self._worked_since_s = self._monotonic_s()
        try:
            for shard in sorted(self._owned()):
                await self._check_newest_folds(shard)
            await self._audit_counters()
            self._problem = None
        except ShuttingDown:
            pass
        except TallyError as error:
            if self._problem is None:
                log.warning(
                    "the background audit cannot go on for now",
                    action="audit_failed",
                    problem=error.message,
                )
            self._problem = error.message

    async def _check_newest_folds(self, shard: int) -> None:
        ledger = self._audit.stores.ledger
        watermark = (await ledger.watermarks())[shard]
        after = self._checked_through.get(shard, watermark - 1)
        records = await ledger.folds(shard, max(after + 1, watermark - _LOOK_BACK), watermark)
        for record in records[-RECORDS_PER_TICK:]:
            for difference in await self._audit.check_record(record, self._give_way):
                self._note_fold(shard, difference)
        self._checked_through[shard] = watermark

    async def _audit_counters(self) -> None:
        """The next counters, as many as a turn has or to the end of the cycle."""
        if not self._left:
            now_s = self._monotonic_s()
            if now_s < self._next_cycle_s:
                return
            await self._begin_cycle()
            self._next_cycle_s = now_s + self._cycle_s_min
        room = self._counters_per_tick
        while room > 0 and self._left:
            namespace, bucket = self._left[-1]
            rows = await self._audit.stores.rollup_store.page(
                namespace.id, bucket, prefix="", after=self._after, limit=room
            )
            await self._audit_page(namespace, [counter for counter, _ in rows])
            if len(rows) < room:
                self._left.pop()
                self._after = ""
            else:
                self._after = rows[-1][0]
            room -= len(rows)
        if not self._left:
            self._cycles.add()
            self._different_before, self._different = self._different, set()

    async def _begin_cycle(self) -> None:
        snapshot = await self._audit.stores.namespace_store.latest()
        owned, shards = self._owned(), self._audit.layout.shards
        self._after = ""
        for namespace in snapshot.namespaces.values() if snapshot else ():
            if namespace.strategy is Strategy.BEST_EFFORT and namespace.shadow is None:
                continue
            buckets = ROLLUP_BUCKETS[namespace.cardinality]
            # Shard and bucket of a counter are the same hash modulo two numbers, so they agree
            # modulo what divides both: other buckets have no counter of these shards.
            common = gcd(buckets, shards)
            mine = {shard % common for shard in owned}
            self._left += [
                (namespace, bucket) for bucket in range(buckets) if bucket % common in mine
            ]

    async def _audit_page(self, namespace: Namespace, counters: Sequence[str]) -> None:
        by_shard: dict[int, list[tuple[Namespace, str]]] = {}
        owned = set(self._owned())
        for counter in counters:
            shard = self._audit.shard_of(namespace, counter)
            if shard in owned:
                by_shard.setdefault(shard, []).append((namespace, counter))
        for shard, of_shard in by_shard.items():
            try:
                found = await self._audit.shard(shard, of_shard, give_way=self._give_way)
            except ShuttingDown:
                raise
            except Unavailable:
                self._audited["failed"].add(len(of_shard))
                raise  # the same counters again in the next turn
            except Exception as error:
                # Whatever it is, it must not keep the others from being audited.
                self._audited["failed"].add(len(of_shard))
                log.error(
                    "counters cannot be audited",
                    action="audit_failed",
                    namespace=namespace.name,
                    shard=shard,
                    problem=repr(error),
                    exc_info=error,
                )
                continue
            for audit in found.counters:
                self._note_counter(audit)
            for difference in found.segments:
                self._note_fold(shard, difference)

    def _note_fold(self, shard: int, difference: Difference) -> None:
        from_window = difference.from_window
        key = "fold", shard, from_window
        self._note(key, [difference], is_different=True, shard=shard, from_window=from_window)

    def _note_counter(self, audit: CounterAudit) -> None:
        if audit.is_different:
            result = "different"
        else:
            result = "without_base" if audit.base is None else "equal"
        self._audited[result].add()
        if result == "without_base":
            return
        self._note(
            ("counter", audit.namespace.id, audit.counter),
            [each for each in audit.differences if not each.is_repaired],
            is_different=audit.is_different,
            namespace=audit.namespace.name,
            counter=audit.counter,
        )

    def _note(
        self, key: Found, differences: Sequence[Difference], *, is_different: bool, **where: object
    ) -> None:
        if not is_different:
            self._different_before.discard(key)
            self._different.discard(key)
            return
        is_new = key not in self._different_before and key not in self._different
        if len(self._different) < DIFFERENCES_MAX:
            self._different.add(key)
        elif is_new:
            return  # that there are so many is known by now
        if is_new:
            first = differences[0]
            log.error(
                "the audit found a difference",
                action="audit_difference",
                **where,
                kind=first.kind.value,
                windows=f"{first.from_window} to {first.to_window}",
                expected=first.expected,
                actual=first.actual,
                problem=first.message,
                differences=len(differences),
            )

    async def _give_way(self) -> None:
        """Rests in proportion to the work since the last time."""
        worked_s = self._monotonic_s() - self._worked_since_s
        rest_s = min(_REST_S_MAX, worked_s * (1 / self._share - 1))
        try:
            async with asyncio.timeout(rest_s):
                await self._stopping.wait()
        except TimeoutError:
            pass
        if self._stopping.is_set():
            raise ShuttingDown("this worker is stopping")
        self._worked_since_s = self._monotonic_s()
