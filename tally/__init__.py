"""Tally: distributed counters that are never wrong.

    from tally import CounterClient

    async with CounterClient("127.0.0.1:50051", namespace="video_plays") as client:
        await client.add("title-42")
        value = await client.get("title-42")

`SyncCounterClient` has the same methods for threads and scripts.
"""

from importlib.metadata import version

from clients import (
    Add,
    AddAndGetResult,
    AddOutcome,
    AddResult,
    Cardinality,
    ClientClosed,
    CounterClient,
    CounterError,
    CountValue,
    Internal,
    InvalidRequest,
    Mistake,
    Namespace,
    Namespaces,
    NamespaceUnknown,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    Refused,
    RollupStatus,
    ShardStatus,
    Source,
    Strategy,
    SyncCounterClient,
    Token,
    TokenExpired,
    TokenFromFuture,
    TokenStatus,
    TokenTooOld,
    Unavailable,
    Unsupported,
    WrongRegion,
)

__version__ = version("tally")

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
    "__version__",
]
