"""The ports in memory: for tests and simulation, and for what the embedded product may lose."""

from counter.storage.memory.best_effort import MemoryBestEffortCounters
from counter.storage.memory.count_cache import MemoryCountCache
from counter.storage.memory.event_log import MemoryEventLog
from counter.storage.memory.history_store import MemoryHistoryStore
from counter.storage.memory.ledger import MemoryLedger
from counter.storage.memory.membership import MemoryMembership
from counter.storage.memory.namespace_store import MemoryNamespaceStore
from counter.storage.memory.rollup_store import MemoryRollupStore

__all__ = [
    "MemoryBestEffortCounters",
    "MemoryCountCache",
    "MemoryEventLog",
    "MemoryHistoryStore",
    "MemoryLedger",
    "MemoryMembership",
    "MemoryNamespaceStore",
    "MemoryRollupStore",
]
