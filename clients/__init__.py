"""The Python SDK: `CounterClient` for asyncio, `SyncCounterClient` for threads and scripts."""

from clients.client import CounterClient
from clients.errors import (
    ClientClosed,
    CounterError,
    Internal,
    InvalidRequest,
    NamespaceUnknown,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    Refused,
    TokenExpired,
    TokenFromFuture,
    TokenTooOld,
    Unavailable,
    Unsupported,
    WrongRegion,
)
from clients.platform_values import Mistake, Namespace, Namespaces, RollupStatus, ShardStatus
from clients.sync_client import SyncCounterClient
from clients.values import (
    Add,
    AddAndGetResult,
    AddOutcome,
    AddResult,
    Cardinality,
    CountValue,
    Source,
    Strategy,
    TokenStatus,
)
from counter.tokens import Token

__all__ = [
    "Add",
    "AddAndGetResult",
    "AddOutcome",
    "AddResult",
    "Cardinality",
    "ClientClosed",
    "CountValue",
    "CounterClient",
    "CounterError",
    "Internal",
    "InvalidRequest",
    "Mistake",
    "Namespace",
    "NamespaceUnknown",
    "Namespaces",
    "NotPermitted",
    "OutcomeUnknown",
    "Overloaded",
    "Refused",
    "RollupStatus",
    "ShardStatus",
    "Source",
    "Strategy",
    "SyncCounterClient",
    "Token",
    "TokenExpired",
    "TokenFromFuture",
    "TokenStatus",
    "TokenTooOld",
    "Unavailable",
    "Unsupported",
    "WrongRegion",
]
