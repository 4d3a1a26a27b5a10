"""Every error that Tally reports, as one tree.

    TallyError
    ├── InvalidRequest            the request itself is wrong; `field` says where
    ├── NotFound
    │   ├── NamespaceUnknown      no such namespace
    │   ├── VersionUnknown        no such version of the namespaces
    │   └── SegmentUnknown        no such segment waits to be folded
    ├── Refused                   right request, wrong moment or wrong place
    │   ├── TokenExpired          not applied, and never will be: a new token is safe
    │   ├── WrongRegion           the token belongs to another region
    │   ├── Unsupported           the namespace's strategy cannot answer this
    │   ├── HistoryOff            the namespace keeps no history
    │   ├── AuditWithoutBase      too little is kept to compute the counter again
    │   ├── ChangeImpossible      no live namespace can be changed like this
    │   ├── DataLossRefused       a change would lose data, and that was not allowed
    │   ├── ShadowOff             the namespace is in no shadow phase
    │   ├── SegmentReadable       only a segment that cannot be read may be set aside
    │   └── SegmentAgreed         a segment that a fold record names cannot be set aside
    ├── OutOfRange
    │   ├── TokenTooOld           what became of the token is no longer known
    │   ├── TokenFromFuture       the caller's clock is ahead
    │   └── HistoryTooOld         what was then is no longer known
    ├── Conflict
    │   └── VersionConflict       another version was applied first: look again, then decide
    ├── Overloaded                a limit is reached; try again later
    │   ├── AddsLimited           the namespace's limit of adds per second
    │   ├── ReadsLimited          the namespace's limit of reads per second
    │   ├── CountersLimited       the namespace has as many counters as it may have
    │   └── FoldLagging           folds are so far behind that retention would be at risk
    ├── Unavailable               the outcome is unknown or the work cannot be done now
    │   ├── StoreUnavailable      the store did not answer or refused
    │   ├── ClockSkewed           this process's clock and the store's disagree
    │   ├── FoldPending           the outcome is decided by a fold that is still to come
    │   ├── NotFreshEnough        nothing as fresh as asked for yet
    │   ├── AnswersUnread         a stream's caller does not read its answers
    │   ├── NotReady              this process is starting and waits for something
    │   └── ShuttingDown          this process is stopping
    ├── StoreDamaged              what was stored cannot be read back as it was written
    │   └── SegmentDamaged        a segment cannot be read; its shard waits for a decision
    └── SetupError                the process cannot start as configured

`reason` is stable: callers may compare it. `message` is for people and may change. One table in
`counter.rpc.status` maps these classes to gRPC status codes; docs/errors.md explains each reason.
"""

from typing import ClassVar


class TallyError(Exception):
    """What happened, to what, and what to do now."""

    reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        retry_after_ms: int | None = None,
        server_time_ns: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        # Set when the same request is worth repeating, with the same token.
        self.retry_after_ms = retry_after_ms
        # Set when the caller should compare its clock.
        self.server_time_ns = server_time_ns


class InvalidRequest(TallyError):
    """The request can never succeed as it is. Each mistake has its own reason and field."""

    def __init__(self, reason: str, field: str, message: str) -> None:
        super().__init__(message)
        assert reason in INVALID_REASONS, reason
        self.reason = reason  # type: ignore[misc]
        self.field = field


INVALID_REASONS = frozenset(
    {
        "NAME_EMPTY",
        "NAME_TOO_LONG",
        "DELTA_ZERO",
        "DELTA_TOO_LARGE",
        "TOKEN_MALFORMED",
        "FRESHNESS_MALFORMED",
        "BATCH_EMPTY",
        "BATCH_TOO_LARGE",
        "BATCH_AMBIGUOUS",
        "COLUMNS_UNEVEN",
        "SEQUENCE_NOT_RISING",
        "TIME_MALFORMED",
        "STEP_NOT_KEPT",
        "RANGE_TOO_LARGE",
        "PAGE_MALFORMED",
        "NOTE_MALFORMED",
        "SEGMENT_MALFORMED",
        "SHARD_UNKNOWN",
        "NAME_NOT_ALLOWED",
        "NAMESPACES_INVALID",
        "VERSION_MALFORMED",
    }
)


class NotFound(TallyError):
    pass


class NamespaceUnknown(NotFound):
    reason = "NAMESPACE_UNKNOWN"


class VersionUnknown(NotFound):
    reason = "VERSION_UNKNOWN"


class SegmentUnknown(NotFound):
    reason = "SEGMENT_UNKNOWN"


class Refused(TallyError):
    pass


class TokenExpired(Refused):
    reason = "TOKEN_EXPIRED"


class WrongRegion(Refused):
    reason = "WRONG_REGION"


class Unsupported(Refused):
    reason = "STRATEGY_UNSUPPORTED"


class HistoryOff(Refused):
    reason = "HISTORY_OFF"


class AuditWithoutBase(Refused):
    reason = "AUDIT_WITHOUT_BASE"


class ChangeImpossible(Refused):
    reason = "CHANGE_IMPOSSIBLE"


class DataLossRefused(Refused):
    reason = "DATA_LOSS_NOT_ALLOWED"


class ShadowOff(Refused):
    reason = "SHADOW_OFF"


class SegmentReadable(Refused):
    reason = "SEGMENT_READABLE"


class SegmentAgreed(Refused):
    reason = "SEGMENT_AGREED"


class OutOfRange(TallyError):
    pass


class TokenTooOld(OutOfRange):
    reason = "TOKEN_TOO_OLD"


class TokenFromFuture(OutOfRange):
    reason = "TOKEN_FROM_FUTURE"


class HistoryTooOld(OutOfRange):
    reason = "HISTORY_TOO_OLD"


class Conflict(TallyError):
    pass


class VersionConflict(Conflict):
    reason = "VERSION_CONFLICT"


class Overloaded(TallyError):
    reason = "OVERLOADED"


class AddsLimited(Overloaded):
    reason = "ADDS_LIMITED"


class ReadsLimited(Overloaded):
    reason = "READS_LIMITED"


class CountersLimited(Overloaded):
    reason = "COUNTERS_LIMITED"


class FoldLagging(Overloaded):
    reason = "FOLD_LAGGING"


class Unavailable(TallyError):
    pass


class StoreUnavailable(Unavailable):
    reason = "STORE_UNAVAILABLE"


class ClockSkewed(Unavailable):
    reason = "CLOCK_SKEWED"


class FoldPending(Unavailable):
    reason = "FOLD_PENDING"


class NotFreshEnough(Unavailable):
    reason = "NOT_FRESH_ENOUGH"


class AnswersUnread(Unavailable):
    reason = "ANSWERS_UNREAD"


class NotReady(Unavailable):
    reason = "NOT_READY"


class ShuttingDown(Unavailable):
    reason = "SHUTTING_DOWN"


class StoreDamaged(TallyError):
    reason = "STORE_DAMAGED"


class SegmentDamaged(StoreDamaged):
    reason = "SEGMENT_DAMAGED"

    def __init__(self, message: str, *, segment_id: bytes = b"") -> None:
        super().__init__(message)
        self.segment_id = segment_id


class SetupError(TallyError):
    reason = "SETUP"
