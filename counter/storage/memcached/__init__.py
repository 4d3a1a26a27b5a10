"""The cache and the best_effort counters of a fleet, on memcached servers that it shares."""

from counter.storage.memcached.best_effort import MemcachedBestEffortCounters
from counter.storage.memcached.count_cache import MemcachedCountCache
from counter.storage.memcached.servers import MemcachedServers, MemcachedSettings

__all__ = [
    "MemcachedBestEffortCounters",
    "MemcachedCountCache",
    "MemcachedServers",
    "MemcachedSettings",
]
