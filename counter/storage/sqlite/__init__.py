"""The ports on one SQLite file: the embedded store, for one process."""

from counter.storage.sqlite.database import Database
from counter.storage.sqlite.event_log import SqliteEventLog
from counter.storage.sqlite.fold_commit import SqliteFoldCommit
from counter.storage.sqlite.history_store import SqliteHistoryStore
from counter.storage.sqlite.ledger import SqliteLedger
from counter.storage.sqlite.namespace_store import SqliteNamespaceStore
from counter.storage.sqlite.rollup_store import SqliteRollupStore

__all__ = [
    "Database",
    "SqliteEventLog",
    "SqliteFoldCommit",
    "SqliteHistoryStore",
    "SqliteLedger",
    "SqliteNamespaceStore",
    "SqliteRollupStore",
]
