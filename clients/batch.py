"""Batches: cut into calls, a few of them in flight, each item settled like a single add."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import grpc

from clients.connection import Connection, Deadline
from clients.errors import CounterError, InvalidRequest
from clients.failures import Failure, failure_of_outcome
from clients.retry import attempt_timeout_s
from clients.translate import check_delta, check_name, token_message
from clients.values import Add, AddOutcome
from clients.writes import Write
from counter.v1 import counter_service_pb2 as pb

T = TypeVar("T")

ITEMS_PER_CALL_MAX = 10_000  # the platform's limit
ITEMS_PER_CALL = 1_000
CALLS_IN_FLIGHT_MAX = 4


def pieces(count: int, size: int) -> list[range]:
    """The positions 0 to count, cut into ranges of at most `size`."""
    if not 1 <= size <= ITEMS_PER_CALL_MAX:
        raise ValueError(f"items_per_call must be 1 to {ITEMS_PER_CALL_MAX}, not {size!r}")
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


async def in_flight(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Runs the calls in order, CALLS_IN_FLIGHT_MAX at a time; the first error ends them all."""
    answers: dict[int, T] = {}

    async def run(numbered: Iterator[tuple[int, Callable[[], Awaitable[T]]]]) -> None:
        for number, call in numbered:
            answers[number] = await call()

    # The tasks share one iterator: each takes the next call when it has finished one.
    todo = iter(enumerate(calls))
    tasks = [asyncio.create_task(run(todo)) for _ in range(min(CALLS_IN_FLIGHT_MAX, len(calls)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [answers[number] for number in range(len(calls))]


class AddBatch:
    """The adds of one `batch_add`."""

    def __init__(
        self, connection: Connection, namespace: str, adds: Sequence[Add], deadline: Deadline
    ) -> None:
        self._connection = connection
        self._namespace = check_name(namespace, "namespace")
        self._adds = adds
        self._deadline = deadline

    async def send(self, positions: range) -> list[AddOutcome]:
        """Settles one call's worth of adds; answers with their outcomes in order."""
        outcomes: dict[int, AddOutcome] = {}
        pending: dict[int, Write] = {}
        items: dict[int, pb.AddCountItem] = {}
        for position in positions:
            # Tokens are made when they are about to be sent: a long batch must not age them.
            write = self._write(self._adds[position])
            try:
                items[position] = _item(self._adds[position], write)
                pending[position] = write
            except InvalidRequest as error:
                outcomes[position] = _outcome(write, error=error)
        while pending:
            delay_s = await self._round(pending, items, outcomes)
            if pending:
                await self._connection.pause(delay_s)
        return [outcomes[position] for position in positions]

    async def _round(
        self,
        pending: dict[int, Write],
        items: dict[int, pb.AddCountItem],
        outcomes: dict[int, AddOutcome],
    ) -> float:
        """Sends what is pending once, moves what is settled to `outcomes`; how long to wait."""
        remaining_s = self._deadline.remaining_s()
        if remaining_s <= 0 or self._connection.closed:
            for position, write in pending.items():
                outcomes[position] = _outcome(write, error=write.out_of_time())
            pending.clear()
            return 0.0
        request = pb.BatchAddCountRequest(
            namespace=self._namespace, items=[items[position] for position in pending]
        )
        sent_at_ns = self._connection.tokens.now_ns()
        response: pb.BatchAddCountResponse | Failure = await self._connection.attempt(
            self._connection.counters.BatchAddCount,
            request,
            timeout_s=attempt_timeout_s(remaining_s),
        )
        remaining_s = self._deadline.remaining_s()
        delay_s = 0.0
        answers = _answers(response, len(pending))
        for (position, write), answer in zip(list(pending.items()), answers, strict=True):
            if not isinstance(answer, Failure):
                write.succeeded()
                outcomes[position] = _outcome(write, duplicate=answer.duplicate)
                del pending[position]
                continue
            verdict = write.failed(answer, sent_at_ns=sent_at_ns, remaining_s=remaining_s)
            if isinstance(verdict, CounterError):
                outcomes[position] = _outcome(write, error=verdict)
                del pending[position]
            else:
                items[position] = _item(self._adds[position], write)
                delay_s = max(delay_s, verdict)
        return delay_s

    def _write(self, add: Add) -> Write:
        return Write(
            self._connection,
            namespace=self._namespace,
            counter=add.counter,
            delta=add.delta,
            token=add.token,
        )


def _answers(
    response: pb.BatchAddCountResponse | Failure, count: int
) -> Sequence[pb.AddCountOutcome | Failure]:
    """One answer for each item; a failure of the whole call is every item's."""
    if isinstance(response, Failure):
        return [response] * count
    if len(response.outcomes) != count:
        message = f"the server answered {len(response.outcomes)} outcomes for {count} items"
        return [Failure(code=grpc.StatusCode.INTERNAL, message=message)] * count
    return [failure_of_outcome(outcome) or outcome for outcome in response.outcomes]


def _item(add: Add, write: Write) -> pb.AddCountItem:
    return pb.AddCountItem(
        counter_name=check_name(add.counter),
        delta=check_delta(add.delta),
        idempotency_token=token_message(write.token),
    )


def _outcome(
    write: Write, *, duplicate: bool = False, error: CounterError | None = None
) -> AddOutcome:
    return AddOutcome(counter=write.counter, token=write.token, duplicate=duplicate, error=error)
