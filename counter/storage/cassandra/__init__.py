"""Event log, ledger, rollups, history, namespaces and members on Apache Cassandra.

LOCAL_QUORUM everywhere, in one data centre; agreement (insert if absent) only for what is decided
once: fold records, segments set aside, namespace versions, the layout, the schema.
"""

from counter.storage.cassandra.event_log import CassandraEventLog
from counter.storage.cassandra.history_store import CassandraHistoryStore
from counter.storage.cassandra.ledger import CassandraLedger
from counter.storage.cassandra.membership import CassandraMembership
from counter.storage.cassandra.namespace_store import CassandraNamespaceStore
from counter.storage.cassandra.rollup_store import CassandraRollupStore
from counter.storage.cassandra.session import CassandraSession
from counter.storage.cassandra.settings import ClusterSettings, TlsSettings

__all__ = [
    "CassandraEventLog",
    "CassandraHistoryStore",
    "CassandraLedger",
    "CassandraMembership",
    "CassandraNamespaceStore",
    "CassandraRollupStore",
    "CassandraSession",
    "ClusterSettings",
    "TlsSettings",
]
