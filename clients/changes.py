"""A change of the namespaces on its way: an apply, a rollback or a cutover.

It is safe to send again, because it names the version that it expects to be live: as soon as one of
its attempts made a version, no other attempt can. So an attempt whose answer was lost is repeated.
If the repetition finds another version live, that may be this very change or somebody else's, and
then the caller is told to look.
"""

from typing import Any

from google.protobuf.message import Message

from clients.connection import Connection, Deadline, Method
from clients.errors import ChangeUnknown, ClientClosed, CounterError
from clients.failures import Failure, error_of
from clients.retry import Proof, attempt_timeout_s, delay_before, proof_of


async def send_change(
    connection: Connection,
    method: Method,
    request: Message,
    *,
    what: str,
    expected_version: int,
    deadline: Deadline,
) -> Any:
    """Sends until the outcome is known or the deadline has passed; answers with the response."""
    attempts = 0
    unknown = False
    while True:
        timeout_s = attempt_timeout_s(deadline.remaining_s())
        response = await connection.attempt(method, request, timeout_s=timeout_s)
        if not isinstance(response, Failure):
            return response
        attempts += 1
        proof = proof_of(response)
        unknown = unknown or proof in (Proof.UNKNOWN, Proof.DAMAGED)
        delay_s: float | None = None
        if proof in (Proof.UNKNOWN, Proof.BUSY) and not connection.closed:
            delay_s = delay_before(
                attempts, response.retry_after_s, deadline.remaining_s(), connection.random
            )
        if delay_s is None:
            raise _end(response, connection, what, expected_version, unknown=unknown)
        await connection.pause(delay_s)
        if connection.closed or deadline.remaining_s() <= 0:
            raise _end(response, connection, what, expected_version, unknown=unknown)


def _end(
    failure: Failure, connection: Connection, what: str, expected_version: int, *, unknown: bool
) -> CounterError:
    last_error = error_of(failure)
    if not unknown:
        return ClientClosed() if connection.closed else last_error
    error = ChangeUnknown(
        f"it is not known whether {what} was made: an answer was lost (the last attempt: "
        f"{failure.code.name}: {last_error.message}). It was if version {expected_version + 1} "
        "has its author and its reason: look with versions(), or with: tally versions",
        expected_version=expected_version,
        last_error=last_error,
    )
    error.__cause__ = last_error
    return error
