"""Rules in which time passes, workers work, stores fail, and servers restart."""

from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from counter.clock import NS_PER_MS
from counter.errors import AuditWithoutBase
from counter.storage.memory import MemoryCountCache
from rollup_worker.audit.values import BaseKind
from tests.backends import memcached_server
from tests.memcached_client import ask
from tests.stateful.base import Machine
from tests.stateful.installation import SERVERS, WORKERS, Stumble
from tests.stateful.model import World, state_of
from tests.stateful.writing import SERVER

WORKER = st.integers(0, WORKERS - 1)
# From a moment to longer than what is folded late is taken, and longer than tokens are known.
PASSING_MS = [0, 500, 5_000, 10_000, 31_000, 61_000, 400_000, 2_000_000, 4_000_000]
# A pass takes so many events: windows that have more are folded one by one.
# A server looks at the ledger and counts the counters; the second one takes the latest version of
# the namespaces.
HAPPENINGS = (
    "look",
    "look",
    "follow",
    "follow",
    "restart",
    "lose the shared cache",
    "forget what is old",
    "audit",
)
EVENTS_MAX = st.sampled_from([1, 2, 100])


class Running(Machine):
    @rule(milliseconds=st.sampled_from(PASSING_MS), closing=st.booleans())
    def time_passes(self, milliseconds: int, closing: bool) -> None:
        """Windows that are due close, if somebody closes them."""
        lag_ns = self._lag_ns() + milliseconds * NS_PER_MS
        if self.installation.stores.expires_by_itself and lag_ns > self.platform.log_retention_ns:
            return  # what is folded later than that is lost there, which is not promised (I8)
        self.clock.advance_ms(milliseconds)
        if not closing:
            return
        due = self.layout.closable_through(
            self.clock.now_ns(), grace_ns=self.platform.close_grace_ns
        )
        closed_through = self.run(self.installation.closer.close_due())
        assert closed_through == max(due, self.closed_through)
        self.closed_through = closed_through

    @rule(worker=WORKER, shard=st.sampled_from([None, None, 0, 1]), events_max=EVENTS_MAX)
    def fold(self, worker: int, shard: int | None, events_max: int) -> None:
        """One pass over a shard, or as many over all shards as there is something to fold."""
        if shard is not None:
            self._fold(worker, shard, events_max)
            return
        for each in range(self.layout.shards):
            while self._fold(worker, each, events_max):
                pass
        assert self.folded == [self.closed_through] * self.layout.shards

    @rule(worker=WORKER)
    def windows_end(self, worker: int) -> None:
        """Everything up to now is closed and folded."""
        self.time_passes(31_000, True)
        self.fold(worker, None, 100)

    def _fold(self, worker: int, shard: int, events_max: int) -> bool:
        """One pass; answers whether there is more to fold."""
        before = self.folded[shard]
        result = self.run(
            self.installation.workers[worker].fold_shard(
                shard, self.closed_through, events_max=events_max, rollups_per_batch=2
            )
        )
        assert before <= result.folded_through <= self.closed_through
        assert (result.folded_through > before) == (self.closed_through > before)
        self.folded[shard] = result.folded_through
        return bool(result.has_more)

    @rule(server=SERVER, what=st.sampled_from(HAPPENINGS))
    def let(self, server: int, what: str) -> None:
        match what:
            case "look":
                self.run(self.installation.servers[server].look())
                self.lag_ns[server] = self._lag_ns()
            case "follow":
                self.follow()
            case "restart":
                self._restart()
            case "lose the shared cache":
                self.flush_shared_cache()
            case "forget what is old":
                self._forget()
            case "audit":
                self.audit_all()

    def _restart(self) -> None:
        """All programs stop, and start on what the store holds."""
        self.happened["a restart"] += 1
        self.run(self.installation.stop())
        self.run(self.installation.start())
        self.serving = [self.versions.last] * SERVERS
        self.lag_ns = [self._lag_ns()] * SERVERS

    def flush_shared_cache(self) -> None:
        cache = self.installation.stores.count_cache
        if isinstance(cache, MemoryCountCache):
            cache._entries.clear()
        else:
            ask(memcached_server(), b"flush_all\r\n")

    def _forget(self) -> None:
        """Retention: what is folded and old enough goes."""
        kept_from_ns = self.clock.now_ns() - self.platform.log_retention_ns
        old = min(self.layout.window_of(kept_from_ns) - 1, *self.folded)
        self.forgotten_through = max(self.forgotten_through, old)
        self.run(self.installation.retention.forget())
        self.run(self.installation.retention.forget_history())

    @rule(stumble=st.sampled_from(list(Stumble)))
    @precondition(lambda self: self.stumble is None)
    def next_write_fails(self, stumble: Stumble) -> None:
        self.installation.log.next = self.stumble = stumble

    @rule()
    @precondition(lambda self: self.adrift)
    def write_lands_late(self) -> None:
        self.land()

    def _audit(self, namespace: str, counter: str) -> None:
        """Computed again from what is kept, a count is the same."""
        try:
            audit = self.run(self.installation.audit.counter(namespace, counter))
        except AuditWithoutBase:
            live = self.versions.current[namespace]
            # Segments may be gone by their age, whether or not they are.
            kept_from_ns = self.clock.now_ns() - self.platform.log_retention_ns
            is_all_kept = kept_from_ns <= self.layout.start_ns(self.layout.from_window)
            assert not is_all_kept or live.id in self.versions.without_history
            return
        # A correction of a count that was right is an error, of which an audit tells.
        through_ns = self.layout.complete_through_ns(audit.audited_through)
        from_start = audit.base is None or audit.base.kind is BaseKind.START
        answered = (audit.actual.count, audit.expected.count if from_start else None)
        self.counter(self.versions.current[namespace], counter).explain(
            "what an audit finds and expects", answered, partial(_audited, through_ns, from_start)
        )
        assert not audit.is_different or audit.adjustments, audit

    def audit_all(self) -> None:
        for name, live in self.versions.current.items():
            for namespace_id, counter in list(self.counters):
                if live.id == namespace_id:
                    self._audit(name, counter)

    def _lag_ns(self) -> int:
        return max(0, self.clock.now_ns() - self.layout.end_ns(min(self.folded)))


def _audited(through_ns: int, from_start: bool, world: World) -> tuple[int, int | None]:
    """The count, and what it is without corrections; from a later base only the first is known."""
    plain = {
        identity: effect._replace(delta=0) if effect.note is not None else effect
        for identity, effect in world.items()
    }
    expected = state_of(plain, through_ns).count if from_start else None
    return state_of(world, through_ns).count, expected
