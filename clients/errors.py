"""Every error that the SDK raises, as one tree.

    CounterError
    ├── InvalidRequest        the request can never succeed as it is; `field` says where
    │   └── NamespacesInvalid there are mistakes in the files; validate_namespaces tells them all
    ├── NotFound
    │   ├── NamespaceUnknown  no such namespace
    │   ├── VersionUnknown    no such version of the namespaces
    │   └── SegmentUnknown    no such segment waits to be folded
    ├── NotPermitted          the caller is not identified or not allowed
    ├── Refused               right request, wrong moment or wrong place
    │   ├── TokenExpired      not applied, and never will be: a new token is safe
    │   ├── TokenTooOld       what became of the token is no longer known
    │   ├── TokenFromFuture   the token's time is ahead of the platform's
    │   ├── WrongRegion       the token belongs to another region
    │   ├── Unsupported       the namespace's strategy or the server cannot do this
    │   ├── HistoryOff        the namespace keeps no history
    │   ├── HistoryTooOld     what was then is no longer known
    │   ├── AuditWithoutBase  too little is kept to compute the counter again
    │   ├── VersionConflict   another version was applied first: plan again, then decide
    │   ├── ChangeImpossible  no live namespace can be changed like this
    │   ├── DataLossRefused   the change would lose data, and that was not allowed
    │   ├── ShadowOff         the namespace is in no shadow phase
    │   ├── SegmentReadable   only a segment that cannot be read may be set aside
    │   └── SegmentAgreed     a segment that a fold record names cannot be set aside
    ├── Overloaded            a limit was reached each time until the deadline; nothing was written
    │   └── NamespaceLimited  a limit of the namespace: `reason` says which; nothing was written
    ├── Unavailable           no answer in time; nothing was written or it was a read
    ├── OutcomeUnknown        a write may have been applied or not; `token` finds out which
    ├── ChangeUnknown         namespaces may have been changed or not; `versions` tells which
    ├── Internal              the server's mistake, or an answer that makes no sense
    │   └── SegmentDamaged    a segment cannot be read; its shard waits for an operator's decision
    └── ClientClosed          the client was used after close()

`reason` is stable: compare it, not the message. Most reasons come from the server. The SDK itself
adds OUTCOME_UNKNOWN, NO_ANSWER, NOT_SENT, NAME_MALFORMED and CLIENT_CLOSED, and, where an answer
has no reason of Tally's, INVALID, NOT_FOUND, NOT_PERMITTED, REFUSED, UNIMPLEMENTED, OVERLOADED or
INTERNAL.
"""

import grpc

from counter.tokens import Token


class CounterError(Exception):
    """What happened, to what, and what to do now."""

    def __init__(
        self, message: str, *, reason: str, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.code = code


class InvalidRequest(CounterError):
    """The request can never succeed as it is; nothing was written."""

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT,
        field: str = "",
    ) -> None:
        super().__init__(message, reason=reason, code=code)
        self.field = field  # as in the request message; empty if the server did not say


class NamespacesInvalid(InvalidRequest):
    pass


class NotFound(CounterError):
    pass


class NamespaceUnknown(NotFound):
    pass


class VersionUnknown(NotFound):
    pass


class SegmentUnknown(NotFound):
    pass


class NotPermitted(CounterError):
    pass


class Refused(CounterError):
    pass


class TokenExpired(Refused):
    pass


class TokenTooOld(Refused):
    pass


class TokenFromFuture(Refused):
    pass


class WrongRegion(Refused):
    pass


class Unsupported(Refused):
    pass


class HistoryOff(Refused):
    pass


class HistoryTooOld(Refused):
    pass


class AuditWithoutBase(Refused):
    pass


class VersionConflict(Refused):
    pass


class ChangeImpossible(Refused):
    pass


class DataLossRefused(Refused):
    pass


class ShadowOff(Refused):
    pass


class SegmentReadable(Refused):
    pass


class SegmentAgreed(Refused):
    pass


class Overloaded(CounterError):
    pass


class NamespaceLimited(Overloaded):
    pass


class Unavailable(CounterError):
    pass


class OutcomeUnknown(CounterError):
    """A write that may or may not have been applied.

    Nothing is lost: `client.settle(error.counter, error.token)` tells which it was, and the same
    call with `token=error.token` counts once, whatever became of the first one.
    """

    def __init__(
        self, message: str, *, token: Token, counter: str, last_error: CounterError | None
    ) -> None:
        code = last_error.code if last_error is not None else grpc.StatusCode.UNKNOWN
        super().__init__(message, reason="OUTCOME_UNKNOWN", code=code)
        self.token = token
        self.counter = counter
        self.last_error = last_error


class ChangeUnknown(CounterError):
    """A change of the namespaces that may or may not have been made.

    It was made if the version after `expected_version` has its author and its reason: `versions`
    tells. The same call again is safe, because nothing changes if another version is live by then.
    """

    def __init__(
        self, message: str, *, expected_version: int, last_error: CounterError | None
    ) -> None:
        code = last_error.code if last_error is not None else grpc.StatusCode.UNKNOWN
        super().__init__(message, reason="OUTCOME_UNKNOWN", code=code)
        self.expected_version = expected_version
        self.last_error = last_error


class Internal(CounterError):
    pass


class SegmentDamaged(Internal):
    pass


class ClientClosed(CounterError):
    def __init__(self) -> None:
        super().__init__(
            "the client is closed: make a new one, or call it inside its `with` block",
            reason="CLIENT_CLOSED",
            code=grpc.StatusCode.CANCELLED,
        )
