"""An add or a clear on its way: its token, what its attempts did so far, and what comes next."""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from clients.connection import Connection, Deadline, Method
from clients.errors import ClientClosed, CounterError, OutcomeUnknown, Overloaded, Unavailable
from clients.failures import Failure, error_of
from clients.retry import GiveUp, History, Proof, after_write, attempt_timeout_s, proof_of
from clients.values import AddResult
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb


class Write:
    """One logical add or clear. The token is made once and changes only where that is safe."""

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        counter: str,
        delta: int | None,  # None: a clear
        token: Token | None,  # None: make one
        own_token: bool = False,  # the client made the given one: it may be replaced
        act: str = "add",  # what it is called in messages, unless it is a clear
    ) -> None:
        self.namespace = namespace
        self.counter = counter
        self.delta = delta
        self.act = act
        self.token = connection.tokens.next() if token is None else token
        self._connection = connection
        self._history = History(own_token=own_token or token is None)
        self._last: Failure | None = None

    @property
    def what(self) -> str:
        act = "the clear of" if self.delta is None else f"the {self.act} of {self.delta} to"
        return f"{act} {self.counter!r} in namespace {self.namespace!r}"

    def answered(
        self, answer: pb.AddCountOutcome | Failure, *, sent_at_ns: int, remaining_s: float
    ) -> AddResult | CounterError | float:
        """How an add of a batch ends, or how long to wait before it is sent again."""
        if isinstance(answer, Failure):
            return self.failed(answer, sent_at_ns=sent_at_ns, remaining_s=remaining_s)
        self.succeeded()
        return AddResult(token=self.token, duplicate=answer.duplicate)

    def succeeded(self) -> None:
        if self._history.own_token:
            self._connection.tokens.used(self.token)

    def failed(
        self, failure: Failure, *, sent_at_ns: int, remaining_s: float
    ) -> float | CounterError:
        """After a failed attempt: how long to wait before the next one, or how the call ends."""
        step = after_write(
            self._history,
            failure,
            generation_time_ns=self.token.generation_time_ns,
            # A closed client has no time left, whatever the deadline says.
            remaining_s=0.0 if self._connection.closed else remaining_s,
            random=self._connection.random,
        )
        self._last = failure
        self._history = step.history
        tokens = self._connection.tokens
        if step.history.own_token and step.history.unknown:
            tokens.used(self.token)
        if isinstance(step, GiveUp):
            return self._unknown() if step.unknown else self._refused(failure)
        if step.new_token:
            if failure.server_time_ns is not None:
                tokens.correct(
                    failure.server_time_ns, sent_at_ns=sent_at_ns, received_at_ns=tokens.now_ns()
                )
            self.token = tokens.next()
        return step.delay_s

    def out_of_time(self) -> CounterError:
        """How the call ends if there is no time for the next attempt, or for the first one."""
        if self._history.unknown:
            return self._unknown()
        if self._last is not None:
            return self._refused(self._last)
        if self._connection.closed:
            return ClientClosed()
        return Unavailable(
            f"{self.what} was not sent before the deadline, so it is not applied. "
            "Send it again, with more time or fewer items.",
            reason="NOT_SENT",
            code=grpc.StatusCode.DEADLINE_EXCEEDED,
        )

    def _refused(self, failure: Failure) -> CounterError:
        error = error_of(failure)
        if not isinstance(error, Overloaded) or proof_of(failure) is not Proof.BUSY:
            return error
        return type(error)(
            f"{self.what} was refused {self._history.attempts} times until the deadline, the last "
            f"time with: {error.message}. Nothing was written: try again later.",
            reason=error.reason,
            code=error.code,
        )

    def _unknown(self) -> OutcomeUnknown:
        assert self._last is not None
        last_error = error_of(self._last)
        error = OutcomeUnknown(
            f"it is not known whether {self.what} was applied ({self._history.attempts} attempts; "
            f"the last one: {self._last.code.name}: {last_error.message}). To find out, call "
            f"settle({self.counter!r}, error.token); to have it counted exactly once, repeat the "
            "call with token=error.token.",
            token=self.token,
            counter=self.counter,
            last_error=last_error,
        )
        error.__cause__ = last_error
        return error


async def send_write(
    write: Write,
    connection: Connection,
    method: Method,
    request_of: Callable[[Token], Message],
    deadline: Deadline,
) -> Any:
    """Sends until the outcome is known or the deadline has passed; answers with the response."""
    while True:
        remaining_s = deadline.remaining_s()
        if remaining_s <= 0 or connection.closed:
            raise write.out_of_time()
        request = request_of(write.token)
        sent_at_ns = connection.tokens.now_ns()
        response = await connection.attempt(
            method, request, timeout_s=attempt_timeout_s(remaining_s)
        )
        if not isinstance(response, Failure):
            write.succeeded()
            return response
        verdict = write.failed(response, sent_at_ns=sent_at_ns, remaining_s=deadline.remaining_s())
        if isinstance(verdict, CounterError):
            raise verdict
        await connection.pause(verdict)
