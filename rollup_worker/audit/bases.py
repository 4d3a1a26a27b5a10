"""Where a recount can begin, and which states the history must have.

A state of the history holds from the end of its step to the start of the one in which the counter
changed next. So it is a base for the windows after any point in between: each window after that
point must be kept, and none before it is needed.
"""

from dataclasses import dataclass

from counter.clock import NS_PER_MS, Clock
from counter.history import HistoryRow
from counter.namespaces import Namespace, Snapshot
from counter.rollups import ZERO, Rollup
from counter.settings import Platform
from counter.storage.ports import FOREVER, HistoryKey, HistoryStore, NamespaceStore
from counter.windows import Layout
from rollup_worker.audit.values import Base, BaseKind

# How far back the versions of the namespaces are looked at for a change of the history section.
_VERSIONS_MAX = 100
_ALWAYS_NS = 0


@dataclass(frozen=True, slots=True)
class _KeptSteps:
    """For how long a namespace has kept a step without a break, and what it kept at least."""

    since_ns: int
    retention_ms: int


class AuditBases:
    def __init__(
        self,
        history_store: HistoryStore,
        namespace_store: NamespaceStore,
        layout: Layout,
        platform: Platform,
        clock: Clock,
    ) -> None:
        self._history = history_store
        self._namespaces = namespace_store
        self._layout = layout
        self._grace_ns = platform.close_grace_ns
        self._clock = clock
        # Of the latest version alone.
        self._kept: dict[tuple[int, int], _KeptSteps] = {}
        self._kept_version = -1

    def start(self, row: Rollup | None, kept_from: int) -> Base | None:
        """0, if the counter's first event is kept. A counter without a rollup has not begun."""
        if row is None or row.first_window >= kept_from:
            return Base(kind=BaseKind.START, through_window=kept_from - 1, state=ZERO)
        return None

    async def earliest(
        self, namespace: Namespace, counter: str, kept_from: int, through_window: int
    ) -> Base | None:
        """The state in the history with the most windows after it, of the finest step."""
        best: Base | None = None
        for each in namespace.history:
            key = HistoryKey(namespace.id, counter, each.step_ms)
            base = await self._earliest_of(key, kept_from)
            if base is None or base.through_window > through_window:
                continue
            if best is None or base.through_window < best.through_window:
                best = base
            if best.through_window < kept_from:
                break
        return best

    async def at(
        self, namespace: Namespace, counter: str, kept_from: int, window: int
    ) -> Base | None:
        """The state that held at the end of the window, or as near before as is known."""
        best: Base | None = None
        for each in namespace.history:
            step = self._layout.step_of(window + 1, each.step_ms) - 1
            key = HistoryKey(namespace.id, counter, each.step_ms)
            [row] = await self._history.at([key], step)
            if row is None:
                continue
            through = min(window, self._holds_through(row, each.step_ms))
            if through >= kept_from - 1 and (best is None or through > best.through_window):
                best = Base(kind=BaseKind.HISTORY, through_window=through, state=row.state)
        return best

    async def due_from(self, namespace: Namespace, step_ms: int) -> int:
        """States that ended in a later step than this one must be in the history.

        Others may be out of retention, or from a time when the namespace kept no such steps.
        """
        kept = await self._kept_steps(namespace, step_ms)
        step_ns = step_ms * NS_PER_MS
        kept_from_ns = self._clock.now_ns() - kept.retention_ms * NS_PER_MS
        # One step more than needed: what expires while an audit runs is not missing.
        return max((kept.since_ns + self._grace_ns) // step_ns, kept_from_ns // step_ns + 1)

    async def _earliest_of(self, key: HistoryKey, kept_from: int) -> Base | None:
        step = self._layout.step_of(kept_from, key.step_ms) - 1
        [row] = await self._history.at([key], step)
        if row is not None and self._holds_through(row, key.step_ms) >= kept_from - 1:
            return Base(kind=BaseKind.HISTORY, through_window=kept_from - 1, state=row.state)
        following = await self._history.between(key, step + 1, FOREVER, limit=1)
        if not following:
            return None
        [row] = following
        through = max(kept_from - 1, self._layout.last_window_of_step(row.step, key.step_ms))
        return Base(kind=BaseKind.HISTORY, through_window=through, state=row.state)

    def _holds_through(self, row: HistoryRow, step_ms: int) -> int:
        return self._layout.last_window_of_step(row.until_step - 1, step_ms)

    async def _kept_steps(self, namespace: Namespace, step_ms: int) -> _KeptSteps:
        latest = await self._namespaces.latest()
        assert latest is not None, "the namespace is of some version"
        if latest.version != self._kept_version:
            self._kept, self._kept_version = {}, latest.version
        key = namespace.id, step_ms
        if key not in self._kept:
            self._kept[key] = await self._look_back(latest, namespace.id, step_ms)
        return self._kept[key]

    async def _look_back(self, latest: Snapshot, namespace_id: int, step_ms: int) -> _KeptSteps:
        since_ns, retention_ms = self._clock.now_ns(), 0
        snapshot: Snapshot | None = latest
        for _ in range(_VERSIONS_MAX):
            if snapshot is None:
                break
            if namespace_id not in snapshot.by_id:  # the version after this one created it
                return _KeptSteps(_ALWAYS_NS, retention_ms)
            retention = _retention_ms(snapshot.by_id[namespace_id], step_ms)
            if retention is None:
                break
            since_ns = snapshot.applied_at_ns
            retention_ms = min(retention_ms or retention, retention)
            if snapshot.version <= 1:
                return _KeptSteps(_ALWAYS_NS, retention_ms)
            if since_ns < self._clock.now_ns() - retention_ms * NS_PER_MS:
                break
            snapshot = await self._namespaces.get(snapshot.version - 1)
        return _KeptSteps(since_ns, retention_ms)


def _retention_ms(namespace: Namespace, step_ms: int) -> int | None:
    return next((each.retention_ms for each in namespace.history if each.step_ms == step_ms), None)
